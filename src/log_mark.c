/*-------------------------------------------------------------------------
 * log_mark.c
 *	  Marks in the log: what was committed when an event was written.
 *
 * A reader who is far behind needs a place to stop that is not now: else each
 * of his steps would look through all that he has before him.  A snapshot of
 * long ago cannot be taken any more.  So now and then a writer leaves one.  It
 * counts its own transaction as open; what it says is true whether that commits
 * or not, but only a mark that was committed is found.
 *
 * Marks are read by their index and not by a statement, whose lock would stay
 * until the reader's transaction ends and keep the slice from being emptied.
 *-------------------------------------------------------------------------
 */
#include "log_read.h"

#include "access/relscan.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

/* Of marks behind a point, look at no more than so many that do not follow it */
#define MARKS_A_LOOK 64

/* Columns of idem_outbox_mark */
enum
{
	MARK_SEQ = 1, MARK_SEEN, MARK_AT, MARK_CLUSTER, MARK_SLICE, MARK_NATTS = MARK_SLICE
};

static IdemTable marks = {
	"idem_outbox_mark", MARK_NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_outbox_mark (seq, seen, at, cluster, slice)"
			   " VALUES ($1, $2, $3, $4, $5)",
			   INT8OID, PG_SNAPSHOTOID, TIMESTAMPTZOID, INT8OID, INT2OID)
};

static IdemQuery select_mark_at = IDEM_QUERY(
	"SELECT seq, seen FROM @schema@.idem_outbox_mark"
	" WHERE at <= $1 AND cluster = $2 ORDER BY seq DESC LIMIT 1",
	TIMESTAMPTZOID, INT8OID);


/* Leave a mark.  The clock is read last: what it sees was committed by then. */
void
log_leave_mark(FunctionCallInfo fcinfo, int64 seq, int slice)
{
	Datum		seen = log_snapshot_write(log_snapshot_now());
	NullableDatum row[] = {
		IDEM_VALUE(Int64GetDatum(seq)),
		IDEM_VALUE(seen),
		IDEM_VALUE(TimestampTzGetDatum(GetCurrentTimestamp())),
		IDEM_VALUE(Int64GetDatum((int64) GetSystemIdentifier())),
		IDEM_VALUE(Int16GetDatum((int16) slice))
	};

	idem_append_to(fcinfo, &marks, log_slice_name(marks.table, slice), row);
}

/* Is this one of this cluster's, and behind the point?  Then take it. */
static bool
take_mark(TupleTableSlot *row, const LogPoint *after, LogPoint *mark)
{
	bool		isnull;
	LogSnapshot *seen;

	if (DatumGetInt64(slot_getattr(row, MARK_CLUSTER, &isnull)) != (int64) GetSystemIdentifier())
		return false;
	seen = log_snapshot_read(slot_getattr(row, MARK_SEEN, &isnull));
	if (!log_follows(seen, after->seen))
		return false;
	mark->seq = DatumGetInt64(slot_getattr(row, MARK_SEQ, &isnull));
	mark->seen = seen;
	return true;
}

/* The first such mark of a slice with a greater number than seq, and a smaller one than *mark */
static bool
next_in_slice(IdemCall *call, int slice, const LogPoint *after, int64 seq, LogPoint *mark)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	LogTable	open;
	ScanKeyData keys[2];
	bool		found = false;
	int			nkeys = mark->seen == NULL ? 1 : 2;

	log_table_open(call, &open, log_slice_name(marks.table, slice),
				   psprintf("idem_outbox_mark_%d_seq_idx", slice), snapshot, nkeys);
	ScanKeyInit(&keys[0], 1, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(seq));
	ScanKeyInit(&keys[1], 1, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(mark->seq));
	index_rescan(open.scan, keys, nkeys, NULL, 0);
	for (int i = 0; !found && i < MARKS_A_LOOK; i++)
	{
		if (!index_getnext_slot(open.scan, ForwardScanDirection, open.slot))
			break;
		found = take_mark(open.slot, after, mark);
	}
	log_table_close(&open);
	UnregisterSnapshot(snapshot);
	return found;
}

bool
log_next_mark(IdemCall *call, const LogPoint *after, int64 seq, LogPoint *mark)
{
	mark->seen = NULL;
	for (int slice = 0; slice < LOG_SLICES; slice++)
		(void) next_in_slice(call, slice, after, seq, mark);
	return mark->seen != NULL;
}

bool
log_mark_at(IdemCall *call, TimestampTz at, LogPoint *mark)
{
	NullableDatum args[] = {
		IDEM_VALUE(TimestampTzGetDatum(at)),
		IDEM_VALUE(Int64GetDatum((int64) GetSystemIdentifier()))
	};

	if (idem_run(call, &select_mark_at, args) == 0)
		return false;
	mark->seq = DatumGetInt64(idem_result(call, 0, 1).value);
	mark->seen = log_snapshot_read(idem_result(call, 0, 2).value);
	return true;
}
