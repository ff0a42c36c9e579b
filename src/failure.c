/*-------------------------------------------------------------------------
 * failure.c
 *	  An event failed: idem_retry_event, idem_redrive_event.
 *
 * The worker says so while the batch is his, and acknowledges the batch all the
 * same: what is parked was taken out of it.  A second worker who says the same
 * of the same event is told that it was said.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"

#include "catalog/pg_type.h"
#include "utils/fmgrprotos.h"

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
	Position   *position;
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

/* What of the log is out in the window that the position stands in, up to a number */
static List *
out_in_window(LogReader *reader, const Subscription *subscription, const Position *position,
			  int64 upto)
{
	LogWindow	window = position_window(subscription, position);
	LogLimits	limits = {
		.after = position->pos, .upto = upto, .events = INT_MAX / 2, .bytes = PG_INT64_MAX,
		.examine = INT_MAX
	};
	List	   *events = NIL;

	(void) log_read(reader, &window, &limits, log_take_copy, &events);
	return events;
}

/* What of the log a slot has handed out, and was not parked meanwhile */
static List *
handed_out(IdemCall *call, const Subscription *subscription, const Position *position)
{
	Position	beyond = position_beyond(position);
	LogReader  *reader;
	List	   *deliveries;
	ListCell   *cell;

	if (!position_has_out(position))
		return NIL;
	reader = log_reader_open(call);
	if (position->next.seen == NULL)
		deliveries = out_in_window(reader, subscription, position, position->upto);
	else
		deliveries = list_concat(out_in_window(reader, subscription, position, PG_INT64_MAX),
								 out_in_window(reader, subscription, &beyond, position->upto));
	log_reader_close(reader);
	foreach(cell, deliveries)
		((Delivery *) lfirst(cell))->attempt = position->deliveries;
	return parked_unknown(call, subscription, deliveries);
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
		failure->position = position;
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
		park(call, subscription, failure->position->slot, failure->event, failure->event->attempt,
			 IDEM_VALUE(next_at), IDEM_VALUE(error));
	foreach(cell, failure->behind)
		park(call, subscription, failure->position->slot, lfirst(cell), 0, IDEM_NULL, IDEM_NULL);
}

/* Give the event up, and let its key go on without it */
static void
bury_failure(IdemCall *call, const Subscription *subscription, const Failure *failure, Datum error)
{
	if (failure->event->parked)
		parked_bury(call, subscription, failure->position->slot, failure->event, error);
	else
		bury(call, subscription, failure->position->slot, failure->event, error);
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
	BatchState	state;
	Datum		next_at;

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	positions = batch_demand(call, subscription, batch, &state);
	if (state == BATCH_BUSY)
		return idem_leave(call, "in_progress");
	if (state == BATCH_ACKED || !find_failure(call, subscription, positions, id, &failure))
		return leave_unfound(call, subscription, id, batch);

	/* a step, for those whose snapshot does not see what is parked now */
	position_append(call, subscription, failure.position);
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

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	args[0] = IDEM_VALUE(subscription->name);
	args[1] = IDEM_VALUE(id);
	args[2] = IDEM_VALUE(TimestampTzGetDatum(call->now));
	if (idem_run(call, &select_dead_slot, args) > 0)
	{
		if (!slot_hold_soon(call, subscription, DatumGetInt32(idem_result(call, 0, 1).value)))
			return idem_leave(call, "in_progress");
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
