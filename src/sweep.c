/*-------------------------------------------------------------------------
 * sweep.c
 *	  idem_sweep: take away what has run out, a little at a time.
 *
 * Nothing waits for the sweep: whoever asks for a thing looks at its time
 * himself.  So it may come late, and must never stand in the way.  It takes
 * rows in the order of an index that holds nothing but what may be swept,
 * leaves out what somebody has locked, and stops after max_rows of a kind; what
 * is left is for the next call.
 *
 * The statements are kept plans made while tables were empty, where the planner
 * thinks little of an index.  It is left no other way: no sort, no bitmap, no
 * sequential scan.
 *-------------------------------------------------------------------------
 */
#include "hook.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

/* A kind of thing that is swept: $1 is now, $2 how many at most */
typedef struct Sweep
{
	const char *what;
	IdemQuery	query;
} Sweep;

static Sweep sweeps[] = {
	/* finished requests whose answer needs no more to be replayed */
	{
		"requests",
		IDEM_QUERY("DELETE FROM @schema@.idem_request WHERE ctid = ANY (ARRAY("
				   "SELECT ctid FROM @schema@.idem_request"
				   " WHERE status <> 'started' AND expires_at <= $1"
				   " ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
				   TIMESTAMPTZOID, INT8OID)
	},
	/* uses of tokens that have expired since, and are no longer asked for */
	{
		"tokens",
		IDEM_QUERY("DELETE FROM @schema@.idem_token_used WHERE ctid = ANY (ARRAY("
				   "SELECT ctid FROM @schema@.idem_token_used"
				   " WHERE forget_at <= $1"
				   " ORDER BY forget_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
				   TIMESTAMPTZOID, INT8OID)
	}
};

/* Columns of the result */
enum
{
	SWEEP_WHAT, SWEEP_COUNT
};

static void
plan_by_index_alone(void)
{
	static const char *const others[] = {"enable_sort", "enable_bitmapscan"};

	for (int i = 0; i < (int) lengthof(others); i++)
		(void) set_config_option(others[i], "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * idem_sweep(max_rows) -> rows (what, count)
 *
 * Errors: 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_sweep);
Datum
idem_sweep(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	int64		max_rows = DatumGetInt32(idem_arg_required(call, 0).value);
	NullableDatum args[] = {
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		IDEM_VALUE(Int64GetDatum(max_rows))
	};

	if (max_rows < 1)
		idem_bad_argument(call, 0, "A sweep takes at least one row.");
	idem_begin_rows(call);
	idem_connect(call);
	plan_by_index_alone();
	for (int i = 0; i < (int) lengthof(sweeps); i++)
	{
		uint64		count;

		CHECK_FOR_INTERRUPTS();
		count = idem_run(call, &sweeps[i].query, args);
		idem_put_text(call, SWEEP_WHAT, sweeps[i].what);
		idem_put(call, SWEEP_COUNT, Int64GetDatum((int64) count));
		idem_emit(call);
	}

	/* they run when this call has left, with the settings of the caller */
	idem_put_text(call, SWEEP_WHAT, "hooks");
	idem_put(call, SWEEP_COUNT, Int64GetDatum(hook_note_due(call, max_rows)));
	idem_emit(call);
	return idem_leave_rows(call);
}
