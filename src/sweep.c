/*-------------------------------------------------------------------------
 * sweep.c
 *	  idem_sweep: take away what has run out, a little at a time.
 *
 * Nothing waits for the sweep: whoever asks for a thing looks at its time
 * himself.  So it may come late, and must never stand in the way.  It takes
 * rows by an index that begins with the time from which they may go, leaves out
 * what somebody has locked, and stops after max_rows of a kind; what is left is
 * for the next call.
 *
 * The statements are kept plans made while tables were empty, where the planner
 * thinks little of an index.  It is left no other way: no sort, no bitmap, no
 * sequential scan.
 *-------------------------------------------------------------------------
 */
#include "call.h"
#include "hook.h"
#include "ring.h"
#include "token.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

/* A kind of thing that is swept, at most $2 of it */
typedef struct Sweep
{
	const char *what;
	Datum		(*bound) (TimestampTz now); /* $1: up to where rows have outlived their use */
	IdemQuery	query;
} Sweep;

/* Where the rows themselves say until when */
static Datum
until_now(TimestampTz now)
{
	return TimestampTzGetDatum(now);
}

static Datum
inbox_retention_ago(TimestampTz now)
{
	return TimestampTzGetDatum(now - idem_inbox_retention_s * USECS_PER_SEC);
}

static Sweep sweeps[] = {
	/* finished requests whose answer needs no more to be replayed */
	{
		"requests", until_now,
		IDEM_QUERY("DELETE FROM @schema@.idem_request WHERE ctid = ANY (ARRAY("
				   "SELECT ctid FROM @schema@.idem_request"
				   " WHERE status <> 'started' AND expires_at <= $1"
				   " ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
				   TIMESTAMPTZOID, INT8OID)
	},
	/* uses of tokens that have expired since, and are no longer asked for */
	{
		"tokens", token_oldest_digest,
		IDEM_QUERY("DELETE FROM @schema@.idem_token_used WHERE ctid = ANY (ARRAY("
				   "SELECT ctid FROM @schema@.idem_token_used"
				   " WHERE digest < $1"
				   " ORDER BY digest LIMIT $2 FOR UPDATE SKIP LOCKED))",
				   BYTEAOID, INT8OID)
	},
	/* messages, but none that an event which may come again could have brought */
	{
		"messages", inbox_retention_ago,
		IDEM_QUERY("DELETE FROM @schema@.idem_inbox WHERE ctid = ANY (ARRAY("
				   "SELECT ctid FROM @schema@.idem_inbox"
				   " WHERE accepted_at <= least($1,"
				   " (SELECT min(created_at) FROM @schema@.idem_parked_event),"
				   " (SELECT min(created_at) FROM @schema@.idem_dead_event))"
				   " ORDER BY accepted_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
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
		idem_pin(others[i], "off");
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

	if (max_rows < 1)
		idem_bad_argument(call, 0, "A sweep takes at least one row.");
	idem_begin_rows(call);
	idem_connect(call);
	plan_by_index_alone();
	for (int i = 0; i < (int) lengthof(sweeps); i++)
	{
		NullableDatum args[] = {
			IDEM_VALUE(sweeps[i].bound(call->now)),
			IDEM_VALUE(Int64GetDatum(max_rows))
		};
		uint64		count;

		CHECK_FOR_INTERRUPTS();
		count = idem_run(call, &sweeps[i].query, args);
		idem_put_text(call, SWEEP_WHAT, sweeps[i].what);
		idem_put(call, SWEEP_COUNT, Int64GetDatum((int64) count));
		idem_emit(call);
	}
	idem_put_text(call, SWEEP_WHAT, "outbox");
	idem_put(call, SWEEP_COUNT, Int64GetDatum(ring_turn(call)));
	idem_emit(call);

	/* they run when this call has left, with the settings of the caller */
	idem_put_text(call, SWEEP_WHAT, "hooks");
	idem_put(call, SWEEP_COUNT, Int64GetDatum(hook_note_due(call, max_rows)));
	idem_emit(call);
	return idem_leave_rows(call);
}
