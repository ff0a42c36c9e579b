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

#endif							/* IDEM_REFUND_SETTLE_H */
