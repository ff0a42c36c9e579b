/*-------------------------------------------------------------------------
 * subscription.h
 *	  Subscriptions, and how far they have come in each slot.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_SUBSCRIPTION_H
#define IDEM_SUBSCRIPTION_H

#include "log_read.h"

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

/*
 * The subscription that a reader's first argument names, held so that nobody
 * ends or moves it before the transaction does; ID006 if there is none.  NULL:
 * somebody is at that just now (after `wait`).
 */
extern Subscription *subscription_enter(IdemCall *call);

/* Hold a slot until the transaction ends; false: somebody else does */
extern bool slot_hold(IdemCall *call, const Subscription *subscription, int slot);
extern void slot_let_go(IdemCall *call, const Subscription *subscription, int slot);

/* Where the subscription stands in a slot, and write where it stands now */
extern Position position_read(IdemCall *call, const Subscription *subscription, int slot);
extern void position_append(IdemCall *call, const Subscription *subscription, Position *position);
extern bool position_is_leased(const Position *position, TimestampTz now);
extern void position_take_back(Position *position);

/* The window that the next events of a slot come from */
extern LogWindow position_window(const Subscription *subscription, const Position *position);

/* Positions of the slots that a batch was handed out from, as they are now */
extern List *batch_positions(IdemCall *call, const Subscription *subscription, int64 batch);

/*
 * The same, with their slots held.  NIL with call->busy: somebody is at one of
 * them.  Raises ID005 unless all of the batch is still out; *acked instead, if
 * it was acknowledged.
 */
extern List *batch_hold(IdemCall *call, const Subscription *subscription, int64 batch, bool *acked);

/* ---------- parked.c ---------- */

/*
 * An event that is handed out: a row of the log, or of those that are parked
 */
typedef struct Delivery
{
	NullableDatum columns[EVENT_SEQ];	/* of the log, up to seq */
	int64		seq;
	int32		attempt;
	bool		parked;
} Delivery;

extern Delivery *delivery_of_row(const IdemRow *row, int32 attempt);
extern bool delivery_same_key(const Delivery *a, const Delivery *b);

/* Has the subscription any event that failed? */
extern bool parked_any(IdemCall *call, const Subscription *subscription);

/* Leave out, and park, what waits behind an event that failed; of a list of Delivery */
extern List *parked_filter(IdemCall *call, const Subscription *subscription, int slot, List *deliveries);

/* Parked events that are to be handed out: due ones, or again those of a batch */
extern List *parked_due(IdemCall *call, const Subscription *subscription, int slot, int most);
extern List *parked_of_batch(IdemCall *call, const Subscription *subscription, int slot, int64 batch);
extern void parked_hand_out(IdemCall *call, const Subscription *subscription, List *deliveries, int64 batch);
extern void parked_acknowledge(IdemCall *call, const Subscription *subscription, int64 batch);

/* Give an event up; error is for humans */
extern void bury(IdemCall *call, const Subscription *subscription, int slot,
				 const Delivery *delivery, Datum error);

/* Is there likely to be something to fetch? */
extern bool delivery_is_due(IdemCall *call, Subscription *subscription);

/* Pass over what a slot that nobody is at has not to deliver */
extern void delivery_advance(IdemCall *call, Subscription *subscription, int slot);

/* The first event that a slot has not acknowledged; NULL: there is none */
extern Delivery *delivery_first(IdemCall *call, Subscription *subscription, const Position *position);

#endif							/* IDEM_SUBSCRIPTION_H */
