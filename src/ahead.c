/*-------------------------------------------------------------------------
 * ahead.c
 *	  Look ahead of a subscription's positions, without taking anything.
 *
 * Who waits looks again and again, and who waits for something rare would read
 * the same strange events each time.  So he keeps in mind how far he has looked
 * in each slot, for as long as nobody else moves the slot.
 *
 * What is at hand for nobody must not wake anybody: a slot that somebody holds
 * just now, or has under a lease, has nothing for others.
 *-------------------------------------------------------------------------
 */
#include "ahead.h"

/* Look at no more than so many events in one go */
#define MAX_EFFORT 50000


/* Whoever looks leaves the event where it is */
static void
leave_it(void *taker pg_attribute_unused(), LogEvent *event pg_attribute_unused())
{
}

AheadOf
ahead_of(IdemCall *call, Subscription *subscription, const Position *position)
{
	List	   *deliveries = NIL;
	Reading		reading = reading_begin(call, subscription, 1, MAX_EFFORT, log_take_copy, &deliveries);
	Position	at = *position;
	AheadOf		result;

	(void) reading_next(&reading, &at, 1, true);
	result.first = deliveries == NIL ? NULL : linitial(deliveries);
	result.all = reading.effort > 0;
	result.reached = Max(at.lo.seq, at.pos);
	reading_end(&reading);
	return result;
}

/* Even if there is something: it may lie behind much that is not wanted */
void
ahead_advance(IdemCall *call, Subscription *subscription, int slot)
{
	Reading		reading = reading_begin(call, subscription, 1, MAX_EFFORT, leave_it, NULL);
	Position	position;
	Position	before;

	if (!slot_hold(call, subscription, slot))
		return;
	position = before = position_read(call, subscription, slot);
	/* gen 0: the subscription was ended just now */
	if (position.gen > 0 && position.batch.isnull)
	{
		(void) reading_next(&reading, &position, 1, true);
		if (position.lo.seen->xmax > before.lo.seen->xmax || position.pos > before.pos)
			position_append(call, subscription, &position);
	}
	reading_end(&reading);
}


/* ---------- who waits ---------- */

/* Go on where the slot was looked at last, if it is still where it was */
static void
recall(const Ahead *ahead, Position *position)
{
	if (ahead->slots[position->slot].gen != position->gen)
		return;
	position->lo = ahead->slots[position->slot].lo;
	position->hi = ahead->slots[position->slot].hi;
	position->pos = ahead->slots[position->slot].pos;
}

/* Keep a point, in place of an older one */
static void
keep_point(const Ahead *ahead, LogPoint *kept, const LogPoint *point)
{
	LogSnapshot *old = kept->seen;

	if (old == point->seen)
		return;
	*kept = *point;
	if (point->seen != NULL)
		kept->seen = log_snapshot_copy(ahead->context, point->seen);
	if (old != NULL)
		log_snapshot_free(old);
}

/* Keep in mind how far it was looked */
static void
remember(Ahead *ahead, const Position *position)
{
	ahead->slots[position->slot].gen = position->gen;
	keep_point(ahead, &ahead->slots[position->slot].lo, &position->lo);
	keep_point(ahead, &ahead->slots[position->slot].hi, &position->hi);
	ahead->slots[position->slot].pos = position->pos;
}

/* Is there anything in a slot for somebody who fetches now? */
static bool
slot_is_due(Reading *reading, Ahead *ahead, int slot)
{
	IdemCall   *call = reading->call;
	Position	position = position_read(call, reading->subscription, slot);

	if (position_is_leased(&position, call->now))
		return false;
	if (!position.batch.isnull)
		return true;
	if (slot_has_failed(call, reading->subscription, slot) &&
		parked_due(call, reading->subscription, slot, 1) != NIL)
		return true;
	recall(ahead, &position);
	if (reading_next(reading, &position, 1, true) > 0)
		return true;
	remember(ahead, &position);
	return false;
}

bool
ahead_is_due(IdemCall *call, Subscription *subscription, Ahead *ahead, bool *unsure)
{
	Reading		reading = reading_begin(call, subscription, 1, MAX_EFFORT, leave_it, NULL);
	bool		due = false;

	for (int slot = 0; slot < subscription->slots && !due && reading.effort > 0; slot++)
		due = !slot_is_held(call, subscription, slot) && slot_is_due(&reading, ahead, slot);
	*unsure = reading.effort <= 0;
	reading_end(&reading);
	return due;
}
