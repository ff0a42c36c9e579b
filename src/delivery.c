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
 * is flushed first, unless all that could be read is on the disk: to wait for the
 * disk once more than the commit does is dearer than a batch.
 *-------------------------------------------------------------------------
 */
#include "reading.h"
#include "relation.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"

#define MAX_BATCH_EVENTS 10000

/* A position is written without a batch when it has passed so many events */
#define EVENTS_A_STEP 4096

/* Look at no more than so many events that are not handed out */
#define MAX_EFFORT 500000

/* Columns of idem_fetch_events_result */
enum
{
	OUT_BATCH, OUT_ID, OUT_SEQ, OUT_TENANT_ID, OUT_AGGREGATETYPE, OUT_AGGREGATEID, OUT_TYPE,
	OUT_PAYLOAD, OUT_HEADERS, OUT_ATTEMPT, OUT_CREATED_AT
};

/* The arguments, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_WORKER, ARG_MAX_EVENTS, ARG_LEASE
};

/* What one slot contributes to a batch */
typedef struct Handout
{
	Position	position;
	int			deliveries;
	List	   *parked;			/* of Delivery: those that had failed */
} Handout;

typedef struct Fetch
{
	IdemCall   *call;
	Subscription *subscription;
	Reading		reading;
	Datum		worker;
	TimestampTz lease_until;
	int64		batch;			/* its number; 0: nothing is in it yet */
	XLogRecPtr	read_upto;		/* where the server's log ended when the last of it was read */
	List	   *handouts;		/* of Handout */
} Fetch;


/* ---------- hand out ---------- */

/* A batch is numbered as soon as something is in it */
static int64
new_batch(Fetch *fetch)
{
	return nextval_internal(relation_oid(fetch->call->house, "idem_batch_seq"), false);
}

/* Hand an event out: it goes into the result as it lies in the log, without a copy in between */
static void
hand_out(void *taker, Delivery *delivery)
{
	Fetch	   *fetch = taker;
	IdemCall   *call = fetch->call;

	if (fetch->batch == 0)
		fetch->batch = new_batch(fetch);
	idem_put(call, OUT_BATCH, Int64GetDatum(fetch->batch));
	idem_put_nullable(call, OUT_ID, delivery->columns[EVENT_ID - 1]);
	idem_put(call, OUT_SEQ, Int64GetDatum(delivery->seq));
	for (int i = 0; i <= EVENT_HEADERS - EVENT_TENANT_ID; i++)
		idem_put_nullable(call, OUT_TENANT_ID + i, delivery->columns[EVENT_TENANT_ID - 1 + i]);
	idem_put(call, OUT_ATTEMPT, Int32GetDatum(delivery->attempt));
	idem_put_nullable(call, OUT_CREATED_AT, delivery->columns[EVENT_CREATED_AT - 1]);
	idem_emit(call);
}

static void
hand_out_list(Fetch *fetch, Handout *handout, List *deliveries)
{
	ListCell   *cell;

	foreach(cell, deliveries)
	{
		Delivery   *delivery = lfirst(cell);

		hand_out(fetch, delivery);
		handout->deliveries++;
		if (delivery->parked)
			handout->parked = lappend(handout->parked, delivery);
	}
}

static void
add_handout(Fetch *fetch, const Handout *handout)
{
	Handout    *added = palloc(sizeof(Handout));

	*added = *handout;
	fetch->handouts = lappend(fetch->handouts, added);
	fetch->reading.left -= handout->deliveries;
	fetch->read_upto = GetXLogInsertRecPtr();
}


/* ---------- again ---------- */

/* An event that nobody lives to acknowledge */
static void
bury_killer(Fetch *fetch, Position *position, Delivery *killer)
{
	killer->attempt--;			/* it is not handed out this time */
	bury(fetch->call, fetch->subscription, position->slot, killer,
		 CStringGetTextDatum(psprintf("not acknowledged %d times", killer->attempt)));
	position_pass(position);
	position->deliveries = 0;
}

/* This event is the last one that is handed out */
static void
cut_after(Position *position, const Delivery *last)
{
	position->upto = last->seq;
	if (!last->beyond)
		position->next.seen = NULL;
}

/* Of what came out of the log and kills its workers, the first half; alone, it dies */
static List *
narrow(Fetch *fetch, Position *position, List *deliveries)
{
	if (list_length(deliveries) > 1 && position->deliveries >= SUSPICIOUS_DELIVERY)
	{
		position->cap = list_length(deliveries) / 2;
		deliveries = list_truncate(deliveries, position->cap);
		cut_after(position, llast(deliveries));
	}
	else if (list_length(deliveries) == 1 && position->deliveries > idem_max_attempts)
	{
		bury_killer(fetch, position, linitial(deliveries));
		return NIL;
	}
	return deliveries;
}

/* Parked events of the slot that its batch has */
static List *
parked_out(Fetch *fetch, const Position *position)
{
	if (!fetch->reading.failed)
		return NIL;
	return parked_of_batch(fetch->call, fetch->subscription, position->slot,
						   DatumGetInt64(position->batch.value));
}

/*
 * What a batch had of a slot whose lease is over, or a part of it.  If some of
 * it was parked and comes for the third time, it goes alone: one of the two may
 * be deadly, and must not take an innocent one along.
 */
static List *
take_abandoned(Fetch *fetch, Position *position)
{
	Reading    *reading = &fetch->reading;
	List	   *parked = parked_out(fetch, position);
	bool		alone = !position_has_out(position);
	List	   *deliveries;

	if (parked != NIL && ((Delivery *) linitial(parked))->attempt >= SUSPICIOUS_DELIVERY)
		position_keep_back(position);
	parked = parked_narrow(fetch->call, fetch->subscription, position->slot,
						   DatumGetInt64(position->batch.value), parked, alone, reading->left);
	deliveries = reading_again(reading, position, Max(reading->left - list_length(parked), 1));
	return list_concat(parked, narrow(fetch, position, deliveries));
}

/* All that its worker has of a slot, as it is; he who asks again lives */
static List *
take_again(Fetch *fetch, Position *position)
{
	return list_concat(parked_out(fetch, position),
					   reading_again(&fetch->reading, position, MAX_BATCH_EVENTS));
}


/* ---------- fetch ---------- */

/* Near which event a position is, by its window and in it */
static int64
reached(const Position *position)
{
	return position->lo.seq + Max(position->lo.seq, position->pos);
}

/*
 * Events of a slot that nobody has: those that failed and are due, and new
 * ones.  However many are due again, half of the room is for new ones.
 */
static void
take_next(Fetch *fetch, Handout *handout)
{
	Reading    *reading = &fetch->reading;
	Position   *position = &handout->position;
	int			room = position->cap > 0 ? Min(reading->left, position->cap) : reading->left;
	List	   *parked = NIL;

	if (reading->failed)
		parked = parked_due(fetch->call, fetch->subscription, position->slot, room);
	handout->deliveries = reading_next(reading, position, Max(room - list_length(parked), room / 2),
									   fetch->batch == 0 && parked == NIL);
	hand_out_list(fetch, handout, list_truncate(parked, room - handout->deliveries));
}

/*
 * Add what a slot has to the batch.  The slot is held.  What was out and is
 * taken back is written down in any case, or it would be out for ever.
 */
static void
take_slot(Fetch *fetch, const Position *position)
{
	Handout		handout = {.position = *position};
	bool		was_out = !position->batch.isnull;

	fetch->reading.failed = slot_has_failed(fetch->call, fetch->subscription, position->slot);
	fetch->reading.passed = false;
	if (was_out)
		hand_out_list(fetch, &handout, take_abandoned(fetch, &handout.position));
	if (handout.deliveries == 0)
	{
		position_pass(&handout.position);
		position_take_back(&handout.position);
		take_next(fetch, &handout);
	}

	if (handout.deliveries > 0 || was_out || fetch->reading.passed ||
		reached(&handout.position) - reached(position) >= EVENTS_A_STEP)
		add_handout(fetch, &handout);
}

/* Has this worker a batch out? */
static NullableDatum
batch_of_worker(Fetch *fetch)
{
	PositionReader *reader = position_reader_open(fetch->call, fetch->subscription);
	NullableDatum batch = IDEM_NULL;

	for (int slot = 0; slot < fetch->subscription->slots && batch.isnull; slot++)
	{
		Position	position = position_reader_read(reader, slot);

		if (position_is_leased(&position, fetch->call->now) &&
			idem_same_text(position.worker.value, fetch->worker))
			batch = position.batch;
	}
	position_reader_close(reader);
	return batch;
}

/*
 * The batch that the worker has out, once more; false: nothing of it is left
 * to do, and it counts as acknowledged, or it is no longer his.
 */
static bool
take_batch(Fetch *fetch, int64 batch)
{
	BatchState	state;
	List	   *positions = batch_hold(fetch->call, fetch->subscription, batch, &state);
	bool		any = false;
	ListCell   *cell;

	if (state != BATCH_OUT)
		return state == BATCH_BUSY;
	fetch->batch = batch;
	foreach(cell, positions)
	{
		Handout		handout = {.position = *(Position *) lfirst(cell)};

		fetch->reading.failed = slot_has_failed(fetch->call, fetch->subscription, handout.position.slot);
		hand_out_list(fetch, &handout, take_again(fetch, &handout.position));
		any = any || handout.deliveries > 0;
		add_handout(fetch, &handout);
	}
	if (any)
		return true;
	fetch->batch = 0;
	fetch->handouts = NIL;
	foreach(cell, positions)
		batch_acknowledge(fetch->call, fetch->subscription, lfirst(cell));
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
	for (int i = 0; i < slots && fetch->reading.left > 0 && fetch->reading.bytes_left > 0; i++)
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

/* Give those slots their share of a new batch that have one */
static void
share_out(Fetch *fetch)
{
	int			parts = 0;
	ListCell   *cell;

	foreach(cell, fetch->handouts)
		parts += ((Handout *) lfirst(cell))->deliveries > 0;
	foreach(cell, fetch->handouts)
	{
		Handout    *handout = lfirst(cell);

		if (handout->deliveries == 0)
			continue;
		handout->position.batch = IDEM_VALUE(Int64GetDatum(fetch->batch));
		handout->position.worker = IDEM_VALUE(fetch->worker);
		handout->position.parts = parts;
	}
}

/* Write down what each slot hands out, or how far it was passed over */
static void
write_down(Fetch *fetch)
{
	ListCell   *cell;

	if (fetch->handouts == NIL)
		return;
	foreach(cell, fetch->handouts)
	{
		Handout    *handout = lfirst(cell);

		handout->position.lease_until = fetch->lease_until;
		position_append(fetch->call, fetch->subscription, &handout->position);
		parked_hand_out(fetch->call, fetch->subscription, handout->parked, fetch->batch);
	}
	if (idem_flushed_upto() < fetch->read_upto)
		XLogFlush(XactLastRecEnd);
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
	Fetch		fetch = {.call = call};
	int			max_events = arg_max_events(call);
	NullableDatum batch;

	fetch.worker = idem_arg_key(call, ARG_WORKER);
	(void) idem_arg_required(call, ARG_LEASE);
	fetch.lease_until = DatumGetTimestampTz(idem_arg_expiry(call, ARG_LEASE).value);
	idem_begin_rows(call);
	fetch.subscription = subscription_enter(call);
	if (fetch.subscription == NULL)
		return idem_leave_rows(call);

	fetch.reading = reading_begin(call, fetch.subscription, max_events, MAX_EFFORT, hand_out, &fetch);
	batch = batch_of_worker(&fetch);
	if (batch.isnull || !take_batch(&fetch, DatumGetInt64(batch.value)))
	{
		take_free_slots(&fetch);
		share_out(&fetch);
	}
	reading_end(&fetch.reading);
	write_down(&fetch);
	return idem_leave_rows(call);
}
