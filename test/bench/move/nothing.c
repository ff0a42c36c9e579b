/*-------------------------------------------------------------------------
 * nothing.c
 *	  A trigger that does nothing, BEFORE or AFTER.
 *
 * What it costs is what PostgreSQL takes for firing any trigger: the lock of
 * the row, the queue of AFTER events, the second look at both rows.  What a
 * guard costs beyond it is the guard's own.
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(nothing);
Datum
nothing(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	return PointerGetDatum(TRIGGER_FIRED_BEFORE(data->tg_event) ? data->tg_newtuple : NULL);
}
