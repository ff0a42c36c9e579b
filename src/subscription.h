/*-------------------------------------------------------------------------
 * subscription.h
 *	  Subscriptions, and how far they have come in each slot.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_SUBSCRIPTION_H
#define IDEM_SUBSCRIPTION_H

#include "log_read.h"

/* From this delivery on, what nobody acknowledges is halved */
#define SUSPICIOUS_DELIVERY 3

typedef struct Subscription
{
	ItemPointerData tid;
	Datum		name;
	List	   *types;			/* of text; NIL: all */
	int			slots;
	Datum		start;
} Subscription;

/* A row of idem_position: see its comment */
typedef struct Position
{
	int			slot;
	int64		gen;			/* 0: there is none yet */
	int			side;			/* where it was found */
	LogPoint	lo;
	LogPoint	hi;				/* seen is NULL: no window is open */
	LogPoint	next;			/* of a batch that reaches into the window after it; or NULL */
	int64		pos;
	int64		upto;
	NullableDatum batch;		/* int8; NULL: nothing is handed out */
	int32		parts;			/* slots of the batch */
	NullableDatum worker;
	TimestampTz lease_until;
	int32		deliveries;
	int32		cap;			/* 0: none */
	NullableDatum acked;		/* int8 */
} Position;

/* The subscription of that name; NULL: there is none */
extern Subscription *subscription_look(IdemCall *call, Datum name, IdemSight sight);
pg_noreturn extern void subscription_not_found(Datum name);

/*
 * The subscription that a reader's first argument names, held so that nobody
 * ends or moves it before the transaction does; ID006 if there is none.  NULL:
 * somebody is at that just now (after `wait`).
 */
extern Subscription *subscription_enter(IdemCall *call);

/* Hold a slot until the transaction ends; false: somebody else does */
extern bool slot_hold(IdemCall *call, const Subscription *subscription, int slot);
extern bool slot_hold_soon(IdemCall *call, const Subscription *subscription, int slot); /* within `wait` */
extern bool slot_is_held(IdemCall *call, const Subscription *subscription, int slot);	/* by others */
extern void slot_let_go(IdemCall *call, const Subscription *subscription, int slot);

/* Where the subscription stands in its slots, for who asks for several of them */
typedef struct PositionReader PositionReader;

extern PositionReader *position_reader_open(IdemCall *call, const Subscription *subscription);
extern Position position_reader_read(PositionReader *reader, int slot);
extern void position_reader_close(PositionReader *reader);

/* Where the subscription stands in a slot, and write where it stands now */
extern Position position_read(IdemCall *call, const Subscription *subscription, int slot);
extern void position_append(IdemCall *call, const Subscription *subscription, Position *position);
extern bool position_is_leased(const Position *position, TimestampTz now);
extern void position_take_back(Position *position);

/* Is anything of the log handed out?  Then it is done; or it is not, it stays for later */
extern bool position_has_out(const Position *position);
extern void position_pass(Position *position);
extern void position_keep_back(Position *position);

/* As if it stood at the beginning of the window that its batch reaches into */
extern Position position_beyond(const Position *position);

/* The window that the next events of a slot come from */
extern LogWindow position_window(const Subscription *subscription, const Position *position);

/* ---------- batch.c ---------- */

typedef enum BatchState
{
	BATCH_OUT,					/* all of it is out */
	BATCH_ACKED,
	BATCH_LOST,					/* handed out to somebody else, or the subscription was moved */
	BATCH_BUSY					/* somebody is at one of its slots (after `wait`) */
} BatchState;

/*
 * Positions of the slots that a batch was handed out from, which are held from
 * here on.  batch_demand raises ID005 if it is lost.
 */
extern List *batch_hold(IdemCall *call, const Subscription *subscription, int64 batch, BatchState *state);
extern List *batch_demand(IdemCall *call, const Subscription *subscription, int64 batch, BatchState *state);
extern void batch_acknowledge(IdemCall *call, const Subscription *subscription, Position *position);

/* ---------- parked.c ---------- */

/* In a statement: two events of one key */
#define SAME_KEY(a, b) \
	a ".tenant_id = " b ".tenant_id AND " a ".aggregatetype = " b ".aggregatetype" \
	" AND " a ".aggregateid = " b ".aggregateid"

/* An event that is handed out, out of the log or of those that are parked */
typedef LogEvent Delivery;

extern bool delivery_same_key(const Delivery *a, const Delivery *b);

/* Has the slot events that are parked, or the subscription any that are dead? */
extern bool slot_has_failed(IdemCall *call, const Subscription *subscription, int slot);

/* Those of a list that were neither parked nor given up before */
extern List *parked_unknown(IdemCall *call, const Subscription *subscription, List *deliveries);

/* Park an event: the first of its key until next_at, with the error, or one behind it */
extern void park(IdemCall *call, const Subscription *subscription, int slot,
				 const Delivery *delivery, int32 attempts, NullableDatum next_at, NullableDatum error);

/* Leave out, and park, what waits behind an event that failed; of a list of Delivery */
extern List *parked_filter(IdemCall *call, const Subscription *subscription, int slot, List *deliveries);

/* Parked events that are to be handed out: due ones, or again those of a batch */
extern List *parked_due(IdemCall *call, const Subscription *subscription, int slot, int most);
extern List *parked_of_batch(IdemCall *call, const Subscription *subscription, int slot, int64 batch);
extern List *parked_narrow(IdemCall *call, const Subscription *subscription, int slot, int64 batch,
						   List *deliveries, bool alone, int most);
extern void parked_hand_out(IdemCall *call, const Subscription *subscription, List *deliveries, int64 batch);
extern void parked_acknowledge(IdemCall *call, const Subscription *subscription, int64 batch);

/* Give an event up; error is for humans */
extern void bury(IdemCall *call, const Subscription *subscription, int slot,
				 const Delivery *delivery, Datum error);
extern void parked_bury(IdemCall *call, const Subscription *subscription, int slot,
						const Delivery *delivery, Datum error);

#endif							/* IDEM_SUBSCRIPTION_H */
