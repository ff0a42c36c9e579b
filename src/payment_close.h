/*-------------------------------------------------------------------------
 * payment_close.h
 *	  Giving up a payment.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PAYMENT_CLOSE_H
#define IDEM_PAYMENT_CLOSE_H

#include "payment.h"

/*
 * What may be said of a payment without locking it, by status; NULL: lock it
 * and judge.  Said from what is committed now, not from an old snapshot: who
 * hears "refused" or "already closing" acts on it.
 */
typedef const char *const StatusOutcomes[PAYMENT_CLOSED + 1];

/*
 * Move a locked pending payment to closing, for the caller to close it at the
 * channel; reconciliation does it if he never comes back.
 */
extern void payment_begin_closing(IdemCall *call, Payment *payment);

/*
 * Give up a locked pending or closing payment: closed, if no channel can know
 * of it, else closing.
 */
extern void payment_give_up(IdemCall *call, Payment *payment);

/* Leave with the row of type idem_payment_result; payment may be NULL */
extern Datum payment_leave(IdemCall *call, const Payment *payment, const char *outcome);

/* When to look once more at a payment that ends now */
extern NullableDatum payment_last_check_at(IdemCall *call, const Payment *payment);


/* ---------- payment_end.c ---------- */

/* What is answered to a channel that says a payment has ended unpaid */
typedef struct PaymentAnswer
{
	const char *outcome;
	const Payment *payment;		/* as it is now; NULL: unknown */
} PaymentAnswer;

/*
 * The payment that a channel speaks of, locked.  NULL: there is none, not even
 * in a transaction that is still open.
 */
extern Payment *payment_lock_told(IdemCall *call, Datum payment_no);

/* A fact: that payment, or an unknown one, failed for good (idem_fail_payment) */
extern void payment_fail(IdemCall *call, Datum payment_no, Payment *payment, PaymentAnswer *answer);

/* A fact: the channel has closed it.  Outcomes: closed, duplicate, stale, orphan. */
extern void payment_shut(IdemCall *call, Datum payment_no, Payment *payment, PaymentAnswer *answer);

#endif							/* IDEM_PAYMENT_CLOSE_H */
