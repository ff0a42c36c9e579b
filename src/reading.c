/*-------------------------------------------------------------------------
 * reading.c
 *	  Read on in a subscription's slots.
 *
 * A slot's next events come from a window of the log, between two snapshots.
 * How far a window reaches is chosen when it is opened: as far as now, or as a
 * mark some way off if the subscription is far behind.  It is read from pos
 * onward; when it has nothing more, its end is where the next one begins.
 *
 * A window never reaches back.  Snapshots of one reader are taken one after the
 * other, but a slot may have been at another reader's since ours was taken: the
 * end of the window must see all that its beginning sees, or what was
 * acknowledged would come again.
 *
 * A subscription that wants few types may have a million events before its
 * next one.  A reader looks at so many of them and no more; who hands nothing
 * out notes how far he came, so that the next one goes on there.
 *-------------------------------------------------------------------------
 */
#include "reading.h"

#include "miscadmin.h"

#define MAX_BATCH_BYTES (8 * 1024 * 1024)

/* Opening a window is as much effort as looking at so many events */
#define WINDOW_EFFORT 32


Reading
reading_begin(IdemCall *call, Subscription *subscription, int events, int effort)
{
	Reading		reading = {
		.call = call,
		.subscription = subscription,
		.left = events,
		.bytes_left = MAX_BATCH_BYTES,
		.effort = effort
	};

	return reading;
}

void
reading_end(Reading *reading)
{
	if (reading->reader != NULL)
		log_reader_close(reading->reader);
	reading->reader = NULL;
}


/* ---------- windows ---------- */

/* Open the next window of a slot: up to a mark some way off, or up to now */
static void
open_window(Reading *reading, Position *position)
{
	int64		distance = (int64) reading->left * reading->subscription->slots;

	reading->effort -= WINDOW_EFFORT;
	position->pos = 0;
	if (reading->now.seen == NULL || !log_follows(reading->now.seen, position->lo.seen))
		reading->now = log_now(reading->call);
	if (position->lo.seq + distance >= reading->now.seq ||
		!log_next_mark(reading->call, &position->lo, position->lo.seq + distance, &position->hi))
		position->hi = reading->now;
}

/* The window is done; false: there is no later one */
static bool
close_window(const Reading *reading, Position *position)
{
	bool		last = position->hi.seen == reading->now.seen;

	position->lo = position->hi;
	position->hi.seen = NULL;
	position->pos = 0;
	return !last;
}


/* ---------- events ---------- */

static List *
deliveries_of(Reading *reading, const Position *position, List *events)
{
	List	   *deliveries = events;
	ListCell   *cell;

	foreach(cell, events)
		((Delivery *) lfirst(cell))->attempt = position->deliveries;
	if (reading->failed)
		deliveries = parked_filter(reading->call, reading->subscription, position->slot, events);
	reading->passed = reading->passed || list_length(deliveries) < list_length(events);
	return deliveries;
}

/* Read in the slot's window; upto says how far it was read */
static List *
read_on(Reading *reading, Position *position, const LogLimits *limits, LogBatch *batch)
{
	LogWindow	window = position_window(reading->subscription, position);

	if (reading->reader == NULL)
		reading->reader = log_reader_open(reading->call);
	*batch = log_read(reading->reader, &window, limits);
	position->upto = batch->upto;
	reading->bytes_left -= batch->bytes;
	reading->effort -= batch->examined - list_length(batch->events);
	return deliveries_of(reading, position, batch->events);
}

List *
reading_next(Reading *reading, Position *position, int most, bool one_at_least)
{
	position->deliveries = 1;
	while (most > 0 && reading->effort > 0)
	{
		List	   *deliveries;
		LogBatch	batch;

		CHECK_FOR_INTERRUPTS();
		if (position->hi.seen == NULL)
			open_window(reading, position);
		deliveries = read_on(reading, position, &(LogLimits) {
			.after = position->pos, .upto = PG_INT64_MAX, .events = most,
			.bytes = reading->bytes_left, .one_at_least = one_at_least, .examine = reading->effort
		}, &batch);
		if (deliveries != NIL)
			return deliveries;
		position->pos = position->upto;
		if (batch.full || (!batch.more && !close_window(reading, position)))
			break;
	}
	position->upto = position->pos;
	return NIL;
}

/*
 * Whoever gets nothing from here passes over all of it: so nothing means that
 * all was looked at, however long that takes.
 */
List *
reading_again(Reading *reading, Position *position, int most)
{
	int64		upto = position->upto;
	LogBatch	batch;
	List	   *deliveries;

	if (upto <= position->pos)
		return NIL;
	position->deliveries++;
	do
	{
		deliveries = read_on(reading, position, &(LogLimits) {
			.after = position->pos, .upto = upto, .events = most,
			.bytes = reading->bytes_left, .one_at_least = true, .examine = INT_MAX
		}, &batch);
		if (deliveries != NIL)
			break;
		position->pos = position->upto;
	} while (batch.more);
	if (!batch.more)
		position->upto = upto;
	return deliveries;
}
