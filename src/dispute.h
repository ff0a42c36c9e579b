/*-------------------------------------------------------------------------
 * dispute.h
 *	  Disputes: money that a bank takes back.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DISPUTE_H
#define IDEM_DISPUTE_H

#include "receipt.h"

/* What a channel says of a dispute; whatever it did not say is NULL */
typedef struct DisputeFact
{
	NullableDatum channel;
	NullableDatum account;
	NullableDatum trade_no;
	NullableDatum dispute_no;
	NullableDatum amount;		/* int8, minor units */
	NullableDatum currency;
	NullableDatum occurred_at;	/* timestamptz */
	const char *stage;			/* opened, won, lost; or as it came */
} DisputeFact;

typedef struct DisputeAnswer
{
	const char *outcome;		/* applied, duplicate, stale, kept, orphan */
	NullableDatum receipt_no;
	NullableDatum payment_no;
	NullableDatum order_id;
	const char *stage;			/* the dispute's after the fact; NULL: unknown */
	int64		remainder;		/* of the receipt; meaningless without receipt_no */
} DisputeAnswer;

/* Record what became of a dispute.  The call is a fact, and holds no name. */
extern void dispute_record(IdemCall *call, const DisputeFact *fact, DisputeAnswer *answer);

#endif							/* IDEM_DISPUTE_H */
