/*-------------------------------------------------------------------------
 * ahead.h
 *	  Look ahead of a subscription's positions, without taking anything.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_AHEAD_H
#define IDEM_AHEAD_H

#include "reading.h"

/* How far somebody has looked, in each slot, and found nothing that is wanted */
typedef struct Ahead
{
	MemoryContext context;
	struct
	{
		int64		gen;			/* ahead of this position; 0: of none */
		LogPoint	lo;
		LogPoint	hi;
		int64		pos;
	}			slots[LOG_SLOTS];
} Ahead;

/* What there is behind a position */
typedef struct AheadOf
{
	Delivery   *first;			/* NULL: nothing, as far as it was looked */
	bool		all;			/* and it was looked to the end */
	int64		reached;		/* the number up to which nothing is wanted */
} AheadOf;

/* The first event that a slot has not acknowledged */
extern AheadOf ahead_of(IdemCall *call, Subscription *subscription, const Position *position);

/* Is there something to fetch?  *unsure: no further than it looked. */
extern bool ahead_is_due(IdemCall *call, Subscription *subscription, Ahead *ahead, bool *unsure);

/* Pass over what a slot that nobody is at has not to deliver */
extern void ahead_advance(IdemCall *call, Subscription *subscription, int slot);

#endif							/* IDEM_AHEAD_H */
