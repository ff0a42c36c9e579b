/*-------------------------------------------------------------------------
 * batch.c
 *	  What has become of a batch, and its acknowledgement.
 *
 * A batch lies in the slots that it was handed out from: each knows the batch
 * that is out and the one that was acknowledged last.  It is out as long as all
 * of its slots say so.  If one of them was given to somebody else meanwhile, the
 * whole batch is lost to its worker: he cannot acknowledge a part.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"

/* A bound on a batch that has grown to this is none */
#define NO_BOUND 5000

/* The arguments, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_BATCH
};


/* Is this the number of the batch? */
static bool
is_batch(NullableDatum number, int64 batch)
{
	return !number.isnull && DatumGetInt64(number.value) == batch;
}

/* The slots that a batch was handed out from, and where they stand now */
static List *
batch_positions(IdemCall *call, const Subscription *subscription, int64 batch)
{
	PositionReader *reader = position_reader_open(call, subscription);
	List	   *positions = NIL;

	for (int slot = 0; slot < subscription->slots; slot++)
	{
		Position	at = position_reader_read(reader, slot);
		Position   *position;

		if (!is_batch(at.batch, batch) && !is_batch(at.acked, batch))
			continue;
		position = palloc(sizeof(Position));
		*position = at;
		positions = lappend(positions, position);
	}
	position_reader_close(reader);
	return positions;
}

/* The same slots once more, now that they are held: no others can have joined */
static void
read_anew(IdemCall *call, const Subscription *subscription, List *positions)
{
	PositionReader *reader = position_reader_open(call, subscription);
	ListCell   *cell;

	foreach(cell, positions)
	{
		Position   *position = lfirst(cell);

		*position = position_reader_read(reader, position->slot);
	}
	position_reader_close(reader);
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
	ListCell   *cell;

	foreach(cell, positions)
	{
		if (!slot_hold_soon(call, subscription, ((Position *) lfirst(cell))->slot))
			return false;
	}
	return true;
}

/* What has become of the batch in these slots, which are held */
static BatchState
state_of(List *positions, int64 batch)
{
	int			parts = 0;
	int			out = 0;
	int			acked = 0;
	ListCell   *cell;

	foreach(cell, positions)
	{
		Position   *position = lfirst(cell);

		if (is_batch(position->batch, batch))
		{
			out++;
			parts = position->parts;
		}
		else
			acked += is_batch(position->acked, batch);
	}
	if (out > 0)
		return out == parts && acked == 0 ? BATCH_OUT : BATCH_LOST;
	return acked > 0 ? BATCH_ACKED : BATCH_LOST;
}

List *
batch_hold(IdemCall *call, const Subscription *subscription, int64 batch, BatchState *state)
{
	List	   *positions = batch_positions(call, subscription, batch);

	*state = BATCH_BUSY;
	if (!hold_slots(call, subscription, positions))
		return NIL;
	read_anew(call, subscription, positions);
	*state = state_of(positions, batch);
	return positions;
}

List *
batch_demand(IdemCall *call, const Subscription *subscription, int64 batch, BatchState *state)
{
	List	   *positions = batch_hold(call, subscription, batch, state);

	if (*state == BATCH_LOST)
		raise_fenced(batch);
	return positions;
}

/* A size that passed may grow again, until it bounds nothing */
static int32
grow(int32 cap)
{
	return cap > 0 && cap < NO_BOUND ? cap * 2 : 0;
}

void
batch_acknowledge(IdemCall *call, const Subscription *subscription, Position *position)
{
	position->acked = position->batch;
	position_pass(position);
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
	BatchState	state;
	List	   *positions;
	ListCell   *cell;

	if (subscription == NULL)
		return idem_leave(call, "in_progress");
	positions = batch_demand(call, subscription, batch, &state);
	if (state != BATCH_OUT)
		return idem_leave(call, state == BATCH_ACKED ? "duplicate" : "in_progress");
	foreach(cell, positions)
		batch_acknowledge(call, subscription, lfirst(cell));
	parked_acknowledge(call, subscription, batch);
	return idem_leave(call, "acked");
}
