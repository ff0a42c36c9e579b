/*-------------------------------------------------------------------------
 * log_read.c
 *	  Read what a window of the log shows.
 *
 * A window is what one snapshot sees and an earlier one did not.  Its events
 * are found by the index on (slot, xid, seq): those of transactions that the
 * earlier snapshot knew as open, one by one, and those that began after it, as
 * one range.  Whether an entry belongs to the window is in the entry; only the
 * rows that are handed out are fetched, and whether they were committed is in
 * the row.
 *
 * The caller wants the first so many by seq.  Within one transaction the index
 * is in that order, so that one transaction with a million events costs no more
 * than one with a thousand: as soon as the wanted number is there and the next
 * entry lies behind it, the rest of that transaction is skipped; so is what
 * lies before the beginning.
 *
 * Candidates come in runs, ascending, one or some of each of the log's slots, so
 * that to merge the runs is the shortest way to put them in order.  Who takes the
 * events is given them as they lie in the log: copies of thousands, in memory that
 * is fresh each time, took a good part of the reading.
 *-------------------------------------------------------------------------
 */
#include "log_read.h"

#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"
#include "utils/xid8.h"

/* Index columns */
enum
{
	BY_SLOT = 1, BY_XID, BY_SEQ
};

/* An index is repositioned rather than read over more entries than that */
#define ENTRIES_A_JUMP 32

/* Transactions that began so little before the range are read with it */
#define XIDS_A_JUMP 64

/* Entries are collected so many at a time: each collecting begins anew */
#define LEAST_WANTED 1024
#define MOST_WANTED 10001

/* An entry of the index that belongs to the window */
typedef struct Candidate
{
	int64		seq;
	ItemPointerData tid;
	int16		slice;
} Candidate;

struct LogReader
{
	IdemCall   *call;
	Snapshot	opened;			/* of the scans, for no row's sake */
	LogTable	slices[LOG_SLICES];
	/* of the reading in hand: */
	int			first;			/* slices */
	int			last;
	const LogWindow *window;
	Snapshot	snapshot;		/* for rows: committed or not */
	int64		after;			/* entries up to here are done */
	int64		upto;			/* and those behind here are not asked for */
	int			wanted;
	int64		farthest;		/* as things stand, those behind here are not wanted */
	Candidate  *pool;
	Candidate  *spare;			/* of the same size */
	int			npool;
	int			room;			/* until it is settled */
};


/* ---------- open and close ---------- */

void
log_table_open(IdemCall *call, LogTable *open, const char *table, const char *index,
			   Snapshot snapshot, int nkeys)
{
	Oid			table_oid = get_relname_relid(table, call->house->nspoid);
	Oid			index_oid = get_relname_relid(index, call->house->nspoid);

	if (!OidIsValid(table_oid) || !OidIsValid(index_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" or its index does not exist in schema %s",
						table, call->house->schema),
				 errdetail("They belong to the extension idem.")));
	open->table = table_open(table_oid, AccessShareLock);
	open->index = index_open(index_oid, AccessShareLock);
	open->scan = idem_index_beginscan(open->table, open->index, snapshot, nkeys);
	open->scan->xs_want_itup = true;
	open->slot = table_slot_create(open->table, NULL);
}

/* Locks go at once: who empties a slice must not wait for who reads others */
void
log_table_close(LogTable *open)
{
	ExecDropSingleTupleTableSlot(open->slot);
	index_endscan(open->scan);
	index_close(open->index, AccessShareLock);
	table_close(open->table, AccessShareLock);
}

/* Open all slices, once for all that a call reads */
LogReader *
log_reader_open(IdemCall *call)
{
	LogReader  *reader = palloc0(sizeof(LogReader));

	reader->call = call;
	reader->opened = RegisterSnapshot(GetLatestSnapshot());
	reader->last = LOG_SLICES - 1;
	for (int n = 0; n < LOG_SLICES; n++)
		log_table_open(call, &reader->slices[n], log_slice_name("idem_outbox", n),
					   psprintf("idem_outbox_%d_slot_xid_seq_idx", n), reader->opened, BY_SEQ);
	return reader;
}

void
log_reader_close(LogReader *reader)
{
	for (int n = 0; n < LOG_SLICES; n++)
		log_table_close(&reader->slices[n]);
	UnregisterSnapshot(reader->opened);
	pfree(reader);
}


/* ---------- entries ---------- */

/* Where the ascending run ends that begins here */
static Candidate *
end_of_run(Candidate *at, const Candidate *end)
{
	if (at < end)
		at++;
	while (at < end && at[-1].seq <= at->seq)
		at++;
	return at;
}

/* Merge a run and the one behind it */
static void
merge(const Candidate *a, const Candidate *b, const Candidate *end, Candidate *into)
{
	const Candidate *middle = b;

	while (a < middle && b < end)
		*into++ = a->seq <= b->seq ? *a++ : *b++;
	while (a < middle)
		*into++ = *a++;
	while (b < end)
		*into++ = *b++;
}

/*
 * Put the pool in order, by merging neighbours until one run is left: it is made
 * of a few long runs, one or some of each of the log's slots.
 */
static void
sort_pool(LogReader *reader)
{
	int			runs;

	do
	{
		Candidate  *end = reader->pool + reader->npool;
		Candidate  *into = reader->spare;
		Candidate  *at = reader->pool;

		for (runs = 0; at < end; runs++)
		{
			Candidate  *middle = end_of_run(at, end);
			Candidate  *next = end_of_run(middle, end);

			merge(at, middle, next, into);
			into += next - at;
			at = next;
		}
		into = reader->pool;
		reader->pool = reader->spare;
		reader->spare = into;
	} while (runs > 1);
}

/* Put the pool in order; of more than are wanted, the nearest stay */
static void
settle(LogReader *reader)
{
	sort_pool(reader);
	if (reader->npool < reader->wanted)
		return;
	reader->npool = reader->wanted;
	reader->farthest = reader->pool[reader->wanted - 1].seq;
}

/* Does this entry, and all behind it of its transaction, lie too far away? */
static bool
is_too_far(const LogReader *reader, int64 seq)
{
	return seq > reader->farthest;
}

/*
 * Keep an entry.  The pool is settled when it has as many as are wanted, which
 * tells how far is too far, and from then on when it has twice as many.
 */
static void
keep(LogReader *reader, int n, ItemPointer tid, int64 seq)
{
	reader->pool[reader->npool++] = (Candidate) {seq, *tid, n};
	if (reader->npool < reader->room)
		return;
	settle(reader);
	reader->room = 2 * reader->wanted;
}

static int64
entry_seq(LogTable *slice)
{
	bool		isnull;

	return DatumGetInt64(index_getattr(slice->scan->xs_itup, BY_SEQ,
									   RelationGetDescr(slice->index), &isnull));
}

static uint64
entry_xid(LogTable *slice)
{
	bool		isnull;

	return U64FromFullTransactionId(DatumGetFullTransactionId(
									index_getattr(slice->scan->xs_itup, BY_XID,
												  RelationGetDescr(slice->index), &isnull)));
}

/* The entries of one transaction of the window that are not yet done */
static void
collect_transaction(LogReader *reader, int n, int log_slot, uint64 xid)
{
	LogTable  *slice = &reader->slices[n];
	ScanKeyData keys[BY_SEQ];
	ItemPointer tid;

	ScanKeyInit(&keys[0], BY_SLOT, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(log_slot));
	ScanKeyInit(&keys[1], BY_XID, BTEqualStrategyNumber, F_XID8EQ,
				FullTransactionIdGetDatum(FullTransactionIdFromU64(xid)));
	ScanKeyInit(&keys[2], BY_SEQ, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(reader->after));
	index_rescan(slice->scan, keys, BY_SEQ, NULL, 0);
	while ((tid = index_getnext_tid(slice->scan, ForwardScanDirection)) != NULL)
	{
		int64		seq = entry_seq(slice);

		if (is_too_far(reader, seq))
			return;
		keep(reader, n, tid, seq);
	}
}

/* Begin with transactions from this number on, and end before that one */
static void
position_range(LogTable *slice, int log_slot, uint64 from, uint64 to)
{
	ScanKeyData keys[BY_SEQ];

	ScanKeyInit(&keys[0], BY_SLOT, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(log_slot));
	ScanKeyInit(&keys[1], BY_XID, BTGreaterEqualStrategyNumber, F_XID8GE,
			FullTransactionIdGetDatum(FullTransactionIdFromU64(from)));
	ScanKeyInit(&keys[2], BY_XID, BTLessStrategyNumber, F_XID8LT,
			FullTransactionIdGetDatum(FullTransactionIdFromU64(to)));
	index_rescan(slice->scan, keys, BY_SEQ, NULL, 0);
}

/*
 * The entries of the window in a range of transactions.  A long run of entries
 * of one transaction that are of no use is jumped over.
 */
static void
collect_range(LogReader *reader, int n, int log_slot, uint64 from, uint64 to)
{
	const LogWindow *window = reader->window;
	LogTable  *slice = &reader->slices[n];
	uint64		last_xid = 0;
	int			useless = 0;
	ItemPointer tid;

	position_range(slice, log_slot, from, to);
	while ((tid = index_getnext_tid(slice->scan, ForwardScanDirection)) != NULL)
	{
		uint64		xid = entry_xid(slice);
		int64		seq = entry_seq(slice);
		bool		inside = log_sees(window->hi, xid) && !log_sees(window->lo, xid);

		if (xid != last_xid)
			useless = 0;
		last_xid = xid;
		if (inside && seq > reader->after && !is_too_far(reader, seq))
		{
			keep(reader, n, tid, seq);
			continue;
		}
		if (++useless <= ENTRIES_A_JUMP)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (inside && seq <= reader->after)
			collect_transaction(reader, n, log_slot, xid);
		position_range(slice, log_slot, xid + 1, to);
		useless = 0;
	}
}

/* The entries of the window in one of the log's slots, in one slice */
static void
collect_slot(LogReader *reader, int n, int log_slot)
{
	const LogWindow *window = reader->window;
	uint64		from = window->lo->xmax;
	int			open = window->lo->nxip;

	while (open > 0 && from - window->lo->xip[open - 1] <= XIDS_A_JUMP)
		from = window->lo->xip[--open];
	while (open-- > 0)
	{
		if (log_sees(window->hi, window->lo->xip[open]))
			collect_transaction(reader, n, log_slot, window->lo->xip[open]);
	}
	collect_range(reader, n, log_slot, from, window->hi->xmax);
}

/* The nearest entries of the window, ascending, into the pool */
static void
collect(LogReader *reader)
{
	reader->npool = 0;
	reader->room = reader->wanted;
	reader->farthest = reader->upto;
	for (int n = reader->first; n <= reader->last; n++)
	{
		/* asked each time: the first event may just have been committed there */
		if (RelationGetNumberOfBlocks(reader->slices[n].table) == 0)
			continue;
		for (int slot = reader->window->slot; slot < LOG_SLOTS; slot += reader->window->slots)
			collect_slot(reader, n, slot);
	}
	settle(reader);
}


/* ---------- rows ---------- */

/* Is the event of one of the types that are wanted? */
static bool
is_wanted(const LogWindow *window, const LogEvent *event)
{
	ListCell   *cell;

	foreach(cell, window->types)
	{
		if (idem_same_text(PointerGetDatum(lfirst(cell)), event->columns[EVENT_TYPE - 1].value))
			return true;
	}
	return window->types == NIL;
}

/* The event in the slot, as it lies there */
static void
read_event(TupleTableSlot *slot, LogEvent *event)
{
	slot_getsomeattrs(slot, EVENT_SEQ);
	for (int i = 0; i < EVENT_SEQ; i++)
		event->columns[i] = (NullableDatum) {slot->tts_values[i], slot->tts_isnull[i]};
	event->seq = DatumGetInt64(event->columns[EVENT_SEQ - 1].value);
}

/* What lies out of line is brought in, since its slice may be emptied; and all is counted */
static void
bring_in(LogEvent *event)
{
	event->bytes = 0;
	for (int i = EVENT_TENANT_ID - 1; i < EVENT_HEADERS; i++)
	{
		struct varlena *data = (struct varlena *) DatumGetPointer(event->columns[i].value);

		if (event->columns[i].isnull)
			continue;
		if (VARATT_IS_EXTERNAL(data) || VARATT_IS_COMPRESSED(data))
		{
			data = pg_detoast_datum_packed(data);
			event->columns[i].value = PointerGetDatum(data);
		}
		event->bytes += VARSIZE_ANY(data);
	}
}

/* A copy in one piece of memory: there may be thousands */
LogEvent *
log_event_copy(const LogEvent *event)
{
	/* each column begins where any type may */
	LogEvent   *copy = palloc(sizeof(LogEvent) + UUID_LEN + event->bytes + EVENT_SEQ * MAXIMUM_ALIGNOF);
	char	   *room = (char *) copy + MAXALIGN(sizeof(LogEvent));

	*copy = *event;
	for (int i = EVENT_ID - 1; i < EVENT_HEADERS; i++)
	{
		char	   *data = DatumGetPointer(event->columns[i].value);
		Size		size = i == EVENT_ID - 1 ? UUID_LEN : event->columns[i].isnull ? 0 : VARSIZE_ANY(data);

		memcpy(room, data, size);
		copy->columns[i].value = PointerGetDatum(room);
		room += MAXALIGN(size);
	}
	return copy;
}

void
log_take_copy(void *taker, LogEvent *event)
{
	List	  **events = taker;

	*events = lappend(*events, log_event_copy(event));
}

/*
 * The event of an entry; false if it was never committed, or is not wanted.  An
 * entry may outlive its row, and its place be given to another.  Rows are
 * fetched as the index scan would do it, which keeps the last page in hand.
 */
static bool
fetch(LogReader *reader, const Candidate *candidate, LogEvent *event)
{
	LogTable   *slice = &reader->slices[candidate->slice];
	ItemPointerData tid = candidate->tid;
	bool		again = false;

	if (!table_index_fetch_tuple(slice->scan->xs_heapfetch, &tid, reader->snapshot, slice->slot,
								 &again, NULL))
		return false;
	read_event(slice->slot, event);
	if (event->seq != candidate->seq || !is_wanted(reader->window, event))
		return false;
	bring_in(event);
	return true;
}

/* Take the rows of the entries into a batch; false: there is no room for more */
static bool
take_rows(LogReader *reader, const LogLimits *limits, LogTake take, void *taker, LogBatch *batch)
{
	for (int i = 0; i < reader->npool; i++)
	{
		LogEvent	event = {.attempt = 0};

		CHECK_FOR_INTERRUPTS();
		if (batch->events >= limits->events)
			return false;
		if (fetch(reader, &reader->pool[i], &event))
		{
			batch->full = batch->bytes + event.bytes > limits->bytes &&
				(batch->events > 0 || !limits->one_at_least);
			if (batch->full)
				return false;
			take(taker, &event);
			batch->events++;
			batch->bytes += event.bytes;
		}
		batch->upto = reader->pool[i].seq;
		batch->examined++;
	}
	return true;
}

/*
 * The first events of a window within the limits.  The snapshot that tells
 * what was committed is taken here, and so is later than the window.
 */
LogBatch
log_read(LogReader *reader, const LogWindow *window, const LogLimits *limits, LogTake take, void *taker)
{
	LogBatch	batch = {.upto = limits->after};
	bool		room;

	reader->window = window;
	reader->after = limits->after;
	reader->upto = limits->upto;
	reader->wanted = Min(Max(limits->events, LEAST_WANTED) + 1, MOST_WANTED);
	reader->snapshot = RegisterSnapshot(GetLatestSnapshot());
	reader->pool = palloc(sizeof(Candidate) * 2 * reader->wanted);
	reader->spare = palloc(sizeof(Candidate) * 2 * reader->wanted);

	do
	{
		collect(reader);
		room = take_rows(reader, limits, take, taker, &batch);
		batch.more = !room || reader->npool == reader->wanted;
		reader->after = batch.upto;
	} while (batch.more && room && batch.examined < limits->examine);

	pfree(reader->pool);
	pfree(reader->spare);
	UnregisterSnapshot(reader->snapshot);
	return batch;
}

static void
take_nothing(void *taker pg_attribute_unused(), LogEvent *event pg_attribute_unused())
{
}

bool
log_slice_has(LogReader *reader, int slice, const LogWindow *window, int64 after)
{
	LogLimits	limits = {
		.after = after, .upto = PG_INT64_MAX, .events = 1, .bytes = PG_INT64_MAX, .examine = INT_MAX
	};
	LogBatch	batch;

	reader->first = reader->last = slice;
	batch = log_read(reader, window, &limits, take_nothing, NULL);
	reader->first = 0;
	reader->last = LOG_SLICES - 1;
	return batch.events > 0;
}
