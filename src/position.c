/*-------------------------------------------------------------------------
 * position.c
 *	  How far a subscription has come in a slot.
 *
 * A position is never updated.  Each step appends a row with the next gen, and
 * the newest is where the subscription stands; the others are of no use to
 * anybody.  An open transaction somewhere, which keeps dead rows from being
 * cleaned up, so keeps nothing: there are no dead rows, and old ones go with
 * their table (ring.c).
 *
 * Who writes holds the slot's name until the transaction ends.  The unique gen
 * stands behind it: two cannot take the same step.
 *
 * What is handed out begins in the window that is open, and ends there or in the
 * next one: a batch that could not go on where its window ends would often be a
 * handful of events, for the same effort as a full one.
 *
 * Snapshots are of one cluster.  A position that came from another one, by a
 * restore, is as good as none: all that the log holds comes again.  Twice is
 * what consumers are ready for, silence is not.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"
#include "direct.h"
#include "ring.h"

#include "access/relscan.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

/* Columns of idem_position */
enum
{
	SUBSCRIPTION = 1, SLOT, GEN, SIDE, CLUSTER, LO, LO_SEQ, HI, HI_SEQ, NEXT, NEXT_SEQ, POS,
	UPTO, BATCH, PARTS, WORKER, LEASE_UNTIL, DELIVERIES, CAP, ACKED, AT, NATTS = AT
};

#define SIDES 2

static IdemTable positions = {
	"idem_position", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_position (subscription, slot, gen, side, cluster,"
			   " lo, lo_seq, hi, hi_seq, next, next_seq, pos, upto, batch, parts, worker,"
			   " lease_until, deliveries, cap, acked, at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
			   " $17, $18, $19, $20, $21)",
			   TEXTOID, INT4OID, INT8OID, INT2OID, INT8OID, PG_SNAPSHOTOID, INT8OID,
			   PG_SNAPSHOTOID, INT8OID, PG_SNAPSHOTOID, INT8OID, INT8OID, INT8OID, INT8OID,
			   INT4OID, TEXTOID, TIMESTAMPTZOID, INT4OID, INT4OID, INT8OID, TIMESTAMPTZOID)
};


/* ---------- slots ---------- */

static Datum
slot_name(const Subscription *subscription, int slot)
{
	return CStringGetTextDatum(psprintf("%d %s", slot, TextDatumGetCString(subscription->name)));
}

bool
slot_hold(IdemCall *call, const Subscription *subscription, int slot)
{
	return idem_hold_name(call, IDEM_NAME_SLOT, CStringGetTextDatum(""),
						  slot_name(subscription, slot), ExclusiveLock, false);
}

bool
slot_is_held(IdemCall *call, const Subscription *subscription, int slot)
{
	return idem_name_is_held(call, IDEM_NAME_SLOT, CStringGetTextDatum(""),
							 slot_name(subscription, slot));
}

bool
slot_hold_soon(IdemCall *call, const Subscription *subscription, int slot)
{
	int			pause_ms = 1;

	while (!slot_hold(call, subscription, slot))
	{
		if (!idem_pause(call, &pause_ms))
			return false;
	}
	return true;
}

void
slot_let_go(IdemCall *call, const Subscription *subscription, int slot)
{
	idem_let_name_go(call, IDEM_NAME_SLOT, CStringGetTextDatum(""),
					 slot_name(subscription, slot), ExclusiveLock);
}


/* ---------- read ---------- */

struct PositionReader
{
	IdemCall   *call;
	const Subscription *subscription;
	Snapshot	opened;			/* of the scans, for no row's sake */
	LogTable	sides[SIDES];
};

/*
 * Both sides are locked before either is looked at: who moves positions from
 * one to the other and empties the first is then done, or has not begun.  They
 * are locked no longer than they are read, since who waits for events, or acts
 * on them, may be at it for hours: what the slot's holder has read nobody moves.
 */
PositionReader *
position_reader_open(IdemCall *call, const Subscription *subscription)
{
	PositionReader *reader = palloc(sizeof(PositionReader));

	reader->call = call;
	reader->subscription = subscription;
	reader->opened = RegisterSnapshot(GetLatestSnapshot());
	for (int side = 0; side < SIDES; side++)
		log_table_open(call, &reader->sides[side], log_slice_name("idem_position", side),
					   psprintf("idem_position_%d_pkey", side), reader->opened, GEN);
	return reader;
}

void
position_reader_close(PositionReader *reader)
{
	for (int side = 0; side < SIDES; side++)
		log_table_close(&reader->sides[side]);
	UnregisterSnapshot(reader->opened);
	pfree(reader);
}

/*
 * Of some slot of that number, the last gen that this session has seen.  Those
 * that are older lie before the newest by the page, and a scan takes a page in
 * as a whole; so it begins here.  It is a hint: where nothing is found, because
 * the gen was another subscription's, it begins at the beginning.
 */
static int64 seen_gens[LOG_SLOTS];

/* Stand at the newest row of a slot on a side, as it is committed now; its gen, 0: none */
static int64
newest_on(LogTable *side, const Subscription *subscription, int slot, int64 from, Snapshot now)
{
	ScanKeyData keys[3];
	ItemPointer tid;
	bool		isnull;

	ScanKeyInit(&keys[0], SUBSCRIPTION, BTEqualStrategyNumber, F_TEXTEQ, subscription->name);
	ScanKeyInit(&keys[1], SLOT, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(slot));
	ScanKeyInit(&keys[2], GEN, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	index_rescan(side->scan, keys, lengthof(keys), NULL, 0);
	while ((tid = index_getnext_tid(side->scan, BackwardScanDirection)) != NULL)
	{
		bool		again = false;

		if (!table_index_fetch_tuple(side->scan->xs_heapfetch, tid, now, side->slot, &again, NULL))
			continue;
		idem_demand_visible(side->table, side->slot);
		return DatumGetInt64(slot_getattr(side->slot, GEN, &isnull));
	}
	return 0;
}

static int64
int64_or(TupleTableSlot *row, int attnum, int64 otherwise)
{
	return row->tts_isnull[attnum - 1] ? otherwise : DatumGetInt64(row->tts_values[attnum - 1]);
}

static NullableDatum
nullable(TupleTableSlot *row, int attnum)
{
	return (NullableDatum) {row->tts_values[attnum - 1], row->tts_isnull[attnum - 1]};
}

/* A snapshot and the number in the column behind it; NULL: none */
static LogPoint
point(TupleTableSlot *row, int attnum)
{
	LogPoint	point = {NULL, int64_or(row, attnum + 1, 0)};

	if (!row->tts_isnull[attnum - 1])
		point.seen = log_snapshot_read(row->tts_values[attnum - 1]);
	return point;
}

/* What a row of this cluster says */
static void
read_row(TupleTableSlot *row, Position *position)
{
	position->lo = point(row, LO);
	position->hi = point(row, HI);
	position->next = point(row, NEXT);
	position->pos = int64_or(row, POS, 0);
	position->upto = int64_or(row, UPTO, 0);
	position->batch = nullable(row, BATCH);
	position->parts = row->tts_isnull[PARTS - 1] ? 0 : DatumGetInt32(row->tts_values[PARTS - 1]);
	if (!row->tts_isnull[WORKER - 1])
		position->worker = IDEM_VALUE(datumCopy(row->tts_values[WORKER - 1], false, -1));
	position->lease_until = int64_or(row, LEASE_UNTIL, 0);
	position->deliveries = DatumGetInt32(row->tts_values[DELIVERIES - 1]);
	position->cap = row->tts_isnull[CAP - 1] ? 0 : DatumGetInt32(row->tts_values[CAP - 1]);
}

/* Find the newest row of a slot among those from a gen on */
static void
find_newest(PositionReader *reader, Position *position, int64 from, Snapshot now)
{
	for (int side = 0; side < SIDES; side++)
	{
		int64		gen = newest_on(&reader->sides[side], reader->subscription, position->slot, from, now);

		if (gen <= position->gen)
			continue;
		position->gen = gen;
		position->side = side;
	}
}

Position
position_reader_read(PositionReader *reader, int slot)
{
	Snapshot	now = RegisterSnapshot(GetLatestSnapshot());
	Position	position = {.slot = slot, .batch = IDEM_NULL, .worker = IDEM_NULL, .acked = IDEM_NULL};
	TupleTableSlot *row;

	find_newest(reader, &position, seen_gens[slot], now);
	if (position.gen == 0 && seen_gens[slot] > 0)
		find_newest(reader, &position, 0, now);
	seen_gens[slot] = position.gen;
	row = reader->sides[position.side].slot;
	if (position.gen > 0)
	{
		slot_getallattrs(row);
		position.acked = nullable(row, ACKED);
	}
	if (position.gen > 0 && int64_or(row, CLUSTER, 0) == (int64) GetSystemIdentifier())
		read_row(row, &position);
	else
		position.lo = log_beginning();
	for (int side = 0; side < SIDES; side++)
		ExecClearTuple(reader->sides[side].slot);
	UnregisterSnapshot(now);
	return position;
}

Position
position_read(IdemCall *call, const Subscription *subscription, int slot)
{
	PositionReader *reader = position_reader_open(call, subscription);
	Position	position = position_reader_read(reader, slot);

	position_reader_close(reader);
	return position;
}

bool
position_is_leased(const Position *position, TimestampTz now)
{
	return !position->batch.isnull && position->lease_until > now;
}

LogWindow
position_window(const Subscription *subscription, const Position *position)
{
	LogWindow	window = {
		.lo = position->lo.seen,
		.hi = position->hi.seen,
		.slot = position->slot,
		.slots = subscription->slots,
		.types = subscription->types
	};

	return window;
}


/* ---------- what is handed out ---------- */

bool
position_has_out(const Position *position)
{
	return position->next.seen != NULL || position->upto > position->pos;
}

Position
position_beyond(const Position *position)
{
	Position	beyond = *position;

	beyond.lo = position->hi;
	beyond.hi = position->next;
	beyond.next.seen = NULL;
	beyond.pos = 0;
	return beyond;
}

void
position_pass(Position *position)
{
	if (position->next.seen != NULL)
		*position = position_beyond(position);
	position->pos = Max(position->pos, position->upto);
}

void
position_keep_back(Position *position)
{
	position->next.seen = NULL;
	position->upto = position->pos;
}

/* What is handed out is handed out no more */
void
position_take_back(Position *position)
{
	position->batch = position->worker = IDEM_NULL;
	position->parts = 0;
	position->next.seen = NULL;
	position->upto = 0;
}


/* ---------- write ---------- */

/* Fill the columns of a point */
static void
put_point(NullableDatum *row, int attnum, const LogPoint *point)
{
	if (point->seen == NULL)
		return;
	row[attnum - 1] = IDEM_VALUE(log_snapshot_write(point->seen));
	row[attnum] = IDEM_VALUE(Int64GetDatum(point->seq));
}

/* The row goes straight into its side: two of them are written for each batch */
void
position_append(IdemCall *call, const Subscription *subscription, Position *position)
{
	int			side = ring_current(call->house, "position", NULL);
	bool		out = !position->batch.isnull;
	NullableDatum row[NATTS] = {
		[SUBSCRIPTION - 1] = IDEM_VALUE(subscription->name),
		[SLOT - 1] = IDEM_VALUE(Int32GetDatum(position->slot)),
		[GEN - 1] = IDEM_VALUE(Int64GetDatum(++position->gen)),
		[SIDE - 1] = IDEM_VALUE(Int16GetDatum((int16) side)),
		[CLUSTER - 1] = IDEM_VALUE(Int64GetDatum((int64) GetSystemIdentifier())),
		[HI - 1] = IDEM_NULL,
		[HI_SEQ - 1] = IDEM_NULL,
		[NEXT - 1] = IDEM_NULL,
		[NEXT_SEQ - 1] = IDEM_NULL,
		[POS - 1] = IDEM_VALUE(Int64GetDatum(position->pos)),
		[UPTO - 1] = {Int64GetDatum(position->upto), !out},
		[BATCH - 1] = position->batch,
		[PARTS - 1] = {Int32GetDatum(position->parts), !out},
		[WORKER - 1] = position->worker,
		[LEASE_UNTIL - 1] = {TimestampTzGetDatum(position->lease_until), !out},
		[DELIVERIES - 1] = IDEM_VALUE(Int32GetDatum(position->deliveries)),
		[CAP - 1] = {Int32GetDatum(position->cap), position->cap == 0},
		[ACKED - 1] = position->acked,
		[AT - 1] = IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	PreventCommandIfReadOnly(NameStr(call->function->name));
	put_point(row, LO, &position->lo);
	put_point(row, HI, &position->hi);
	put_point(row, NEXT, &position->next);
	idem_append_to(call->fcinfo, &positions, log_slice_name(positions.table, side), row);
	CommandCounterIncrement();
}
