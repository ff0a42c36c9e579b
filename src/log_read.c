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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/detoast.h"
#include "executor/tuptable.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
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

/* Look at no more than so many entries that are not handed out */
#define MAX_EXAMINED 20000

/* An entry of the index that belongs to the window */
typedef struct Candidate
{
	int64		seq;
	ItemPointerData tid;
	int			slice;
} Candidate;

/* A slice that is open for reading */
typedef struct OpenSlice
{
	Relation	table;			/* NULL: it is empty */
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} OpenSlice;

typedef struct Reader
{
	const LogWindow *window;
	Snapshot	snapshot;		/* for rows: committed or not */
	OpenSlice	slices[LOG_SLICES];
	int64		after;			/* entries up to here are done */
	int64		upto;			/* and those behind here are not asked for */
	int			wanted;
	binaryheap *nearest;		/* of Candidate; the greatest seq on top */
} Reader;


/* ---------- open and close ---------- */

static void
open_slice(IdemCall *call, Reader *reader, int n)
{
	OpenSlice  *slice = &reader->slices[n];
	const char *table = log_slice_name("idem_outbox", n);
	Oid			table_oid = get_relname_relid(table, call->house->nspoid);
	Oid			index_oid = get_relname_relid(psprintf("%s_slot_xid_seq_idx", table),
											  call->house->nspoid);

	if (!OidIsValid(table_oid) || !OidIsValid(index_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" or its index does not exist in schema %s",
						table, call->house->schema),
				 errdetail("They belong to the extension idem.")));
	slice->table = table_open(table_oid, AccessShareLock);
	if (RelationGetNumberOfBlocks(slice->table) == 0)
	{
		table_close(slice->table, AccessShareLock);
		slice->table = NULL;
		return;
	}
	slice->index = index_open(index_oid, AccessShareLock);
	slice->scan = idem_index_beginscan(slice->table, slice->index, reader->snapshot, BY_SEQ);
	slice->scan->xs_want_itup = true;
	slice->slot = table_slot_create(slice->table, NULL);
}

/* Locks go at once: who empties a slice must not wait for who reads others */
static void
close_slice(OpenSlice *slice)
{
	if (slice->table == NULL)
		return;
	ExecDropSingleTupleTableSlot(slice->slot);
	index_endscan(slice->scan);
	index_close(slice->index, AccessShareLock);
	table_close(slice->table, AccessShareLock);
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
is_full(const Reader *reader)
{
	return reader->nearest->bh_size >= reader->wanted;
}

static int64
farthest(Reader *reader)
{
	return ((Candidate *) DatumGetPointer(binaryheap_first(reader->nearest)))->seq;
}

/* Does this entry, and all behind it of its transaction, lie too far away? */
static bool
is_too_far(Reader *reader, int64 seq)
{
	return seq > reader->upto || (is_full(reader) && seq > farthest(reader));
}

/* Keep an entry, in place of the farthest if there are enough */
static void
keep(Reader *reader, int n, ItemPointer tid, int64 seq)
{
	Candidate  *candidate;

	if (is_full(reader))
		candidate = (Candidate *) DatumGetPointer(binaryheap_first(reader->nearest));
	else
		candidate = palloc(sizeof(Candidate));
	candidate->seq = seq;
	candidate->tid = *tid;
	candidate->slice = n;
	if (is_full(reader))
		binaryheap_replace_first(reader->nearest, PointerGetDatum(candidate));
	else
		binaryheap_add(reader->nearest, PointerGetDatum(candidate));
}

static int64
entry_seq(OpenSlice *slice)
{
	bool		isnull;

	return DatumGetInt64(index_getattr(slice->scan->xs_itup, BY_SEQ,
									   RelationGetDescr(slice->index), &isnull));
}

static uint64
entry_xid(OpenSlice *slice)
{
	bool		isnull;

	return U64FromFullTransactionId(DatumGetFullTransactionId(
									index_getattr(slice->scan->xs_itup, BY_XID,
												  RelationGetDescr(slice->index), &isnull)));
}

/* The entries of one transaction of the window that are not yet done */
static void
collect_transaction(Reader *reader, int n, int log_slot, uint64 xid)
{
	OpenSlice  *slice = &reader->slices[n];
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
position_range(OpenSlice *slice, int log_slot, uint64 from, uint64 to)
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
collect_range(Reader *reader, int n, int log_slot, uint64 from, uint64 to)
{
	const LogWindow *window = reader->window;
	OpenSlice  *slice = &reader->slices[n];
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
collect_slot(Reader *reader, int n, int log_slot)
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
collect(Reader *reader, int *ncandidates)
{
	Candidate **candidates;

	binaryheap_reset(reader->nearest);
	for (int n = 0; n < LOG_SLICES; n++)
	{
		if (reader->slices[n].table == NULL)
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

/*
 * The row of an entry, NULL if it was never committed.  An entry may outlive
 * its row, and its place be given to another.
 */
static IdemRow *
fetch(Reader *reader, const Candidate *candidate)
{
	OpenSlice  *slice = &reader->slices[candidate->slice];
	IdemRow    *row;

	if (!table_tuple_fetch_row_version(slice->table, unconstify(ItemPointerData *, &candidate->tid),
									   reader->snapshot, slice->slot))
		return NULL;
	row = palloc(sizeof(IdemRow));
	row->tid = candidate->tid;
	row->values = palloc(sizeof(Datum) * EVENT_NATTS);
	row->isnull = palloc(sizeof(bool) * EVENT_NATTS);
	heap_deform_tuple(ExecCopySlotHeapTuple(slice->slot), RelationGetDescr(slice->table),
					  row->values, row->isnull);
	ExecClearTuple(slice->slot);
	return DatumGetInt64(IDEM_COLUMN(row, EVENT_SEQ)) == candidate->seq ? row : NULL;
}

static bool
is_wanted(const LogWindow *window, const IdemRow *row)
{
	ListCell   *cell;

	foreach(cell, window->types)
	{
		if (idem_same_text(PointerGetDatum(lfirst(cell)), IDEM_COLUMN(row, EVENT_TYPE)))
			return true;
	}
	return window->types == NIL;
}

/* The row's own copy of what lies out of line: its slice may be emptied */
static int64
bring_in(IdemRow *row)
{
	int			columns[] = {EVENT_PAYLOAD, EVENT_HEADERS};
	int64		bytes = 0;

	for (int i = 0; i < (int) lengthof(columns); i++)
	{
		if (row->isnull[columns[i] - 1])
			continue;
		IDEM_COLUMN(row, columns[i]) =
			PointerGetDatum(PG_DETOAST_DATUM(IDEM_COLUMN(row, columns[i])));
		bytes += VARSIZE(DatumGetPointer(IDEM_COLUMN(row, columns[i])));
	}
	return bytes;
}

/* Add the rows of some entries to a batch; false: it is full */
static bool
add_rows(Reader *reader, const LogLimits *limits, Candidate **candidates, int ncandidates,
		 LogBatch *batch)
{
	for (int i = 0; i < ncandidates; i++)
	{
		IdemRow    *row;

		CHECK_FOR_INTERRUPTS();
		if (list_length(batch->events) >= limits->events)
			return false;
		row = fetch(reader, candidates[i]);
		if (row != NULL && is_wanted(reader->window, row))
		{
			int64		bytes = bring_in(row);

			if (batch->events != NIL && batch->bytes + bytes > limits->bytes)
				return false;
			batch->events = lappend(batch->events, row);
			batch->bytes += bytes;
		}
		batch->upto = candidates[i]->seq;
	}
	return true;
}

/*
 * The first events of a window within the limits.
 */
LogBatch
log_read(IdemCall *call, const LogWindow *window, const LogLimits *limits)
{
	LogBatch	batch = {NIL, 0, limits->after, false};
	Reader		reader = {0};
	int			examined = 0;
	bool		room;

	reader.window = window;
	reader.after = limits->after;
	reader.upto = limits->upto;
	reader.wanted = limits->events + 1;
	reader.snapshot = RegisterSnapshot(GetLatestSnapshot());
	reader.nearest = binaryheap_allocate(reader.wanted, compare_candidates, NULL);
	for (int n = 0; n < LOG_SLICES; n++)
		open_slice(call, &reader, n);

	do
	{
		int			ncandidates;
		Candidate **candidates = collect(&reader, &ncandidates);

		room = add_rows(&reader, limits, candidates, ncandidates, &batch);
		batch.more = !room || ncandidates == reader.wanted;
		examined += ncandidates;
		reader.after = batch.upto;
	} while (batch.more && room && examined < MAX_EXAMINED);

	for (int n = 0; n < LOG_SLICES; n++)
		close_slice(&reader.slices[n]);
	UnregisterSnapshot(reader.snapshot);
	return batch;
}
