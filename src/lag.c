/*-------------------------------------------------------------------------
 * lag.c
 *	  How far each subscription is behind, and why.
 *
 * Nothing here counts events: how many are behind is the difference of two
 * numbers, and the oldest one is the first that the next fetch would find.
 *-------------------------------------------------------------------------
 */
#include "ahead.h"

#include "catalog/pg_type.h"
#include "utils/array.h"

/* Columns of the result */
enum
{
	LAG_SUBSCRIPTION, LAG_EVENTS_BEHIND, LAG_OLDEST_UNDELIVERED, LAG_LEASED_SLOTS, LAG_HOLDERS,
	LAG_PARKED, LAG_RETRYING, LAG_DEAD, LAG_WHY
};

static IdemQuery select_names = IDEM_PLAIN_QUERY(
	"SELECT subscription FROM @schema@.idem_subscription ORDER BY subscription");

static IdemQuery count_failed = IDEM_QUERY(
	"SELECT count(*), count(*) FILTER (WHERE batch IS NOT NULL OR next_at <= $2), min(created_at),"
	" (SELECT count(*) FROM @schema@.idem_dead_event WHERE subscription = $1)"
	" FROM @schema@.idem_parked_event WHERE subscription = $1",
	TEXTOID, TIMESTAMPTZOID);

/* What the slots of a subscription say together */
typedef struct Lag
{
	int64		reached;		/* the least of all slots */
	NullableDatum oldest;		/* timestamptz */
	int			leased;
	int			overdue;		/* out, and their lease is over */
	int			waiting;		/* something to fetch, and nobody has it */
	List	   *holders;		/* of text */
} Lag;

static void
note_holder(Lag *lag, const Position *position)
{
	ListCell   *cell;

	foreach(cell, lag->holders)
	{
		if (idem_same_text(PointerGetDatum(lfirst(cell)), position->worker.value))
			return;
	}
	lag->holders = lappend(lag->holders, DatumGetPointer(position->worker.value));
}

static void
note_oldest(Lag *lag, NullableDatum at)
{
	if (at.isnull)
		return;
	if (lag->oldest.isnull ||
		DatumGetTimestampTz(at.value) < DatumGetTimestampTz(lag->oldest.value))
		lag->oldest = at;
}

static void
note_slot(IdemCall *call, Subscription *subscription, int slot, Lag *lag)
{
	Position	position = position_read(call, subscription, slot);
	AheadOf		ahead = ahead_of(call, subscription, &position);

	if (!position.batch.isnull && position.lease_until > call->now)
	{
		lag->leased++;
		note_holder(lag, &position);
	}
	else if (!position.batch.isnull)
		lag->overdue++;
	else if (ahead.first != NULL || !ahead.all)
		lag->waiting++;
	if (ahead.first != NULL)
	{
		note_oldest(lag, ahead.first->columns[EVENT_CREATED_AT - 1]);
		lag->reached = Min(lag->reached, ahead.first->seq - 1);
	}
	else if (!ahead.all)
		lag->reached = Min(lag->reached, ahead.reached);
}

/* Why nothing moves; the first that is true */
static const char *
reason(const Lag *lag, int64 parked)
{
	if (lag->overdue > 0)
		return "a worker did not acknowledge, its lease is over, and nobody fetches";
	if (lag->waiting > 0)
		return "nobody fetches";
	if (lag->leased > 0)
		return "a worker is at it";
	if (parked > 0)
		return "only keys with an event that failed wait";
	return "all is delivered";
}

static Datum
array_of(List *texts)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(list_length(texts), 1));
	int			n = 0;
	ListCell   *cell;

	foreach(cell, texts)
		elements[n++] = PointerGetDatum(lfirst(cell));
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT));
}

static void
emit_lag(IdemCall *call, Subscription *subscription)
{
	int64		last = log_last_seq(call);
	Lag			lag = {.reached = last, .oldest = {0, true}};
	NullableDatum parked;

	for (int slot = 0; slot < subscription->slots; slot++)
		note_slot(call, subscription, slot, &lag);
	(void) idem_run(call, &count_failed, (NullableDatum[]) {
		IDEM_VALUE(subscription->name), IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
	parked = idem_result(call, 0, 1);
	note_oldest(&lag, idem_result(call, 0, 3));

	idem_put(call, LAG_SUBSCRIPTION, subscription->name);
	idem_put(call, LAG_EVENTS_BEHIND, Int64GetDatum(last - lag.reached));
	idem_put_nullable(call, LAG_OLDEST_UNDELIVERED, lag.oldest);
	idem_put(call, LAG_LEASED_SLOTS, Int32GetDatum(lag.leased));
	idem_put(call, LAG_HOLDERS, array_of(lag.holders));
	idem_put_nullable(call, LAG_PARKED, parked);
	idem_put_nullable(call, LAG_RETRYING, idem_result(call, 0, 2));
	idem_put_nullable(call, LAG_DEAD, idem_result(call, 0, 4));
	idem_put_text(call, LAG_WHY, reason(&lag, DatumGetInt64(parked.value)));
	idem_emit(call);
}

/*
 * idem_outbox_lags() -> rows
 */
PG_FUNCTION_INFO_V1(idem_outbox_lags);
Datum
idem_outbox_lags(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	List	   *names = NIL;
	uint64		n;
	ListCell   *cell;

	idem_begin_rows(call);
	n = idem_run(call, &select_names, NULL);
	for (uint64 row = 0; row < n; row++)
		names = lappend(names, DatumGetPointer(idem_result(call, row, 1).value));
	foreach(cell, names)
	{
		Subscription *subscription = subscription_look(call, PointerGetDatum(lfirst(cell)),
													   IDEM_SIGHT_LATEST);

		if (subscription != NULL)
			emit_lag(call, subscription);
	}
	return idem_leave_rows(call);
}
