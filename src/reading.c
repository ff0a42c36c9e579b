/*-------------------------------------------------------------------------
 * reading.c
 *	  Read on in a subscription's slots.
 *
 * A slot's next events come from a window of the log, between two snapshots.
 * How far a window reaches is chosen when it is opened: as far as now, or as a
 * mark some way off if the subscription is far behind.  It is read from pos
 * onward; when it has nothing more, its end is where the next one begins.
 *
 * A batch that gets to the end of its window goes on in the next one, and no
 * farther: two windows can be written down in a position.  If it stopped there,
 * every second batch would be the few events that the one before had no room for.
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

/* Who finds nothing that he wants opens windows twice as wide, up to so many events */
#define WIDE_WINDOW 1024


Reading
reading_begin(IdemCall *call, Subscription *subscription, int events, int effort, LogTake take,
			  void *taker)
{
	Reading		reading = {
		.call = call,
		.subscription = subscription,
		.left = events,
		.bytes_left = MAX_BATCH_BYTES,
		.effort = effort,
		.take = take,
		.taker = taker
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

/*
 * Open the next window of a slot: up to a mark some way off, or up to now.  So
 * far off that the slot's share of it is about as many events as there is room
 * for: whatever is left is gone through again for the next batch.
 */
static void
open_window(Reading *reading, Position *position, int room)
{
	int64		distance = (int64) room * reading->subscription->slots;

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

/* Read in the slot's window; upto says how far it was read */
static void
read_on(Reading *reading, Position *position, const LogLimits *limits, LogTake take, void *taker,
		LogBatch *batch)
{
	LogWindow	window = position_window(reading->subscription, position);

	if (reading->reader == NULL)
		reading->reader = log_reader_open(reading->call);
	*batch = log_read(reading->reader, &window, limits, take, taker);
	position->upto = batch->upto;
	reading->bytes_left -= batch->bytes;
	reading->effort -= batch->examined - batch->events;
}

/* The same into a list of copies, without those that wait behind one that failed */
static List *
read_list(Reading *reading, Position *position, const LogLimits *limits, LogBatch *batch)
{
	List	   *deliveries = NIL;
	ListCell   *cell;

	read_on(reading, position, limits, log_take_copy, &deliveries, batch);
	foreach(cell, deliveries)
		((Delivery *) lfirst(cell))->attempt = position->deliveries;
	if (reading->failed)
		deliveries = parked_filter(reading->call, reading->subscription, position->slot, deliveries);
	reading->passed = reading->passed || list_length(deliveries) < batch->events;
	return deliveries;
}

/* An event that was never handed out */
static void
take_new(void *taker, LogEvent *event)
{
	Reading    *reading = taker;

	event->attempt = 1;
	reading->take(reading->taker, event);
}

/* Pass on what the slot's window shows beyond pos; how many */
static int
read_new(Reading *reading, Position *position, int most, bool one_at_least, LogBatch *batch)
{
	LogLimits	limits = {
		.after = position->pos, .upto = PG_INT64_MAX, .events = most,
		.bytes = reading->bytes_left, .one_at_least = one_at_least, .examine = reading->effort
	};
	List	   *deliveries;
	ListCell   *cell;

	if (!reading->failed)
	{
		read_on(reading, position, &limits, take_new, reading, batch);
		return batch->events;
	}
	deliveries = read_list(reading, position, &limits, batch);
	foreach(cell, deliveries)
		reading->take(reading->taker, lfirst(cell));
	return list_length(deliveries);
}

/*
 * The batch has n events, all that was left of its window.  If it has room for
 * more, go on in the window behind it, if there is one by now.
 */
static int
reach_on(Reading *reading, Position *position, int n, int most)
{
	Position	beyond = *position;
	LogBatch	batch;
	int			more;

	if (n >= most || reading->effort <= 0 || !close_window(reading, &beyond))
		return n;
	open_window(reading, &beyond, most - n);
	more = read_new(reading, &beyond, most - n, false, &batch);
	if (more > 0)
	{
		position->next = beyond.hi;
		position->upto = beyond.upto;
	}
	return n + more;
}

int
reading_next(Reading *reading, Position *position, int most, bool one_at_least)
{
	int			room = most;

	position_keep_back(position);
	position->deliveries = 1;
	while (most > 0 && reading->effort > 0)
	{
		LogBatch	batch;
		int			n;

		CHECK_FOR_INTERRUPTS();
		if (position->hi.seen == NULL)
			open_window(reading, position, room);
		n = read_new(reading, position, most, one_at_least, &batch);
		if (n > 0)
			return batch.more ? n : reach_on(reading, position, n, most);
		position->pos = position->upto;
		if (batch.full || (!batch.more && !close_window(reading, position)))
			break;
		if (room * reading->subscription->slots < WIDE_WINDOW)
			room *= 2;
	}
	position_keep_back(position);
	return 0;
}


/* ---------- again ---------- */

/* Of what was handed out in the window that the position stands in, the first */
static List *
again_in_window(Reading *reading, Position *position, LogLimits *limits, LogBatch *batch)
{
	List	   *deliveries;

	do
	{
		limits->after = position->pos;
		limits->bytes = reading->bytes_left;
		deliveries = read_list(reading, position, limits, batch);
		if (deliveries != NIL)
			break;
		position->pos = position->upto;
	} while (batch->more);
	return deliveries;
}

/* Of what was handed out in the window behind that one, what there is room for */
static List *
again_beyond(Reading *reading, Position *position, Position *beyond, LogLimits *limits, LogBatch *batch)
{
	List	   *deliveries;
	ListCell   *cell;

	limits->after = 0;
	limits->bytes = reading->bytes_left;
	limits->one_at_least = false;
	deliveries = read_list(reading, beyond, limits, batch);
	foreach(cell, deliveries)
		((Delivery *) lfirst(cell))->beyond = true;
	if (deliveries != NIL)
	{
		position->next = beyond->hi;
		position->upto = beyond->upto;
	}
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
		limits.events = most - list_length(deliveries);
		deliveries = list_concat(deliveries, again_beyond(reading, position, &beyond, &limits, &batch));
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
