/*-------------------------------------------------------------------------
 * dispute.c
 *	  Disputes: money that a bank takes back.
 *-------------------------------------------------------------------------
 */
#include "dispute.h"

void
dispute_record(IdemCall *call, const DisputeFact *fact, DisputeAnswer *answer)
{
	memset(answer, 0, sizeof(DisputeAnswer));
	elog(ERROR, "disputes cannot be recorded yet, not even as \"%s\" by %s", fact->stage,
		 NameStr(call->function->name));
}
