/*-------------------------------------------------------------------------
 * delivery.c
 *	  Hand events out, and take the acknowledgement.
 *
 * A worker is given the next events of the slots that nobody has, under a
 * lease; nobody else is given anything of these slots until he acknowledges or
 * the lease is over.  So the events of a key are with one worker at a time, in
 * order.  One who sleeps through his lease finds another batch in his slots:
 * his acknowledgement fails, and with it the transaction that it stands in.
 *
 * What is handed out is written down before it leaves: (pos, upto] of a window
 * of the log.  Whoever gets it next gets exactly that, and an acknowledgement
 * is for exactly that, whatever was committed meanwhile.
 *
 * An event can kill its worker each time.  What comes back unacknowledged for
 * the third time is halved, and again, until the event stands alone; then it is
 * dead.  The halves that pass are let grow again.
 *
 * An event whose writer did not wait for its commit to reach the disk could be
 * handed out, acted upon, and be gone after a crash.  So the log of the server
 * is flushed first.
 *-------------------------------------------------------------------------
 */
#include "relation.h"
#include "subscription.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

#define MAX_BATCH_EVENTS 10000
#define MAX_BATCH_BYTES (8 * 1024 * 1024)

/* From this delivery on, a batch is halved */
#define SUSPICIOUS_DELIVERY 3

/* A position is written without a batch when it has passed so many events */
#define EVENTS_A_STEP 4096

/* Windows without anything for the slot that one fetch passes */
#define MAX_WINDOWS 64

/* Columns of idem_fetch_events_result */
enum
{
	OUT_BATCH, OUT_ID, OUT_SEQ, OUT_TENANT_ID, OUT_AGGREGATETYPE, OUT_AGGREGATEID, OUT_TYPE,
	OUT_PAYLOAD, OUT_HEADERS, OUT_ATTEMPT, OUT_CREATED_AT
};

/* The arguments, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_WORKER, ARG_MAX_EVENTS, ARG_LEASE, ARG_BATCH = ARG_WORKER
};

/* What one slot contributes to a batch */
typedef struct Handout
{
	Position	position;
	List	   *deliveries;		/* of Delivery */
} Handout;

typedef struct Fetch
{
	IdemCall   *call;
	Subscription *subscription;
	Datum		worker;
	TimestampTz lease_until;
	int			left;			/* events that still fit */
	int64		bytes_left;
	bool		any_parked;
	bool		passed;			/* the slot in hand had events that were parked */
	LogPoint	now;			/* seen is NULL: not asked for yet */
	List	   *handouts;		/* of Handout */
} Fetch;


static void acknowledge(IdemCall *call, const Subscription *subscription, Position *position);


/* ---------- windows ---------- */

/* Open the next window of a slot: up to a mark some way off, or up to now */
static void
open_window(Fetch *fetch, Position *position)
{
	int64		distance = (int64) fetch->left * fetch->subscription->slots * 2;

	position->pos = 0;
	if (log_next_mark(fetch->call, &position->lo, position->lo.seq + distance, &position->hi))
		return;
	if (fetch->now.seen == NULL)
		fetch->now = log_now(fetch->call);
	position->hi = fetch->now;
}

/* The window is done; false: there is no later one */
static bool
close_window(const Fetch *fetch, Position *position)
{
	bool		last = position->hi.seen == fetch->now.seen;

	position->lo = position->hi;
	position->hi.seen = NULL;
	position->pos = 0;
	return !last;
}

static List *
deliveries_of(Fetch *fetch, const Position *position, List *rows)
{
	List	   *deliveries = NIL;
	ListCell   *cell;

	foreach(cell, rows)
		deliveries = lappend(deliveries, delivery_of_row(lfirst(cell), position->deliveries));
	if (fetch->any_parked)
		deliveries = parked_filter(fetch->call, fetch->subscription, position->slot, deliveries);
	fetch->passed = fetch->passed || list_length(deliveries) < list_length(rows);
	return deliveries;
}

/*
 * Read on in the slot's window, within its limits; *more: there may be others
 * in it.  upto says how far it was read.
 */
static List *
read_on(Fetch *fetch, Position *position, int most, int64 upto, bool *more)
{
	LogWindow	window = position_window(fetch->subscription, position);
	LogLimits	limits = {position->pos, upto, most, Max(fetch->bytes_left, 1)};
	LogBatch	batch = log_read(fetch->call, &window, &limits);

	*more = batch.more;
	position->upto = batch.upto;
	fetch->bytes_left -= batch.bytes;
	return deliveries_of(fetch, position, batch.events);
}

/* How many events of a slot may go into the batch */
static int
room_for(const Fetch *fetch, const Position *position, List *already)
{
	int			room = fetch->left - list_length(already);

	return position->cap > 0 ? Min(room, position->cap) : room;
}

/* Events of the slot that were never handed out */
static List *
read_new(Fetch *fetch, Position *position, List *already)
{
	int			most = room_for(fetch, position, already);

	position->deliveries = 1;
	for (int windows = 0; most > 0 && windows < MAX_WINDOWS; windows++)
	{
		List	   *deliveries;
		bool		more;

		if (position->hi.seen == NULL)
			open_window(fetch, position);
		deliveries = read_on(fetch, position, most, PG_INT64_MAX, &more);
		if (deliveries != NIL)
			return deliveries;
		position->pos = position->upto;
		if (!more && !close_window(fetch, position))
			break;
	}
	position->upto = position->pos;
	return NIL;
}


/* ---------- again ---------- */

/* An event that nobody lives to acknowledge */
static void
bury_killer(Fetch *fetch, Position *position, const Delivery *killer)
{
	bury(fetch->call, fetch->subscription, position->slot, killer,
		 CStringGetTextDatum(psprintf("not acknowledged %d times", position->deliveries)));
	position->pos = position->upto;
	position->deliveries = 0;
	position_take_back(position);
}

/*
 * What of the log was handed out of the slot and not acknowledged; of what is
 * suspicious, the first half.  It may come out smaller than it was, never
 * greater.
 */
static List *
read_again(Fetch *fetch, Position *position, bool suspicious)
{
	bool		more;
	int64		upto = position->upto;
	List	   *deliveries;

	if (position->upto <= position->pos)
		return NIL;
	position->deliveries++;
	deliveries = read_on(fetch, position, MAX_BATCH_EVENTS, upto, &more);
	if (suspicious && position->deliveries >= SUSPICIOUS_DELIVERY && list_length(deliveries) > 1)
	{
		position->cap = list_length(deliveries) / 2;
		deliveries = list_truncate(deliveries, position->cap);
		position->upto = ((Delivery *) llast(deliveries))->seq;
	}
	else if (!more)
		position->upto = upto;
	return deliveries;
}

/*
 * All that was handed out of the slot.  It is suspicious if its lease was over;
 * a worker that asks again lives.
 */
static List *
take_again(Fetch *fetch, Position *position, bool suspicious)
{
	List	   *parked = NIL;
	List	   *deliveries;

	if (fetch->any_parked)
		parked = parked_of_batch(fetch->call, fetch->subscription, position->slot,
								 DatumGetInt64(position->batch.value));
	deliveries = read_again(fetch, position, suspicious);
	if (suspicious && list_length(deliveries) == 1 && position->deliveries > idem_max_attempts)
	{
		bury_killer(fetch, position, linitial(deliveries));
		fetch->any_parked = true;
		deliveries = NIL;
	}
	return list_concat(parked, deliveries);
}


/* ---------- fetch ---------- */

/* Near which event a position is */
static int64
reached(const Position *position)
{
	return Max(position->lo.seq, position->pos);
}

static void
add_handout(Fetch *fetch, const Position *position, List *deliveries)
{
	Handout    *handout = palloc(sizeof(Handout));

	handout->position = *position;
	handout->deliveries = deliveries;
	fetch->handouts = lappend(fetch->handouts, handout);
	fetch->left -= list_length(deliveries);
}

/*
 * Add what a slot has to the batch.  The slot is held.
 */
static void
take_slot(Fetch *fetch, Position *position)
{
	int64		before = reached(position) + position->lo.seq;
	List	   *deliveries = NIL;

	fetch->passed = false;
	if (!position->batch.isnull)
		deliveries = take_again(fetch, position, true);
	if (deliveries == NIL)
	{
		position->pos = Max(position->pos, position->upto);
		position_take_back(position);
		if (fetch->any_parked)
			deliveries = parked_due(fetch->call, fetch->subscription, position->slot,
									room_for(fetch, position, NIL));
		deliveries = list_concat(deliveries, read_new(fetch, position, deliveries));
	}

	if (deliveries != NIL || fetch->passed || reached(position) + position->lo.seq - before >= EVENTS_A_STEP)
		add_handout(fetch, position, deliveries);
}

/* Has this worker a batch out? */
static NullableDatum
batch_of_worker(Fetch *fetch)
{
	for (int slot = 0; slot < fetch->subscription->slots; slot++)
	{
		Position	position = position_read(fetch->call, fetch->subscription, slot);

		if (position_is_leased(&position, fetch->call->now) &&
			idem_same_text(position.worker.value, fetch->worker))
			return position.batch;
	}
	return IDEM_NULL;
}

/*
 * The batch that the worker has out, once more; false: nothing of it is left
 * to do, and it counts as acknowledged.
 */
static bool
take_batch(Fetch *fetch, int64 batch)
{
	bool		acked;
	bool		any = false;
	List	   *positions = batch_hold(fetch->call, fetch->subscription, batch, &acked);
	ListCell   *cell;

	foreach(cell, positions)
	{
		Position   *position = lfirst(cell);
		List	   *deliveries = acked ? NIL : take_again(fetch, position, false);

		any = any || deliveries != NIL;
		add_handout(fetch, position, deliveries);
	}
	if (any || fetch->call->busy)
		return true;
	fetch->handouts = NIL;
	foreach(cell, positions)
	{
		if (!acked)
			acknowledge(fetch->call, fetch->subscription, lfirst(cell));
	}
	return false;
}

/* What is free, beginning at any slot, so that none has to stand back for ever */
static void
take_free_slots(Fetch *fetch)
{
	int			slots = fetch->subscription->slots;
	uint32		first;

	if (!pg_strong_random(&first, sizeof(first)))
		first = 0;
	for (int i = 0; i < slots && fetch->left > 0 && fetch->bytes_left > 0; i++)
	{
		int			slot = (int) ((first % slots + i) % slots);
		Position	position;

		CHECK_FOR_INTERRUPTS();
		if (!slot_hold(fetch->call, fetch->subscription, slot))
			continue;
		position = position_read(fetch->call, fetch->subscription, slot);
		if (position_is_leased(&position, fetch->call->now))
			slot_let_go(fetch->call, fetch->subscription, slot);
		else
			take_slot(fetch, &position);
	}
}

/* A new batch: give those slots their share of it that have one */
static int64
make_batch(Fetch *fetch)
{
	int64		batch = nextval_internal(relation_oid(fetch->call->house, "idem_batch_seq"),
										 false);
	int			parts = 0;
	ListCell   *cell;

	foreach(cell, fetch->handouts)
		parts += ((Handout *) lfirst(cell))->deliveries != NIL;
	foreach(cell, fetch->handouts)
	{
		Handout    *handout = lfirst(cell);

		if (handout->deliveries == NIL)
			continue;
		handout->position.batch = IDEM_VALUE(Int64GetDatum(batch));
		handout->position.worker = IDEM_VALUE(fetch->worker);
		handout->position.parts = parts;
	}
	return batch;
}

/* Write down what each slot hands out, or how far it was passed over */
static void
write_down(Fetch *fetch, int64 batch)
{
	ListCell   *cell;

	foreach(cell, fetch->handouts)
	{
		Handout    *handout = lfirst(cell);

		handout->position.lease_until = fetch->lease_until;
		position_append(fetch->call, fetch->subscription, &handout->position);
		parked_hand_out(fetch->call, fetch->subscription, handout->deliveries, batch);
	}
	XLogFlush(XactLastRecEnd);
}

static void
emit(IdemCall *call, int64 batch, const Delivery *delivery)
{
	idem_put(call, OUT_BATCH, Int64GetDatum(batch));
	idem_put_nullable(call, OUT_ID, delivery->columns[EVENT_ID - 1]);
	idem_put(call, OUT_SEQ, Int64GetDatum(delivery->seq));
	for (int i = 0; i <= EVENT_HEADERS - EVENT_TENANT_ID; i++)
		idem_put_nullable(call, OUT_TENANT_ID + i, delivery->columns[EVENT_TENANT_ID - 1 + i]);
	idem_put(call, OUT_ATTEMPT, Int32GetDatum(delivery->attempt));
	idem_put_nullable(call, OUT_CREATED_AT, delivery->columns[EVENT_CREATED_AT - 1]);
	idem_emit(call);
}

static void
emit_all(Fetch *fetch, int64 batch)
{
	ListCell   *cell;
	ListCell   *inner;

	foreach(cell, fetch->handouts)
	{
		foreach(inner, ((Handout *) lfirst(cell))->deliveries)
			emit(fetch->call, batch, lfirst(inner));
	}
}

/* How many events are asked for */
static int
arg_max_events(IdemCall *call)
{
	int32		events = DatumGetInt32(idem_arg_required(call, ARG_MAX_EVENTS).value);

	if (events < 1 || events > MAX_BATCH_EVENTS)
		idem_bad_argument(call, ARG_MAX_EVENTS, "A batch has 1 to 10000 events.");
	return events;
}

/*
 * idem_fetch_events(subscription, worker, max_events, lease) -> rows
 *
 * Errors: ID006, 22004, 22023, 40001.
 */
PG_FUNCTION_INFO_V1(idem_fetch_events);
Datum
idem_fetch_events(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Fetch		fetch = {.call = call, .bytes_left = MAX_BATCH_BYTES};
	NullableDatum batch;

	fetch.worker = idem_arg_key(call, ARG_WORKER);
	fetch.left = arg_max_events(call);
	(void) idem_arg_required(call, ARG_LEASE);
	fetch.lease_until = DatumGetTimestampTz(idem_arg_expiry(call, ARG_LEASE).value);
	idem_begin_rows(call);
	fetch.subscription = subscription_enter(call);
	if (fetch.subscription == NULL)
		return idem_leave_rows(call);

	fetch.any_parked = parked_any(call, fetch.subscription);
	batch = batch_of_worker(&fetch);
	if (batch.isnull || !take_batch(&fetch, DatumGetInt64(batch.value)))
	{
		take_free_slots(&fetch);
		batch = IDEM_VALUE(Int64GetDatum(fetch.handouts == NIL ? 0 : make_batch(&fetch)));
	}
	if (fetch.handouts != NIL)
	{
		write_down(&fetch, DatumGetInt64(batch.value));
		emit_all(&fetch, DatumGetInt64(batch.value));
	}
	return idem_leave_rows(call);
}


/* ---------- acknowledge ---------- */

List *
batch_positions(IdemCall *call, const Subscription *subscription, int64 batch)
{
	List	   *positions = NIL;

	for (int slot = 0; slot < subscription->slots; slot++)
	{
		Position   *position = palloc(sizeof(Position));

		*position = position_read(call, subscription, slot);
		if ((!position->batch.isnull && DatumGetInt64(position->batch.value) == batch) ||
			(!position->acked.isnull && DatumGetInt64(position->acked.value) == batch))
			positions = lappend(positions, position);
	}
	return positions;
}

pg_noreturn static void
raise_fenced(int64 batch)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_FENCED),
			 errmsg("the batch is no longer this worker's"),
			 errdetail("The lease of batch " INT64_FORMAT " was over and its events were handed out again, or the subscription was moved, or it was acknowledged long ago.", batch),
			 errhint("Roll back what was done with it, and fetch again.")));
}

/* Hold the slots of some positions, within the time to wait */
static bool
hold_slots(IdemCall *call, const Subscription *subscription, List *positions)
{
	int			pause_ms = 1;
	ListCell   *cell;

	foreach(cell, positions)
	{
		while (!slot_hold(call, subscription, ((Position *) lfirst(cell))->slot))
		{
			if (!idem_pause(call, &pause_ms))
				return false;
		}
	}
	return true;
}

List *
batch_hold(IdemCall *call, const Subscription *subscription, int64 batch, bool *acked)
{
	List	   *positions = batch_positions(call, subscription, batch);
	Position   *first;
	ListCell   *cell;

	*acked = false;
	if (!hold_slots(call, subscription, positions))
	{
		call->busy = true;
		return NIL;
	}
	positions = batch_positions(call, subscription, batch);
	if (positions == NIL)
		raise_fenced(batch);
	first = linitial(positions);
	*acked = first->batch.isnull || DatumGetInt64(first->batch.value) != batch;
	foreach(cell, positions)
	{
		Position   *position = lfirst(cell);
		bool		out = !position->batch.isnull && DatumGetInt64(position->batch.value) == batch;

		if (out == *acked)
			raise_fenced(batch);
	}
	if (!*acked && list_length(positions) != first->parts)
		raise_fenced(batch);
	return positions;
}

/* A size that passed may grow again, until it bounds nothing */
static int32
grow(int32 cap)
{
	return cap > 0 && cap < MAX_BATCH_EVENTS / 2 ? cap * 2 : 0;
}

static void
acknowledge(IdemCall *call, const Subscription *subscription, Position *position)
{
	position->acked = position->batch;
	position->pos = Max(position->pos, position->upto);
	position->cap = grow(position->cap);
	position->deliveries = 0;
	position_take_back(position);
	position_append(call, subscription, position);
}

/*
 * idem_ack_events(subscription, batch) -> outcome
 *
 * Errors: ID005 handed out to somebody else, ID006, 22004.
 */
PG_FUNCTION_INFO_V1(idem_ack_events);
Datum
idem_ack_events(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	int64		batch = DatumGetInt64(idem_arg_required(call, ARG_BATCH).value);
	Subscription *subscription = subscription_enter(call);
	bool		acked;
	List	   *positions;
	ListCell   *cell;

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	positions = batch_hold(call, subscription, batch, &acked);
	if (call->busy)
		return idem_leave(call, "in_progress");
	if (acked)
		return idem_leave(call, "duplicate");
	foreach(cell, positions)
		acknowledge(call, subscription, lfirst(cell));
	parked_acknowledge(call, subscription, batch);
	return idem_leave(call, "acked");
}


/* ---------- looking on ---------- */

Delivery *
delivery_first(IdemCall *call, Subscription *subscription, const Position *position)
{
	Fetch		fetch = {.call = call, .subscription = subscription, .left = 1,
						 .bytes_left = MAX_BATCH_BYTES};
	Position	ahead = *position;
	List	   *deliveries = read_new(&fetch, &ahead, NIL);

	return deliveries == NIL ? NULL : linitial(deliveries);
}

void
delivery_advance(IdemCall *call, Subscription *subscription, int slot)
{
	Fetch		fetch = {.call = call, .subscription = subscription, .left = 1,
						 .bytes_left = MAX_BATCH_BYTES};
	Position	position;
	int64		before;

	if (!slot_hold(call, subscription, slot))
		return;
	position = position_read(call, subscription, slot);
	before = position.lo.seq;
	if (position.batch.isnull && read_new(&fetch, &position, NIL) == NIL &&
		position.lo.seq > before)
		position_append(call, subscription, &position);
}

bool
delivery_is_due(IdemCall *call, Subscription *subscription)
{
	bool		any_parked = parked_any(call, subscription);

	for (int slot = 0; slot < subscription->slots; slot++)
	{
		Position	position = position_read(call, subscription, slot);

		if (position_is_leased(&position, call->now))
			continue;
		if (!position.batch.isnull ||
			(any_parked && parked_due(call, subscription, slot, 1) != NIL) ||
			delivery_first(call, subscription, &position) != NULL)
			return true;
	}
	return false;
}
