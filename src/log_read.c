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
 *-------------------------------------------------------------------------
 */
#include "log_read.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "lib/binaryheap.h"
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
#define LEAST_WANTED 256
#define MOST_WANTED 10001

/* An entry of the index that belongs to the window */
typedef struct Candidate
{
	int64		seq;
	ItemPointerData tid;
	int			slice;
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
	binaryheap *nearest;		/* of those in the pool; the greatest seq on top */
	Candidate  *pool;
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

/* The greatest first */
static int
compare_candidates(Datum a, Datum b, void *arg pg_attribute_unused())
{
	int64		x = ((Candidate *) DatumGetPointer(a))->seq;
	int64		y = ((Candidate *) DatumGetPointer(b))->seq;

	return x < y ? -1 : x > y ? 1 : 0;
}

static bool
is_full(const LogReader *reader)
{
	return reader->nearest->bh_size >= reader->wanted;
}

static int64
farthest(LogReader *reader)
{
	return ((Candidate *) DatumGetPointer(binaryheap_first(reader->nearest)))->seq;
}

/* Does this entry, and all behind it of its transaction, lie too far away? */
static bool
is_too_far(LogReader *reader, int64 seq)
{
	return seq > reader->upto || (is_full(reader) && seq > farthest(reader));
}

/* Keep an entry, in place of the farthest if there are enough */
static void
keep(LogReader *reader, int n, ItemPointer tid, int64 seq)
{
	Candidate  *candidate;

	if (is_full(reader))
		candidate = (Candidate *) DatumGetPointer(binaryheap_first(reader->nearest));
	else
		candidate = &reader->pool[reader->nearest->bh_size];
	candidate->seq = seq;
	candidate->tid = *tid;
	candidate->slice = n;
	if (is_full(reader))
		binaryheap_replace_first(reader->nearest, PointerGetDatum(candidate));
	else
		binaryheap_add(reader->nearest, PointerGetDatum(candidate));
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

/* The nearest entries of the window, ascending; how many, into *ncandidates */
static Candidate **
collect(LogReader *reader, int *ncandidates)
{
	Candidate **candidates;

	binaryheap_reset(reader->nearest);
	for (int n = reader->first; n <= reader->last; n++)
	{
		/* asked each time: the first event may just have been committed there */
		if (RelationGetNumberOfBlocks(reader->slices[n].table) == 0)
			continue;
		for (int slot = reader->window->slot; slot < LOG_SLOTS; slot += reader->window->slots)
			collect_slot(reader, n, slot);
	}
	*ncandidates = reader->nearest->bh_size;
	candidates = palloc(sizeof(Candidate *) * Max(*ncandidates, 1));
	for (int i = *ncandidates - 1; i >= 0; i--)
		candidates[i] = (Candidate *) DatumGetPointer(binaryheap_remove_first(reader->nearest));
	return candidates;
}


/* ---------- rows ---------- */

/* The types that are wanted, by the row in the slot */
static bool
is_wanted(const LogWindow *window, TupleTableSlot *slot)
{
	bool		isnull;
	ListCell   *cell;

	foreach(cell, window->types)
	{
		if (idem_same_text(PointerGetDatum(lfirst(cell)), slot_getattr(slot, EVENT_TYPE, &isnull)))
			return true;
	}
	return window->types == NIL;
}

/* How many bytes the event's own data has */
static int64
bytes_of(const LogEvent *event)
{
	int64		bytes = 0;

	for (int attnum = EVENT_TENANT_ID; attnum <= EVENT_HEADERS; attnum++)
	{
		if (!event->columns[attnum - 1].isnull)
			bytes += VARSIZE_ANY(DatumGetPointer(event->columns[attnum - 1].value));
	}
	return bytes;
}

/*
 * A copy of the event in the slot, in one piece: there may be thousands.  What
 * lies out of line is brought in, since its slice may be emptied.
 */
static LogEvent *
copy_event(TupleTableSlot *slot)
{
	LogEvent	here;
	LogEvent   *event;
	char	   *room;

	slot_getsomeattrs(slot, EVENT_SEQ);
	for (int i = 0; i < EVENT_SEQ; i++)
		here.columns[i] = (NullableDatum) {slot->tts_values[i], slot->tts_isnull[i]};
	for (int i = EVENT_TENANT_ID - 1; i < EVENT_HEADERS; i++)
	{
		if (!here.columns[i].isnull)
			here.columns[i].value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(here.columns[i].value));
	}

	/* each begins where any type may */
	event = palloc(sizeof(LogEvent) + UUID_LEN + bytes_of(&here) + EVENT_SEQ * MAXIMUM_ALIGNOF);
	*event = here;
	event->seq = DatumGetInt64(here.columns[EVENT_SEQ - 1].value);
	event->parked = event->beyond = false;
	room = (char *) event + MAXALIGN(sizeof(LogEvent));
	for (int i = EVENT_ID - 1; i < EVENT_HEADERS; i++)
	{
		char	   *data = DatumGetPointer(here.columns[i].value);
		Size		size = i == EVENT_ID - 1 ? UUID_LEN : here.columns[i].isnull ? 0 : VARSIZE_ANY(data);

		memcpy(room, data, size);
		event->columns[i].value = PointerGetDatum(room);
		room += MAXALIGN(size);
	}
	return event;
}

/*
 * The event of an entry; NULL if it was never committed, or is not wanted.  An
 * entry may outlive its row, and its place be given to another.  Rows are
 * fetched as the index scan would do it, which keeps the last page in hand.
 */
static LogEvent *
fetch(LogReader *reader, const Candidate *candidate)
{
	LogTable   *slice = &reader->slices[candidate->slice];
	ItemPointerData tid = candidate->tid;
	LogEvent   *event = NULL;
	bool		again = false;
	bool		isnull;

	if (!table_index_fetch_tuple(slice->scan->xs_heapfetch, &tid, reader->snapshot, slice->slot,
								 &again, NULL))
		return NULL;
	if (DatumGetInt64(slot_getattr(slice->slot, EVENT_SEQ, &isnull)) == candidate->seq &&
		is_wanted(reader->window, slice->slot))
		event = copy_event(slice->slot);
	return event;
}

/* Add the rows of some entries to a batch; false: there is no room for more */
static bool
add_rows(LogReader *reader, const LogLimits *limits, Candidate **candidates, int ncandidates,
		 LogBatch *batch)
{
	for (int i = 0; i < ncandidates; i++)
	{
		LogEvent   *event;

		CHECK_FOR_INTERRUPTS();
		if (list_length(batch->events) >= limits->events)
			return false;
		event = fetch(reader, candidates[i]);
		if (event != NULL)
		{
			int64		bytes = bytes_of(event);

			batch->full = batch->bytes + bytes > limits->bytes &&
				(batch->events != NIL || !limits->one_at_least);
			if (batch->full)
				return false;
			batch->events = lappend(batch->events, event);
			batch->bytes += bytes;
		}
		batch->upto = candidates[i]->seq;
		batch->examined++;
	}
	return true;
}

/*
 * The first events of a window within the limits.  The snapshot that tells
 * what was committed is taken here, and so is later than the window.
 */
LogBatch
log_read(LogReader *reader, const LogWindow *window, const LogLimits *limits)
{
	LogBatch	batch = {NIL, 0, limits->after, 0, false, false};
	bool		room;

	reader->window = window;
	reader->after = limits->after;
	reader->upto = limits->upto;
	reader->wanted = Min(Max(limits->events, LEAST_WANTED) + 1, MOST_WANTED);
	reader->snapshot = RegisterSnapshot(GetLatestSnapshot());
	reader->nearest = binaryheap_allocate(reader->wanted, compare_candidates, NULL);
	reader->pool = palloc(sizeof(Candidate) * reader->wanted);

	do
	{
		int			ncandidates;
		Candidate **candidates = collect(reader, &ncandidates);

		room = add_rows(reader, limits, candidates, ncandidates, &batch);
		batch.more = !room || ncandidates == reader->wanted;
		reader->after = batch.upto;
		pfree(candidates);
	} while (batch.more && room && batch.examined < limits->examine);

	pfree(reader->pool);
	binaryheap_free(reader->nearest);
	UnregisterSnapshot(reader->snapshot);
	return batch;
}

bool
log_slice_has(LogReader *reader, int slice, const LogWindow *window, int64 after)
{
	LogLimits	limits = {
		.after = after, .upto = PG_INT64_MAX, .events = 1, .bytes = PG_INT64_MAX, .examine = INT_MAX
	};
	LogBatch	batch;

	reader->first = reader->last = slice;
	batch = log_read(reader, window, &limits);
	reader->first = 0;
	reader->last = LOG_SLICES - 1;
	return batch.events != NIL;
}
