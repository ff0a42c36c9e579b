/*-------------------------------------------------------------------------
 * ring.c
 *	  Rings of tables that are emptied as a whole.
 *
 * Events, and the positions of those who read them, are written once and never
 * changed.  What is of no more use goes by TRUNCATE, which leaves no dead rows
 * and asks no open transaction; DELETE would do both.  So rows go into the
 * current table of a ring, the sweep makes the next one current, and empties
 * the others when nobody needs them.
 *
 * What is current is a hint for writers.  One who has not yet heard writes into
 * the table before; it is read all the same, since readers look into all of
 * them, and it is not emptied under him: TRUNCATE waits for who writes there,
 * or rather the sweep does not wait and tries again another time, and whether
 * the table is needed is asked once more when it is locked.
 *
 * A slice of the log is needed as long as a subscription has not passed all of
 * its transactions, and by whoever looks back, for idem.outbox_retention.  A
 * side of the positions is needed as long as the newest of any slot is there;
 * the sweep carries those over.
 *-------------------------------------------------------------------------
 */
#include "ahead.h"
#include "ring.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/xid8.h"

#define POSITION_SIDES 2

/* A side of the positions that is no larger stays current */
#define SIDE_BLOCKS 64

/* Columns of idem_outbox_ring */
enum
{
	RING = 1, PLACE, SINCE, NATTS = SINCE
};

static const IdemIndex ring_by_place = {"idem_outbox_ring", "idem_outbox_ring_pkey", NATTS};

static IdemQuery upsert_place = IDEM_QUERY(
	"INSERT INTO @schema@.idem_outbox_ring (ring, place, since) VALUES ($1, $2, $3)"
	" ON CONFLICT (ring, place) DO UPDATE SET since = excluded.since",
	TEXTOID, INT2OID, TIMESTAMPTZOID);

static IdemQuery truncate_slice[LOG_SLICES] = {
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_outbox_0, @schema@.idem_outbox_mark_0"),
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_outbox_1, @schema@.idem_outbox_mark_1"),
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_outbox_2, @schema@.idem_outbox_mark_2"),
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_outbox_3, @schema@.idem_outbox_mark_3")
};

static IdemQuery truncate_side[POSITION_SIDES] = {
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_position_0"),
	IDEM_PLAIN_QUERY("TRUNCATE @schema@.idem_position_1")
};

static IdemQuery select_subscriptions = IDEM_PLAIN_QUERY(
	"SELECT subscription FROM @schema@.idem_subscription ORDER BY subscription");

static bool emptying = false;

bool
ring_is_emptying(void)
{
	return emptying;
}


/* ---------- places ---------- */

/* The rows of a ring, as they are committed now */
static List *
places(const IdemHouse *house, const char *ring)
{
	IdemCall	here = {0};
	Datum		key = CStringGetTextDatum(ring);

	here.house = unconstify(IdemHouse *, house);
	here.context = CurrentMemoryContext;
	return idem_look_all(&here, &ring_by_place, &key, 1, IDEM_SIGHT_BARE);
}

int
ring_current(const IdemHouse *house, const char *ring, TimestampTz *since)
{
	TimestampTz latest = 0;
	int			current = 0;
	ListCell   *cell;

	foreach(cell, places(house, ring))
	{
		IdemRow    *row = lfirst(cell);

		if (DatumGetTimestampTz(IDEM_COLUMN(row, SINCE)) <= latest)
			continue;
		latest = DatumGetTimestampTz(IDEM_COLUMN(row, SINCE));
		current = DatumGetInt16(IDEM_COLUMN(row, PLACE));
	}
	if (since != NULL)
		*since = latest;
	return current;
}

/* Since when a place is, or was, current; 0: never */
static TimestampTz
current_since(const IdemHouse *house, const char *ring, int place)
{
	ListCell   *cell;

	foreach(cell, places(house, ring))
	{
		IdemRow    *row = lfirst(cell);

		if (DatumGetInt16(IDEM_COLUMN(row, PLACE)) == place)
			return DatumGetTimestampTz(IDEM_COLUMN(row, SINCE));
	}
	return 0;
}

static void
make_current(IdemCall *call, const char *ring, int place)
{
	(void) idem_run(call, &upsert_place, (NullableDatum[]) {
		IDEM_TEXT(ring), IDEM_VALUE(Int16GetDatum((int16) place)),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
}


/* ---------- tables ---------- */

static Oid
table_of(const IdemCall *call, const char *table, int place)
{
	return get_relname_relid(log_slice_name(table, place), call->house->nspoid);
}

static BlockNumber
blocks_of(const IdemCall *call, const char *table, int place)
{
	Relation	relation = table_open(table_of(call, table, place), AccessShareLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(relation);

	table_close(relation, AccessShareLock);
	return blocks;
}

/* Lock a table against everybody, if nobody is at it, or soon is not */
static bool
lock_alone(IdemCall *call, const char *table, int place)
{
	int			pause_ms = 1;

	while (!ConditionalLockRelationOid(table_of(call, table, place), AccessExclusiveLock))
	{
		if (!idem_pause(call, &pause_ms))
			return false;
	}
	return true;
}

static void
empty(IdemCall *call, IdemQuery *truncate)
{
	emptying = true;
	PG_TRY();
	{
		(void) idem_run(call, truncate, NULL);
	}
	PG_FINALLY();
	{
		emptying = false;
	}
	PG_END_TRY();
}

/* The subscriptions that there are */
static List *
subscriptions(IdemCall *call)
{
	List	   *all = NIL;
	uint64		n = idem_run(call, &select_subscriptions, NULL);
	List	   *names = NIL;
	ListCell   *cell;

	for (uint64 row = 0; row < n; row++)
		names = lappend(names, DatumGetPointer(idem_result(call, row, 1).value));
	foreach(cell, names)
	{
		Subscription *subscription = subscription_look(call, PointerGetDatum(lfirst(cell)),
													   IDEM_SIGHT_LATEST);

		if (subscription != NULL)
			all = lappend(all, subscription);
	}
	return all;
}


/* ---------- the log ---------- */

/*
 * Is there nothing in the slice that the subscription has yet to pass in this
 * slot?  Whatever its position does not cover counts: what was committed since
 * it was there, and what this transaction itself has written.  What is open
 * elsewhere does not; who has written here holds a lock that is asked for.
 */
static bool
has_passed(LogReader *reader, int slice, const Subscription *subscription, const Position *position)
{
	const LogSnapshot everything = {PG_UINT64_MAX, PG_UINT64_MAX, 0, NULL};
	LogWindow	window = position_window(subscription, position);

	window.types = NIL;
	if (position->hi.seen != NULL)
	{
		if (log_slice_has(reader, slice, &window, position->pos))
			return false;
		window.lo = position->hi.seen;
	}
	window.hi = &everything;
	return !log_slice_has(reader, slice, &window, 0);
}

/* Has every subscription passed all that the slice holds? */
static bool
all_have_passed(IdemCall *call, int slice)
{
	LogReader  *reader = log_reader_open(call);
	bool		passed = true;
	ListCell   *cell;

	foreach(cell, subscriptions(call))
	{
		Subscription *subscription = lfirst(cell);

		for (int slot = 0; passed && slot < subscription->slots; slot++)
		{
			Position	position = position_read(call, subscription, slot);

			passed = has_passed(reader, slice, subscription, &position);
		}
	}
	log_reader_close(reader);
	return passed;
}

/* Is it so long since the slice stopped being the current one? */
static bool
is_old_enough(IdemCall *call, int slice)
{
	TimestampTz closed = current_since(call->house, "log", (slice + 1) % LOG_SLICES);

	return closed > current_since(call->house, "log", slice) &&
		closed + (int64) idem_outbox_retention_s * USECS_PER_SEC <= call->now;
}

/* Let positions of slots in which nothing happens any more follow */
static void
advance_all(IdemCall *call)
{
	ListCell   *cell;

	foreach(cell, subscriptions(call))
	{
		Subscription *subscription = lfirst(cell);

		for (int slot = 0; slot < subscription->slots; slot++)
			ahead_advance(call, subscription, slot);
	}
}

/* Empty a slice if nobody needs it; how many were emptied */
static int64
empty_slice(IdemCall *call, int slice)
{
	if (!all_have_passed(call, slice))
		return 0;
	if (!lock_alone(call, "idem_outbox", slice) || !lock_alone(call, "idem_outbox_mark", slice))
		return 0;
	/* somebody may have written, or moved a subscription back, until just now */
	if (!all_have_passed(call, slice))
		return 0;
	empty(call, &truncate_slice[slice]);
	return 1;
}

/* Half of the retention in each slice, so that of four no more than three are in use */
static int64
turn_log(IdemCall *call)
{
	TimestampTz since;
	int			current = ring_current(call->house, "log", &since);
	int			next = (current + 1) % LOG_SLICES;
	int64		emptied = 0;

	for (int slice = 0; slice < LOG_SLICES; slice++)
	{
		if (slice == current || blocks_of(call, "idem_outbox", slice) == 0 ||
			!is_old_enough(call, slice))
			continue;
		advance_all(call);
		emptied += empty_slice(call, slice);
	}
	if (since == 0)
		make_current(call, "log", current);
	else if (since + (int64) idem_outbox_retention_s * USECS_PER_SEC / 2 <= call->now &&
			 blocks_of(call, "idem_outbox", current) > 0 &&
			 blocks_of(call, "idem_outbox", next) == 0)
		make_current(call, "log", next);
	return emptied;
}


/* ---------- positions ---------- */

/* Is the newest position of a slot still on this side?  Then carry it over. */
static bool
carry_over(IdemCall *call, const Subscription *subscription, int slot, int from)
{
	Position	position = position_read(call, subscription, slot);

	if (position.gen == 0 || position.side != from)
		return false;
	if (slot_hold(call, subscription, slot))
	{
		position = position_read(call, subscription, slot);
		if (position.side == from)
			position_append(call, subscription, &position);
	}
	return true;
}

/* How many slots had their newest position on this side until now */
static int
carry_all_over(IdemCall *call, int from)
{
	int			there = 0;
	ListCell   *cell;

	foreach(cell, subscriptions(call))
	{
		Subscription *subscription = lfirst(cell);

		for (int slot = 0; slot < subscription->slots; slot++)
			there += carry_over(call, subscription, slot, from);
	}
	return there;
}

/*
 * A side is emptied by a later sweep than the one that carried over: then
 * nobody has to wait for both.
 */
static int64
turn_positions(IdemCall *call)
{
	int			current = ring_current(call->house, "position", NULL);
	int			other = 1 - current;

	if (blocks_of(call, "idem_position", other) == 0)
	{
		if (blocks_of(call, "idem_position", current) > SIDE_BLOCKS)
			make_current(call, "position", other);
		return 0;
	}
	if (carry_all_over(call, other) > 0 || !lock_alone(call, "idem_position", other) ||
		carry_all_over(call, other) > 0)
		return 0;
	empty(call, &truncate_side[other]);
	return 1;
}

/* One sweep at a time turns the rings */
int64
ring_turn(IdemCall *call)
{
	Datum		nobody = CStringGetTextDatum("");

	if (!idem_hold_name(call, IDEM_NAME_RING, nobody, nobody, ExclusiveLock, false))
		return 0;
	return turn_log(call) + turn_positions(call);
}
