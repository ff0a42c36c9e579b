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
 * Snapshots are of one cluster.  A position that came from another one, by a
 * restore, is as good as none: all that the log holds comes again.  Twice is
 * what consumers are ready for, silence is not.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"
#include "ring.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"

/* Columns of idem_position */
enum
{
	SUBSCRIPTION = 1, SLOT, GEN, SIDE, CLUSTER, LO, LO_SEQ, HI, HI_SEQ, POS, UPTO, BATCH,
	PARTS, WORKER, LEASE_UNTIL, DELIVERIES, CAP, ACKED, AT, NATTS = AT
};

static const IdemIndex sides[] = {
	{"idem_position_0", "idem_position_0_pkey", NATTS},
	{"idem_position_1", "idem_position_1_pkey", NATTS}
};

static IdemQuery insert_position = IDEM_QUERY(
	"INSERT INTO @schema@.idem_position (subscription, slot, gen, side, cluster, lo, lo_seq,"
	" hi, hi_seq, pos, upto, batch, parts, worker, lease_until, deliveries, cap, acked, at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)",
	TEXTOID, INT4OID, INT8OID, INT2OID, INT8OID, PG_SNAPSHOTOID, INT8OID,
	PG_SNAPSHOTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID,
	INT4OID, INT4OID, INT8OID, TIMESTAMPTZOID);


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

static int64
int64_or(const IdemRow *row, int attnum, int64 otherwise)
{
	return row->isnull[attnum - 1] ? otherwise : DatumGetInt64(IDEM_COLUMN(row, attnum));
}

static void
read_row(const IdemRow *row, Position *position)
{
	position->lo.seen = log_snapshot_read(IDEM_COLUMN(row, LO));
	position->lo.seq = DatumGetInt64(IDEM_COLUMN(row, LO_SEQ));
	if (!row->isnull[HI - 1])
		position->hi.seen = log_snapshot_read(IDEM_COLUMN(row, HI));
	position->hi.seq = int64_or(row, HI_SEQ, 0);
	position->pos = DatumGetInt64(IDEM_COLUMN(row, POS));
	position->upto = int64_or(row, UPTO, 0);
	position->batch = IDEM_NULLABLE(row, BATCH);
	position->parts = row->isnull[PARTS - 1] ? 0 : DatumGetInt32(IDEM_COLUMN(row, PARTS));
	position->worker = IDEM_NULLABLE(row, WORKER);
	position->lease_until = int64_or(row, LEASE_UNTIL, 0);
	position->deliveries = DatumGetInt32(IDEM_COLUMN(row, DELIVERIES));
	position->cap = row->isnull[CAP - 1] ? 0 : DatumGetInt32(IDEM_COLUMN(row, CAP));
}

static Oid
side_of(const IdemCall *call, int side)
{
	return get_relname_relid(sides[side].table, call->house->nspoid);
}

/*
 * Both sides are locked before either is looked at: who moves positions from
 * one to the other and empties the first is then done, or has not begun.  They
 * are locked no longer than that, since who waits for events, or acts on them,
 * may be at it for hours: what the slot's holder has read nobody moves.
 */
static void
lock_sides(const IdemCall *call)
{
	for (int side = 0; side < (int) lengthof(sides); side++)
		LockRelationOid(side_of(call, side), AccessShareLock);
}

static void
unlock_sides(const IdemCall *call)
{
	for (int side = 0; side < (int) lengthof(sides); side++)
		UnlockRelationOid(side_of(call, side), AccessShareLock);
}

Position
position_read(IdemCall *call, const Subscription *subscription, int slot)
{
	Datum		keys[] = {subscription->name, Int32GetDatum(slot)};
	Position	position = {0};
	IdemRow    *newest = NULL;

	lock_sides(call);
	for (int side = 0; side < (int) lengthof(sides); side++)
	{
		IdemRow    *row = idem_look_last(call, &sides[side], keys, lengthof(keys),
										 IDEM_SIGHT_LATEST);

		if (row != NULL && (newest == NULL ||
							DatumGetInt64(IDEM_COLUMN(row, GEN)) > DatumGetInt64(IDEM_COLUMN(newest, GEN))))
			newest = row;
	}

	position.slot = slot;
	position.batch = position.worker = position.acked = IDEM_NULL;
	if (newest != NULL)
	{
		position.gen = DatumGetInt64(IDEM_COLUMN(newest, GEN));
		position.side = DatumGetInt16(IDEM_COLUMN(newest, SIDE));
		position.acked = IDEM_NULLABLE(newest, ACKED);
	}
	if (newest != NULL &&
		DatumGetInt64(IDEM_COLUMN(newest, CLUSTER)) == (int64) GetSystemIdentifier())
		read_row(newest, &position);
	else
		position.lo = log_beginning();
	unlock_sides(call);			/* not before: snapshots may lie out of line */
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


/* ---------- write ---------- */

/* What is handed out is handed out no more */
void
position_take_back(Position *position)
{
	position->batch = position->worker = IDEM_NULL;
	position->parts = 0;
	position->upto = 0;
}

void
position_append(IdemCall *call, const Subscription *subscription, Position *position)
{
	bool		window = position->hi.seen != NULL;
	bool		out = !position->batch.isnull;
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int32GetDatum(position->slot)),
		IDEM_VALUE(Int64GetDatum(++position->gen)),
		IDEM_VALUE(Int16GetDatum(ring_current(call->house, "position", NULL))),
		IDEM_VALUE(Int64GetDatum((int64) GetSystemIdentifier())),
		IDEM_VALUE(log_snapshot_write(position->lo.seen)),
		IDEM_VALUE(Int64GetDatum(position->lo.seq)),
		window ? IDEM_VALUE(log_snapshot_write(position->hi.seen)) : IDEM_NULL,
		window ? IDEM_VALUE(Int64GetDatum(position->hi.seq)) : IDEM_NULL,
		IDEM_VALUE(Int64GetDatum(position->pos)),
		out ? IDEM_VALUE(Int64GetDatum(position->upto)) : IDEM_NULL,
		position->batch,
		out ? IDEM_VALUE(Int32GetDatum(position->parts)) : IDEM_NULL,
		position->worker,
		out ? IDEM_VALUE(TimestampTzGetDatum(position->lease_until)) : IDEM_NULL,
		IDEM_VALUE(Int32GetDatum(position->deliveries)),
		position->cap > 0 ? IDEM_VALUE(Int32GetDatum(position->cap)) : IDEM_NULL,
		position->acked,
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	(void) idem_run(call, &insert_position, args);
}
