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

/* One event of the same key */
#define SAME_KEY(a, b) \
	a ".tenant_id = " b ".tenant_id AND " a ".aggregatetype = " b ".aggregatetype" \
	" AND " a ".aggregateid = " b ".aggregateid"

static IdemQuery select_any = IDEM_QUERY(
	"SELECT FROM @schema@.idem_parked_event WHERE subscription = $1"
	" UNION ALL SELECT FROM @schema@.idem_dead_event WHERE subscription = $1 LIMIT 1",
	TEXTOID);

/* Which of these numbers were parked or given up before */
static IdemQuery select_known = IDEM_QUERY(
	"SELECT seq FROM @schema@.idem_parked_event WHERE subscription = $1 AND seq = ANY ($2)"
	" UNION ALL SELECT seq FROM @schema@.idem_dead_event WHERE subscription = $1 AND seq = ANY ($2)",
	TEXTOID, INT8ARRAYOID);

static IdemQuery select_key = IDEM_QUERY(
	"SELECT FROM @schema@.idem_parked_event WHERE subscription = $1 AND slot = $2"
	" AND tenant_id = $3 AND aggregatetype = $4 AND aggregateid = $5 LIMIT 1",
	TEXTOID, INT4OID, TEXTOID, VARCHAROID, VARCHAROID);

static IdemQuery insert_parked = IDEM_QUERY(
	"INSERT INTO @schema@.idem_parked_event (id, tenant_id, aggregatetype, aggregateid, type,"
	" payload, headers, created_at, seq, subscription, slot, attempts, next_at, error, parked_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
	" ON CONFLICT DO NOTHING",
	UUIDOID, TEXTOID, VARCHAROID, VARCHAROID, VARCHAROID, JSONBOID, JSONBOID, TIMESTAMPTZOID,
	INT8OID, TEXTOID, INT4OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID);

/* The first of each key that is due, with those that follow it, in order */
static IdemQuery select_due = IDEM_QUERY(
	"SELECT " DELIVERY_COLUMNS " FROM"
	" (SELECT f.* FROM (SELECT * FROM @schema@.idem_parked_event"
	" WHERE subscription = $1 AND slot = $2 AND next_at <= $3 ORDER BY next_at LIMIT $4) AS head,"
	" LATERAL (SELECT * FROM @schema@.idem_parked_event p WHERE p.subscription = $1 AND p.slot = $2"
	" AND " SAME_KEY("p", "head") " AND p.seq >= head.seq ORDER BY p.seq LIMIT $4) AS f"
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

static IdemQuery delete_batch = IDEM_QUERY(
	"DELETE FROM @schema@.idem_parked_event WHERE subscription = $1 AND batch = $2",
	TEXTOID, INT8OID);

/* Whoever has nobody before him any more is the first of his key */
static IdemQuery update_heads = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event h SET next_at = $2"
	" WHERE subscription = $1 AND next_at IS NULL AND batch IS NULL AND NOT EXISTS"
	" (SELECT FROM @schema@.idem_parked_event p WHERE p.subscription = $1 AND p.slot = h.slot"
	" AND " SAME_KEY("p", "h") " AND p.seq < h.seq)",
	TEXTOID, TIMESTAMPTZOID);

/* It failed again: the first of its key waits, and those behind it are not out */
static IdemQuery update_failed = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event SET batch = NULL, next_at = $3, error = $4"
	" WHERE subscription = $1 AND seq = $2",
	TEXTOID, INT8OID, TIMESTAMPTZOID, TEXTOID);
static IdemQuery update_behind = IDEM_QUERY(
	"UPDATE @schema@.idem_parked_event b SET batch = NULL, next_at = NULL, attempts = 0"
	" FROM @schema@.idem_parked_event f WHERE f.subscription = $1 AND f.seq = $2"
	" AND b.subscription = $1 AND b.slot = f.slot AND " SAME_KEY("b", "f") " AND b.seq > f.seq",
	TEXTOID, INT8OID);

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

/* 1 s, 2 s, 4 s, ... an hour, give or take a quarter */
static IdemQuery select_backoff = IDEM_QUERY(
	"SELECT $1 + make_interval(secs => least(3600, power(2, least($2, 20) - 1)) * (0.75 + random() / 2))",
	TIMESTAMPTZOID, INT4OID);

static IdemQuery select_failed = IDEM_QUERY(
	"SELECT true FROM @schema@.idem_parked_event WHERE subscription = $1 AND id = $2 AND error IS NOT NULL"
	" UNION ALL SELECT false FROM @schema@.idem_dead_event WHERE subscription = $1 AND id = $2 LIMIT 1",
	TEXTOID, UUIDOID);

static IdemQuery revive = IDEM_QUERY(
	"WITH gone AS (DELETE FROM @schema@.idem_dead_event WHERE subscription = $1 AND id = $2 RETURNING *)"
	" INSERT INTO @schema@.idem_parked_event (subscription, seq, slot, id, tenant_id, aggregatetype,"
	" aggregateid, type, payload, headers, created_at, attempts, next_at, error, parked_at)"
	" SELECT subscription, seq, slot, id, tenant_id, aggregatetype, aggregateid, type, payload,"
	" headers, created_at, 0, $3, error, $3 FROM gone",
	TEXTOID, UUIDOID, TIMESTAMPTZOID);

static IdemQuery select_dead_slot = IDEM_QUERY(
	"SELECT slot FROM @schema@.idem_dead_event WHERE subscription = $1 AND id = $2",
	TEXTOID, UUIDOID);


/* ---------- deliveries ---------- */

Delivery *
delivery_of_row(const IdemRow *row, int32 attempt)
{
	Delivery   *delivery = palloc(sizeof(Delivery));

	for (int i = 0; i < EVENT_SEQ; i++)
		delivery->columns[i] = IDEM_NULLABLE(row, i + 1);
	delivery->seq = DatumGetInt64(IDEM_COLUMN(row, EVENT_SEQ));
	delivery->attempt = attempt;
	delivery->parked = false;
	return delivery;
}

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
		deliveries = lappend(deliveries, delivery);
	}
	return deliveries;
}


/* ---------- parking ---------- */

bool
parked_any(IdemCall *call, const Subscription *subscription)
{
	return idem_run(call, &select_any, (NullableDatum[]) {IDEM_VALUE(subscription->name)}) > 0;
}

static bool
key_is_parked(IdemCall *call, const Subscription *subscription, int slot, const Delivery *delivery)
{
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int32GetDatum(slot)),
		delivery->columns[EVENT_TENANT_ID - 1],
		delivery->columns[EVENT_AGGREGATETYPE - 1],
		delivery->columns[EVENT_AGGREGATEID - 1]
	};

	return idem_run(call, &select_key, args) > 0;
}

static void
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

/* The numbers of these events that were parked or given up before */
static List *
known_numbers(IdemCall *call, const Subscription *subscription, List *deliveries)
{
	Datum	   *numbers = palloc(sizeof(Datum) * list_length(deliveries));
	List	   *known = NIL;
	int			n = 0;
	uint64		found;
	ListCell   *cell;

	foreach(cell, deliveries)
		numbers[n++] = ((Delivery *) lfirst(cell))->columns[EVENT_SEQ - 1].value;
	found = idem_run(call, &select_known, (NullableDatum[]) {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(PointerGetDatum(construct_array(numbers, n, INT8OID, 8, true, TYPALIGN_DOUBLE)))
	});
	for (uint64 row = 0; row < found; row++)
	{
		int64	   *number = palloc(sizeof(int64));

		*number = DatumGetInt64(idem_result(call, row, 1).value);
		known = lappend(known, number);
	}
	return known;
}

static bool
is_known(List *known, int64 number)
{
	ListCell   *cell;

	foreach(cell, known)
	{
		if (*(int64 *) lfirst(cell) == number)
			return true;
	}
	return false;
}

List *
parked_filter(IdemCall *call, const Subscription *subscription, int slot, List *deliveries)
{
	List	   *left = NIL;
	List	   *known;
	ListCell   *cell;

	if (deliveries == NIL)
		return NIL;
	known = known_numbers(call, subscription, deliveries);
	foreach(cell, deliveries)
	{
		Delivery   *delivery = lfirst(cell);

		if (is_known(known, delivery->seq))
			continue;
		if (key_is_parked(call, subscription, slot, delivery))
			park(call, subscription, slot, delivery, 0, IDEM_NULL, IDEM_NULL);
		else
			left = lappend(left, delivery);
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
	NullableDatum args[] = {
		IDEM_VALUE(subscription->name),
		IDEM_VALUE(Int64GetDatum(batch))
	};

	if (idem_run(call, &delete_batch, args) > 0)
		promote(call, subscription);
}


/* ---------- failures ---------- */

/* The arguments, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_BATCH, ARG_ID, ARG_ERROR, ARG_DELAY, ARG_REDRIVEN = ARG_BATCH
};

/* Columns of idem_retry_event_result */
enum
{
	RETRY_OUTCOME, RETRY_ATTEMPTS, RETRY_NEXT_AT
};

/* An event that failed: where it was handed out, with those behind it there */
typedef struct Failure
{
	int			slot;
	Delivery   *event;
	List	   *behind;			/* of Delivery: later ones of its key, of the log */
} Failure;

static bool
has_id(const Delivery *delivery, Datum id)
{
	return DatumGetBool(DirectFunctionCall2(uuid_eq, delivery->columns[EVENT_ID - 1].value, id));
}

/* Find the event among those of one slot; later ones of its key follow it */
static bool
find_among(List *deliveries, Datum id, Failure *failure)
{
	ListCell   *cell;

	foreach(cell, deliveries)
	{
		Delivery   *delivery = lfirst(cell);

		if (failure->event == NULL && has_id(delivery, id))
			failure->event = delivery;
		else if (failure->event != NULL && !delivery->parked &&
				 delivery_same_key(failure->event, delivery))
			failure->behind = lappend(failure->behind, delivery);
	}
	return failure->event != NULL;
}

/* What of the log a slot has handed out, and was not parked meanwhile */
static List *
handed_out(IdemCall *call, const Subscription *subscription, const Position *position)
{
	LogWindow	window = position_window(subscription, position);
	LogLimits	limits = {position->pos, position->upto, INT_MAX - 1, PG_INT64_MAX};
	List	   *deliveries = NIL;
	List	   *left = NIL;
	List	   *known;
	ListCell   *cell;

	if (position->upto <= position->pos || window.hi == NULL)
		return NIL;
	limits.events = 10000;
	foreach(cell, log_read(call, &window, &limits).events)
		deliveries = lappend(deliveries, delivery_of_row(lfirst(cell), position->deliveries));
	if (deliveries == NIL)
		return NIL;
	known = known_numbers(call, subscription, deliveries);
	foreach(cell, deliveries)
	{
		if (!is_known(known, ((Delivery *) lfirst(cell))->seq))
			left = lappend(left, lfirst(cell));
	}
	return left;
}

/* Find the event in the batch's slots */
static bool
find_failure(IdemCall *call, const Subscription *subscription, List *positions, Datum id,
			 Failure *failure)
{
	ListCell   *cell;

	foreach(cell, positions)
	{
		Position   *position = lfirst(cell);
		List	   *parked = parked_of_batch(call, subscription, position->slot,
											 DatumGetInt64(position->batch.value));
		ListCell   *inner;

		/* they are out already: not once more */
		foreach(inner, parked)
			((Delivery *) lfirst(inner))->attempt--;
		failure->slot = position->slot;
		if (find_among(list_concat(parked, handed_out(call, subscription, position)), id, failure))
			return true;
	}
	return false;
}

/* When an event comes again that failed now */
static Datum
next_attempt(IdemCall *call, int32 attempts)
{
	NullableDatum delay = idem_arg(call, ARG_DELAY);
	TimestampTz at;
	const char *wrong;

	if (delay.isnull)
	{
		(void) idem_run(call, &select_backoff, (NullableDatum[]) {
			IDEM_VALUE(TimestampTzGetDatum(call->now)), IDEM_VALUE(Int32GetDatum(attempts))
		});
		return idem_result(call, 0, 1).value;
	}
	wrong = idem_span_end(call, DatumGetIntervalP(delay.value), true, &at);
	if (wrong != NULL)
		idem_bad_argument(call, ARG_DELAY, wrong);
	return TimestampTzGetDatum(at);
}

/* Park the event, with what is behind it, until then */
static void
park_failure(IdemCall *call, const Subscription *subscription, const Failure *failure,
			 Datum next_at, Datum error)
{
	ListCell   *cell;

	if (failure->event->parked)
	{
		NullableDatum args[] = {
			IDEM_VALUE(subscription->name),
			IDEM_VALUE(Int64GetDatum(failure->event->seq)),
			IDEM_VALUE(next_at),
			IDEM_VALUE(error)
		};

		(void) idem_run(call, &update_failed, args);
		(void) idem_run(call, &update_behind, args);
	}
	else
		park(call, subscription, failure->slot, failure->event, failure->event->attempt,
			 IDEM_VALUE(next_at), IDEM_VALUE(error));
	foreach(cell, failure->behind)
		park(call, subscription, failure->slot, lfirst(cell), 0, IDEM_NULL, IDEM_NULL);
}

/* Give the event up, and let its key go on without it */
static void
bury_failure(IdemCall *call, const Subscription *subscription, const Failure *failure, Datum error)
{
	bury(call, subscription, failure->slot, failure->event, error);
	if (!failure->event->parked)
		return;
	(void) idem_run(call, &delete_parked, (NullableDatum[]) {
		IDEM_VALUE(subscription->name), IDEM_VALUE(Int64GetDatum(failure->event->seq))
	});
	promote(call, subscription);
}

/* Neither in the batch nor parked from it */
pg_noreturn static void
raise_not_in_batch(Datum id, int64 batch)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("event %s is not in batch " INT64_FORMAT,
					DatumGetCString(DirectFunctionCall1(uuid_out, id)), batch),
			 errdetail("Only an event that is handed out can fail.")));
}

/* It was said before, or it is wrong */
static Datum
leave_unfound(IdemCall *call, const Subscription *subscription, Datum id, int64 batch)
{
	NullableDatum args[] = {IDEM_VALUE(subscription->name), IDEM_VALUE(id)};

	if (idem_run(call, &select_failed, args) == 0)
		raise_not_in_batch(id, batch);
	return idem_leave(call, "duplicate");
}

/*
 * idem_retry_event(subscription, batch, id, error, delay) -> outcome, attempts, next_at
 *
 * Errors: ID005 the batch is somebody else's, ID006, 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_retry_event);
Datum
idem_retry_event(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	int64		batch = DatumGetInt64(idem_arg_required(call, ARG_BATCH).value);
	Datum		id = idem_arg_required(call, ARG_ID).value;
	Datum		error = idem_arg_required(call, ARG_ERROR).value;
	Failure		failure = {0};
	Subscription *subscription = subscription_enter(call);
	List	   *positions;
	bool		acked;
	Datum		next_at;

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	positions = batch_hold(call, subscription, batch, &acked);
	if (call->busy)
		return idem_leave(call, "in_progress");
	if (acked || !find_failure(call, subscription, positions, id, &failure))
		return leave_unfound(call, subscription, id, batch);

	idem_put(call, RETRY_ATTEMPTS, Int32GetDatum(failure.event->attempt));
	if (failure.event->attempt >= idem_max_attempts)
	{
		bury_failure(call, subscription, &failure, error);
		return idem_leave(call, "dead");
	}
	next_at = next_attempt(call, failure.event->attempt);
	park_failure(call, subscription, &failure, next_at, error);
	idem_put(call, RETRY_NEXT_AT, next_at);
	return idem_leave(call, "parked");
}

/*
 * idem_redrive_event(subscription, id) -> outcome
 *
 * Errors: ID006 no such subscription or event, 22004.
 */
PG_FUNCTION_INFO_V1(idem_redrive_event);
Datum
idem_redrive_event(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		id = idem_arg_required(call, ARG_REDRIVEN).value;
	Subscription *subscription = subscription_enter(call);
	NullableDatum args[3];
	int			pause_ms = 1;
	int			slot;

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	args[0] = IDEM_VALUE(subscription->name);
	args[1] = IDEM_VALUE(id);
	args[2] = IDEM_VALUE(TimestampTzGetDatum(call->now));
	if (idem_run(call, &select_dead_slot, args) > 0)
	{
		slot = DatumGetInt32(idem_result(call, 0, 1).value);
		while (!slot_hold(call, subscription, slot))
		{
			if (!idem_pause(call, &pause_ms))
				return idem_leave(call, "in_progress");
		}
		if (idem_run(call, &revive, args) > 0)
			return idem_leave(call, "redriven");
	}
	if (idem_run(call, &select_failed, args) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("subscription \"%s\" has no dead event %s",
						TextDatumGetCString(subscription->name),
						DatumGetCString(DirectFunctionCall1(uuid_out, id))),
				 errdetail("Only an event that was given up can be redriven.")));
	return idem_leave(call, "duplicate");
}
