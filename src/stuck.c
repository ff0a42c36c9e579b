/*-------------------------------------------------------------------------
 * stuck.c
 *	  Whose rows a view may show.
 *
 * A view reads the tables with its owner's rights, whoever asks.  So each of
 * ours asks back, row by row, whether the caller may see the row's tenant.
 *-------------------------------------------------------------------------
 */
#include "access.h"

/*
 * idem_may_see(of_tenant) -> boolean
 *
 * Is the caller an auditor of this tenant?
 */
PG_FUNCTION_INFO_V1(idem_may_see);
Datum
idem_may_see(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	NullableDatum tenant_id = idem_arg(call, 0);
	bool		may = false;

	if (!tenant_id.isnull)
	{
		call->tenant_id = tenant_id.value;
		may = access_has(call, "auditor");
	}
	return idem_leave_value(call, BoolGetDatum(may));
}
