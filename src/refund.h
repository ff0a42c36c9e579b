/*-------------------------------------------------------------------------
 * refund.h
 *	  Refunds: money that goes back.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REFUND_H
#define IDEM_REFUND_H

#include "receipt.h"

typedef struct Refund
{
	ItemPointerData tid;
	Datum		refund_no;
	Datum		receipt_no;
	int64		amount;
	Datum		status;			/* text */
} Refund;

extern const IdemIndex refund_by_no;		/* tenant_id, refund_no */

/* What of a receipt is not yet reserved for refunds nor disputed */
extern int64 refund_remainder(const Receipt *receipt);

/* The automatic refund's number: A + receipt_no */
extern Datum refund_automatic_no(Datum receipt_no);

/* The automatic refund of a receipt, NULL if there is none */
extern Refund *refund_look_automatic(IdemCall *call, Datum receipt_no);
extern bool refund_allows_act(const Refund *refund);	/* requested or processing */

/*
 * Request the automatic refund of all that remains of a locked receipt: insert
 * the refund, take the reserve.  cause: late, surplus, mismatch, orphan,
 * cancel.  A receipt has one automatic refund: if it was made before, that one
 * is returned as it is now.  NULL if nothing remains or the receipt makes no
 * sense.
 */
extern Refund *refund_request_automatic(IdemCall *call, Receipt *receipt, const char *cause, NullableDatum reason);

#endif							/* IDEM_REFUND_H */
