/*-------------------------------------------------------------------------
 * refund.h
 *	  Refunds: money that goes back.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REFUND_H
#define IDEM_REFUND_H

#include "receipt.h"

/* In the order of refund_status_names */
typedef enum RefundStatus
{
	REFUND_REQUESTED,
	REFUND_PROCESSING,
	REFUND_SUCCEEDED,
	REFUND_FAILED,
	REFUND_CLOSED,
	REFUND_ABNORMAL,
	REFUND_CANCELLED,
	REFUND_REVERSED
} RefundStatus;

extern const char *const refund_status_names[];

/* When somebody is to look after a refund whose caller went silent */
#define REFUND_FIRST_CHECK_US (60 * USECS_PER_SEC)

/* A row of idem_refund */
typedef struct Refund
{
	ItemPointerData tid;
	Datum		refund_no;
	Datum		receipt_no;
	NullableDatum payment_no;
	NullableDatum order_id;
	int32		purchase_no;	/* 0: NULL */
	Datum		channel;
	Datum		account;
	NullableDatum channel_refund_no;
	int64		amount;			/* minor units */
	Datum		currency;
	RefundStatus status;
	int32		version;
	Datum		cause;			/* text */
	bool		held;			/* requested, and not to be sent yet */
	NullableDatum reason;
	TimestampTz created_at;
	NullableDatum submitted_at; /* the last time */
	NullableDatum next_check_at;
	NullableDatum settled_at;	/* when its last result happened at the channel */
	bool		takes_back;		/* that result, a failure, takes back any success before it */
	NullableDatum succeeded_at; /* when it succeeded at the channel; infinity: it was others */
} Refund;

extern const IdemIndex refund_by_no;		/* tenant_id, refund_no */
extern const IdemIndex refund_by_channel;	/* tenant_id, channel, account, channel_refund_no */

extern Refund *refund_look(IdemCall *call, Datum refund_no, IdemSight sight);
extern Refund *refund_look_at_channel(IdemCall *call, Datum channel, Datum account,
									  Datum channel_refund_no, IdemSight sight);
extern List *refund_look_all(IdemCall *call, Datum receipt_no);	/* as committed, and ours */
extern Refund *refund_lock(IdemCall *call, Datum refund_no);	/* NULL: none, or call->busy */
pg_noreturn extern void refund_not_found(Datum refund_no);

/* What of a receipt is not yet reserved for refunds nor disputed */
extern int64 refund_remainder(const Receipt *receipt);

extern bool refund_allows_act(const Refund *refund);	/* requested or processing */
extern bool refund_holds_reserve(const Refund *refund);

/*
 * Insert a refund, requested, of a locked receipt; its reserve is the caller's
 * to take.  Fills in the row's place.  false: the number is taken.
 */
extern bool refund_insert(IdemCall *call, Refund *refund);

/* Write back what may change of a locked refund, bump its version */
extern void refund_store(IdemCall *call, Refund *refund);
extern void refund_move(IdemCall *call, Refund *refund, RefundStatus to);

/* A refund of that much of a receipt, not yet written */
extern Refund *refund_of_receipt(const Receipt *receipt, Datum refund_no, int64 amount,
								 const char *cause, NullableDatum reason);


/* ---------- automatic refunds ---------- */

/* The automatic refund's number: A + receipt_no */
extern Datum refund_automatic_no(Datum receipt_no);
extern bool refund_is_automatic_no(Datum refund_no);	/* looks like one */

/* The automatic refund of a receipt, NULL if there is none */
extern Refund *refund_look_automatic(IdemCall *call, Datum receipt_no);

/* The same where only one that holds money counts: none does if nothing is reserved */
extern Refund *refund_look_reserved(IdemCall *call, const Receipt *receipt);

/*
 * Request the automatic refund of all that remains of a locked receipt: insert
 * the refund, take the reserve, hold it if the brake is on.  cause: late,
 * surplus, mismatch, orphan, cancel.  A receipt has one automatic refund: if it
 * was made before, that one is returned as it is now.  NULL if nothing remains
 * or the receipt makes no sense.  Names are unlocked on return.
 */
extern Refund *refund_request_automatic(IdemCall *call, Receipt *receipt, const char *cause, NullableDatum reason);


/* ---------- refund_settle.c ---------- */

/* What a channel says of a refund; whatever it did not say is NULL */
typedef struct RefundFact
{
	NullableDatum refund_no;	/* ours, or the number we do not know yet */
	NullableDatum payment_no;
	NullableDatum channel;
	NullableDatum account;
	NullableDatum trade_no;
	NullableDatum channel_refund_no;
	NullableDatum amount;		/* int8, minor units */
	NullableDatum currency;
	NullableDatum occurred_at;	/* timestamptz */
	const char *result;			/* succeeded, failed, closed, abnormal, timeout, reversed; or as it came */
	bool		cumulative;		/* amount is all that was refunded of the trade so far */
	bool		reversing;		/* a failure after success takes it back; else it is stale */
} RefundFact;

typedef struct RefundAnswer
{
	const char *outcome;		/* applied, duplicate, stale, kept, orphan */
	NullableDatum refund_no;	/* only while it may be acted on */
	NullableDatum receipt_no;
	NullableDatum payment_no;
	NullableDatum order_id;
	const char *status;			/* the refund's after the fact; NULL: unknown */
	int64		remainder;		/* of the receipt; meaningless without receipt_no */
} RefundAnswer;

/*
 * Record what became of a refund: what is told of one by name, in a sum, or
 * both is booked once.  The call is a fact, and holds no name; a transaction may
 * record several, one after the other.
 */
extern void refund_settle(IdemCall *call, const RefundFact *fact, RefundAnswer *answer);


/* ---------- refund_find.c ---------- */

/* The number of a sum that a channel reached without naming a refund, and its beginning */
extern char *refund_sum_prefix(const Receipt *receipt);
extern Datum refund_number_of_sum(const Receipt *receipt, int64 sum);

/* Does the fact agree with all that we know of this money? */
extern bool refund_fact_fits(const RefundFact *fact, const Receipt *receipt);

/* The money that a fact is about; NULL: unknown, or it could be several */
extern Receipt *refund_find_receipt(IdemCall *call, const RefundFact *fact, IdemSight sight);

/* The refund that a fact is about, by our number or the channel's; receipt: if known */
extern Refund *refund_find(IdemCall *call, const RefundFact *fact, const Receipt *receipt, IdemSight sight);

/* The number of a refund that is, or would be, adopted; NULL: the fact gives none */
extern NullableDatum refund_number_of(const RefundFact *fact, const Receipt *receipt);

#endif							/* IDEM_REFUND_H */
