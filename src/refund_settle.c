/*-------------------------------------------------------------------------
 * refund_settle.c
 *	  What became of a refund.
 *-------------------------------------------------------------------------
 */
#include "refund.h"

void
refund_settle(IdemCall *call, const RefundFact *fact, RefundAnswer *answer)
{
	memset(answer, 0, sizeof(RefundAnswer));
	elog(ERROR, "refunds cannot be settled yet, not even as \"%s\" by %s", fact->result,
		 NameStr(call->function->name));
}
