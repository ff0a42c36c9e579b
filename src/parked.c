/*-------------------------------------------------------------------------
 * parked.c
 *	  Events that failed, and those that wait behind them.
 *
 * If an event fails and the next one of its key went on, order would be lost;
 * if everything waited for it, one bad event would stop the world.  So the
 * failed event and all later ones of its key are parked, as copies: those in
 * the batch at once, others as they are met in the log.  The first of a key
 * bears the time at which it comes again; behind it the others follow in order.
 * When the last one is acknowledged, the key is read from the log again.
 *
 * A slot's parked events belong to the slot: who touches them holds it.  Rows
 * are updated here, but only as many as fail.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

/* The columns of a Delivery, and how often it was handed out */
#define DELIVERY_COLUMNS \
	"id, tenant_id, aggregatetype, aggregateid, type, payload, headers, created_at, seq, attempts"

static const IdemIndex parked_by_key = {"idem_parked_event", "idem_parked_event_key", EVENT_SEQ};
static const IdemIndex parked_by_batch = {"idem_parked_event", "idem_parked_event_batch", EVENT_SEQ};
static const IdemIndex dead_by_seq = {"idem_dead_event", "idem_dead_event_pkey", EVENT_SEQ};

/* Which of these numbers were parked or given up before */
static IdemQuery select_known = IDEM_QUERY(
	"SELECT seq FROM @schema@.idem_parked_event WHERE subscription = $1 AND seq = ANY ($2)"
	" UNION ALL SELECT seq FROM @schema@.idem_dead_event WHERE subscription = $1 AND seq = ANY ($2)",
	TEXTOID, INT8ARRAYOID);

static IdemQuery select_first = IDEM_QUERY(
	"SELECT seq FROM @schema@.idem_parked_event WHERE subscription = $1 AND slot = $2"
	" AND tenant_id = $3 AND aggregatetype = $4 AND aggregateid = $5 ORDER BY seq LIMIT 1",
	TEXTOID, INT4OID, TEXTOID, VARCHAROID, VARCHAROID);

static IdemQuery insert_parked = IDEM_QUERY(
	"INSERT INTO @schema@.idem_parked_event (id, tenant_id, aggregatetype, aggregateid, type,"
	" payload, headers, created_at, seq, subscription, slot, attempts, next_at, error, parked_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
	" ON CONFLICT DO NOTHING",
	UUIDOID, TEXTOID, VARCHAROID, VARCHAROID, VARCHAROID, JSONBOID, JSONBOID, TIMESTAMPTZOID,
	INT8OID, TEXTOID, INT4OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID);

/*
 * The first of each key, if it is due, with those that follow it, in order.
 * One that was redriven comes before the first, which may have to wait still.
 */
static IdemQuery select_due = IDEM_QUERY(
	"SELECT " DELIVERY_COLUMNS " FROM"
	" (SELECT f.* FROM (SELECT * FROM @schema@.idem_parked_event h"
	" WHERE subscription = $1 AND slot = $2 AND next_at <= $3 AND NOT EXISTS"
	" (SELECT FROM @schema@.idem_parked_event p WHERE p.subscription = $1 AND p.slot = $2"
	" AND " SAME_KEY("p", "h") " AND p.seq < h.seq) ORDER BY next_at LIMIT $4) AS head,"
	" LATERAL (SELECT * FROM @schema@.idem_parked_event p WHERE p.subscription = $1 AND p.slot = $2"
	" AND " SAME_KEY("p", "head") " AND p.seq >= head.seq AND p.seq < coalesce("
	" (SELECT min(q.seq) FROM @schema@.idem_parked_event q WHERE q.subscription = $1 AND q.slot = $2"
	" AND " SAME_KEY("q", "head") " AND q.next_at > $3), 9223372036854775807)"
	" ORDER BY p.seq LIMIT $4) AS f"
	" LIMIT $4) AS due ORDER BY seq",
	TEXTOID, INT4OID, TIMESTAMPTZOID, INT4OID);

static IdemQuery select_batch = IDEM_QUERY(
	"SELECT " DELIVERY_COLUMNS " FROM @schema@.idem_parked_event"
	" WHERE subscription = $1 AND slot = $2 AND batch = $3 ORDER BY seq",
	TEXTOID, INT4OID, INT8OID);

static IdemQuery update_handed_out = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event SET batch = $3, attempts = attempts + 1"
	" WHERE subscription = $1 AND seq = $2",
	TEXTOID, INT8OID, INT8OID);

static IdemQuery update_released = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event SET batch = NULL"
	" WHERE subscription = $1 AND slot = $2 AND batch = $3 AND seq > $4",
	TEXTOID, INT4OID, INT8OID, INT8OID);

static IdemQuery delete_batch = IDEM_QUERY(
	"DELETE FROM @schema@.idem_parked_event WHERE subscription = $1 AND batch = $2",
	TEXTOID, INT8OID);

/*
 * Whoever has nobody before him any more is the first of his key, also while he
 * is handed out: his batch may never be acknowledged, and be forgotten.
 */
static IdemQuery update_heads = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event h SET next_at = $2"
	" WHERE subscription = $1 AND next_at IS NULL AND NOT EXISTS"
	" (SELECT FROM @schema@.idem_parked_event p WHERE p.subscription = $1 AND p.slot = h.slot"
	" AND " SAME_KEY("p", "h") " AND p.seq < h.seq)",
	TEXTOID, TIMESTAMPTZOID);

static IdemQuery delete_parked = IDEM_QUERY(
	"DELETE FROM @schema@.idem_parked_event WHERE subscription = $1 AND seq = $2",
	TEXTOID, INT8OID);

static IdemQuery insert_dead = IDEM_QUERY(
	"INSERT INTO @schema@.idem_dead_event (id, tenant_id, aggregatetype, aggregateid, type,"
	" payload, headers, created_at, seq, subscription, slot, attempts, error, dead_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
	" ON CONFLICT DO NOTHING",
	UUIDOID, TEXTOID, VARCHAROID, VARCHAROID, VARCHAROID, JSONBOID, JSONBOID, TIMESTAMPTZOID,
	INT8OID, TEXTOID, INT4OID, INT4OID, TEXTOID, TIMESTAMPTZOID);


/* ---------- deliveries ---------- */

bool
delivery_same_key(const Delivery *a, const Delivery *b)
{
	for (int i = EVENT_TENANT_ID; i <= EVENT_AGGREGATEID; i++)
	{
		if (!idem_same_text(a->columns[i - 1].value, b->columns[i - 1].value))
			return false;
	}
	return true;
}

/* The rows of DELIVERY_COLUMNS that the last statement returned; handed out once more */
static List *
deliveries_of_result(IdemCall *call, uint64 n)
{
	List	   *deliveries = NIL;

	for (uint64 row = 0; row < n; row++)
	{
		Delivery   *delivery = palloc(sizeof(Delivery));

		for (int i = 0; i < EVENT_SEQ; i++)
			delivery->columns[i] = idem_result(call, row, i + 1);
		delivery->seq = DatumGetInt64(delivery->columns[EVENT_SEQ - 1].value);
		delivery->attempt = DatumGetInt32(idem_result(call, row, EVENT_SEQ + 1).value) + 1;
		delivery->parked = true;
		delivery->beyond = false;
		deliveries = lappend(deliveries, delivery);
	}
	return deliveries;
}


/* ---------- parking ---------- */

/*
 * To be asked once the slot is held: until then another worker may park what
 * stands before that which is read next.
 */
bool
slot_has_failed(IdemCall *call, const Subscription *subscription, int slot)
{
	Datum		keys[] = {subscription->name, Int32GetDatum(slot)};

	return idem_look(call, &parked_by_key, keys, lengthof(keys), IDEM_SIGHT_BARE) != NULL ||
		idem_look(call, &dead_by_seq, keys, 1, IDEM_SIGHT_BARE) != NULL;
}

/* The number of the first parked event of the key; 0: there is none */
static int64
first_parked(IdemCall *call, const Subscription *subscription, int slot, const Delivery *delivery)
{
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int32GetDatum(slot)),
		delivery->columns[EVENT_TENANT_ID - 1],
		delivery->columns[EVENT_AGGREGATETYPE - 1],
		delivery->columns[EVENT_AGGREGATEID - 1]
	};

	return idem_run(call, &select_first, args) == 0 ? 0 : DatumGetInt64(idem_result(call, 0, 1).value);
}

void
park(IdemCall *call, const Subscription *subscription, int slot, const Delivery *delivery,
	 int32 attempts, NullableDatum next_at, NullableDatum error)
{
	NullableDatum args[EVENT_SEQ + 6];

	memcpy(args, delivery->columns, sizeof(delivery->columns));
	args[EVENT_SEQ] = IDEM_VALUE(subscription->name);
	args[EVENT_SEQ + 1] = IDEM_VALUE(Int32GetDatum(slot));
	args[EVENT_SEQ + 2] = IDEM_VALUE(Int32GetDatum(attempts));
	args[EVENT_SEQ + 3] = next_at;
	args[EVENT_SEQ + 4] = error;
	args[EVENT_SEQ + 5] = IDEM_VALUE(TimestampTzGetDatum(call->now));
	(void) idem_run(call, &insert_parked, args);
}

void
bury(IdemCall *call, const Subscription *subscription, int slot, const Delivery *delivery,
	 Datum error)
{
	NullableDatum args[EVENT_SEQ + 5];

	memcpy(args, delivery->columns, sizeof(delivery->columns));
	args[EVENT_SEQ] = IDEM_VALUE(subscription->name);
	args[EVENT_SEQ + 1] = IDEM_VALUE(Int32GetDatum(slot));
	args[EVENT_SEQ + 2] = IDEM_VALUE(Int32GetDatum(delivery->attempt));
	args[EVENT_SEQ + 3] = IDEM_VALUE(error);
	args[EVENT_SEQ + 4] = IDEM_VALUE(TimestampTzGetDatum(call->now));
	(void) idem_run(call, &insert_dead, args);
}

static int
compare_numbers(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Those of these events that were neither parked nor given up before */
List *
parked_unknown(IdemCall *call, const Subscription *subscription, List *deliveries)
{
	Datum	   *numbers = palloc(sizeof(Datum) * Max(list_length(deliveries), 1));
	List	   *unknown = NIL;
	int64	   *known;
	int			n = 0;
	uint64		nknown;
	ListCell   *cell;

	foreach(cell, deliveries)
		numbers[n++] = ((Delivery *) lfirst(cell))->columns[EVENT_SEQ - 1].value;
	nknown = n == 0 ? 0 : idem_run(call, &select_known, (NullableDatum[]) {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(PointerGetDatum(construct_array(numbers, n, INT8OID, 8, true, TYPALIGN_DOUBLE)))
	});
	known = palloc(sizeof(int64) * Max(nknown, 1));
	for (uint64 row = 0; row < nknown; row++)
		known[row] = DatumGetInt64(idem_result(call, row, 1).value);
	qsort(known, nknown, sizeof(int64), compare_numbers);
	foreach(cell, deliveries)
	{
		if (bsearch(&((Delivery *) lfirst(cell))->seq, known, nknown, sizeof(int64), compare_numbers) == NULL)
			unknown = lappend(unknown, lfirst(cell));
	}
	return unknown;
}

/*
 * An event of the log whose key is parked waits behind the first one.  If the
 * subscription was moved back it comes before that, and has nobody to wait for.
 */
List *
parked_filter(IdemCall *call, const Subscription *subscription, int slot, List *deliveries)
{
	List	   *left = NIL;
	ListCell   *cell;

	foreach(cell, parked_unknown(call, subscription, deliveries))
	{
		Delivery   *delivery = lfirst(cell);
		int64		first = first_parked(call, subscription, slot, delivery);
		NullableDatum next_at = delivery->seq < first ?
			IDEM_VALUE(TimestampTzGetDatum(call->now)) : IDEM_NULL;

		if (first == 0)
			left = lappend(left, delivery);
		else
			park(call, subscription, slot, delivery, 0, next_at, IDEM_NULL);
	}
	return left;
}


/* ---------- handing out ---------- */

List *
parked_due(IdemCall *call, const Subscription *subscription, int slot, int most)
{
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int32GetDatum(slot)),
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		IDEM_VALUE(Int32GetDatum(most))
	};

	return deliveries_of_result(call, idem_run(call, &select_due, args));
}

List *
parked_of_batch(IdemCall *call, const Subscription *subscription, int slot, int64 batch)
{
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int32GetDatum(slot)),
		IDEM_VALUE(Int64GetDatum(batch))
	};

	return deliveries_of_result(call, idem_run(call, &select_batch, args));
}

void
parked_hand_out(IdemCall *call, const Subscription *subscription, List *deliveries, int64 batch)
{
	ListCell   *cell;

	foreach(cell, deliveries)
	{
		Delivery   *delivery = lfirst(cell);

		if (delivery->parked)
			(void) idem_run(call, &update_handed_out, (NullableDatum[]) {
				IDEM_VALUE(subscription->name), IDEM_VALUE(Int64GetDatum(delivery->seq)),
				IDEM_VALUE(Int64GetDatum(batch))
			});
	}
}

/* The next of each key comes at once: the one before it is gone */
static void
promote(IdemCall *call, const Subscription *subscription)
{
	(void) idem_run(call, &update_heads, (NullableDatum[]) {
		IDEM_VALUE(subscription->name), IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
}

void
parked_acknowledge(IdemCall *call, const Subscription *subscription, int64 batch)
{
	Datum		keys[] = {subscription->name, Int64GetDatum(batch)};

	if (idem_look(call, &parked_by_batch, keys, lengthof(keys), IDEM_SIGHT_BARE) == NULL)
		return;
	if (idem_run(call, &delete_batch, (NullableDatum[]) {IDEM_VALUE(keys[0]), IDEM_VALUE(keys[1])}) > 0)
		promote(call, subscription);
}

void
parked_bury(IdemCall *call, const Subscription *subscription, int slot, const Delivery *delivery,
			Datum error)
{
	bury(call, subscription, slot, delivery, error);
	(void) idem_run(call, &delete_parked, (NullableDatum[]) {
		IDEM_VALUE(subscription->name), IDEM_VALUE(Int64GetDatum(delivery->seq))
	});
	promote(call, subscription);
}

/*
 * Of the parked events of a slot that a batch had, and that nobody lived to
 * acknowledge, those that may be handed out again, at most so many.  From the
 * third time on that is the first half; the last one dies, if nothing else was
 * handed out of the slot with it.  The rest comes later.
 */
List *
parked_narrow(IdemCall *call, const Subscription *subscription, int slot, int64 batch,
			  List *deliveries, bool alone, int most)
{
	Delivery   *first;
	int			keep = list_length(deliveries);

	if (deliveries == NIL)
		return NIL;
	first = linitial(deliveries);
	if (alone && keep == 1 && first->attempt > idem_max_attempts)
	{
		first->attempt--;		/* it is not handed out this time */
		parked_bury(call, subscription, slot, first,
					CStringGetTextDatum(psprintf("not acknowledged %d times", first->attempt)));
		return NIL;
	}
	if (first->attempt >= SUSPICIOUS_DELIVERY)
		keep = Max(keep / 2, 1);
	if (Min(keep, most) == list_length(deliveries))
		return deliveries;
	deliveries = list_truncate(deliveries, Min(keep, most));
	(void) idem_run(call, &update_released, (NullableDatum[]) {
		IDEM_VALUE(subscription->name), IDEM_VALUE(Int32GetDatum(slot)),
		IDEM_VALUE(Int64GetDatum(batch)), IDEM_VALUE(Int64GetDatum(((Delivery *) llast(deliveries))->seq))
	});
	return deliveries;
}
