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

/*
 * Deliveries are all that is left of their window: go on in the one behind it,
 * in which `beyond` stands, as far as there is room.
 */
static List *
reach_beyond(Reading *reading, Position *position, Position *beyond, List *deliveries,
			 LogLimits *limits, LogBatch *batch)
{
	List	   *more;
	ListCell   *cell;

	limits->after = 0;
	limits->events -= list_length(deliveries);
	limits->bytes = reading->bytes_left;
	limits->one_at_least = false;
	more = read_on(reading, beyond, limits, batch);
	if (more == NIL)
		return deliveries;
	foreach(cell, more)
		((Delivery *) lfirst(cell))->beyond = true;
	position->next = beyond->hi;
	position->upto = beyond->upto;
	return list_concat(deliveries, more);
}

/* The same, if there is room, and if there is such a window by now */
static List *
reach_on(Reading *reading, Position *position, List *deliveries, LogLimits *limits)
{
	Position	beyond = *position;
	LogBatch	batch;

	if (list_length(deliveries) >= limits->events || reading->effort <= 0 ||
		!close_window(reading, &beyond))
		return deliveries;
	open_window(reading, &beyond);
	limits->examine = reading->effort;
	return reach_beyond(reading, position, &beyond, deliveries, limits, &batch);
}

List *
reading_next(Reading *reading, Position *position, int most, bool one_at_least)
{
	position_keep_back(position);
	position->deliveries = 1;
	while (most > 0 && reading->effort > 0)
	{
		LogLimits	limits = {
			.after = position->pos, .upto = PG_INT64_MAX, .events = most,
			.bytes = reading->bytes_left, .one_at_least = one_at_least
		};
		List	   *deliveries;
		LogBatch	batch;

		CHECK_FOR_INTERRUPTS();
		if (position->hi.seen == NULL)
			open_window(reading, position);
		limits.examine = reading->effort;
		deliveries = read_on(reading, position, &limits, &batch);
		if (deliveries != NIL)
			return batch.more ? deliveries : reach_on(reading, position, deliveries, &limits);
		position->pos = position->upto;
		if (batch.full || (!batch.more && !close_window(reading, position)))
			break;
	}
	position_keep_back(position);
	return NIL;
}

/* Of what was handed out in the window that the position stands in, the first */
static List *
again_in_window(Reading *reading, Position *position, LogLimits *limits, LogBatch *batch)
{
	List	   *deliveries;

	do
	{
		limits->after = position->pos;
		limits->bytes = reading->bytes_left;
		deliveries = read_on(reading, position, limits, batch);
		if (deliveries != NIL)
			break;
		position->pos = position->upto;
	} while (batch->more);
	return deliveries;
}

static List *
again(Reading *reading, Position *position, int most)
{
	Position	out = *position;
	Position	beyond = position_beyond(&out);
	bool		reaches = out.next.seen != NULL;
	LogLimits	limits = {
		.upto = reaches ? PG_INT64_MAX : out.upto, .events = most, .one_at_least = true, .examine = INT_MAX
	};
	LogBatch	batch;
	List	   *deliveries = again_in_window(reading, position, &limits, &batch);

	position->next.seen = NULL;
	if (batch.more)
		return deliveries;		/* as far as upto says */
	if (reaches && deliveries == NIL)
	{
		*position = beyond;
		return again(reading, position, most);
	}
	if (reaches)
	{
		limits.upto = out.upto;
		deliveries = reach_beyond(reading, position, &beyond, deliveries, &limits, &batch);
	}
	if (!batch.more)
	{
		position->next = out.next;
		position->upto = out.upto;
	}
	return deliveries;
}

/*
 * Whoever gets nothing from here passes over all of it: so nothing means that
 * all was looked at, however long that takes.
 */
List *
reading_again(Reading *reading, Position *position, int most)
{
	if (!position_has_out(position))
		return NIL;
	position->deliveries++;
	return again(reading, position, most);
}
