/*-------------------------------------------------------------------------
 * refund_settle.h
 *	  What a channel's word means for a refund.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REFUND_SETTLE_H
#define IDEM_REFUND_SETTLE_H

#include "refund.h"

/* In the order of result_names */
typedef enum RefundResult
{
	RESULT_SUCCEEDED,
	RESULT_FAILED,
	RESULT_CLOSED,
	RESULT_ABNORMAL,
	RESULT_TIMEOUT,
	RESULT_REVERSED,
	RESULT_UNKNOWN
} RefundResult;

/* What a result means: an outcome without a move, or moves */
typedef struct RefundVerdict
{
	const char *outcome;
	bool		succeeds;		/* first to succeeded */
	bool		reverses;		/* then, or alone, to reversed */
	bool		fails;			/* to where the result leads */
	bool		asks_again;		/* the channel is to be asked at once */
} RefundVerdict;

extern RefundResult refund_result(const char *word);
extern bool refund_is_failure(RefundResult result);
extern RefundStatus refund_failed_status(RefundResult result);	/* where a failure leads */

/* Judge a result, which is known, of a refund as it stands */
extern RefundVerdict refund_judge(IdemCall *call, const Refund *refund, const RefundFact *fact, RefundResult result);
extern bool refund_is_move(const RefundVerdict *verdict);


/* ---------- refund_sum.c ---------- */

/*
 * What of the latest sum that was told is neither booked nor explained: what
 * has to be booked.  gap_told: once the sum of this fact is noted.
 */
extern int64 refund_sum_gap(IdemCall *call, const Receipt *receipt);
extern int64 refund_sum_gap_told(IdemCall *call, const RefundFact *fact, const Receipt *receipt);

/* Is the sum of this fact the latest?  Then note it, in a locked receipt. */
extern bool refund_sum_is_news(const RefundFact *fact, const Receipt *receipt);
extern void refund_sum_note(IdemCall *call, const RefundFact *fact, Receipt *receipt);

/* A free number for a nameless refund that makes the books reach a sum */
extern Datum refund_sum_number(IdemCall *call, const Receipt *receipt, int64 sum);

/*
 * How much of the nameless refunds a refund can be part of that nobody knows
 * and that is told by name; same: the one of just its amount, NULL if there is none.
 */
extern int64 refund_sum_nameless(IdemCall *call, const RefundFact *fact, RefundResult result,
								 const Receipt *receipt, Refund **same);

#endif							/* IDEM_REFUND_SETTLE_H */
