/*-------------------------------------------------------------------------
 * reading.h
 *	  Read on in a subscription's slots.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_READING_H
#define IDEM_READING_H

#include "subscription.h"

/* What a call reads in the log, slot by slot */
typedef struct Reading
{
	IdemCall   *call;
	Subscription *subscription;
	LogReader  *reader;			/* NULL: not open yet */
	LogPoint	now;			/* seen is NULL: not asked for yet */
	int			left;			/* events that are still wanted */
	int64		bytes_left;
	int			effort;			/* events that it may still look at in vain */
	bool		failed;			/* the slot in hand has events that failed: leave out what waits */
	bool		passed;			/* and so has read some that are not in what it returned */
} Reading;

extern Reading reading_begin(IdemCall *call, Subscription *subscription, int events, int effort);
extern void reading_end(Reading *reading);

/*
 * Events of a slot that were never handed out, at most so many; the position
 * moves up to them, its upto behind them.  NIL: there are none, there is no room
 * for the first of them, or the effort is over.
 */
extern List *reading_next(Reading *reading, Position *position, int most, bool one_at_least);

/*
 * Those that were handed out, or the first of them; what upto says follows.
 * NIL: none of them is to be handed out any more.
 */
extern List *reading_again(Reading *reading, Position *position, int most);

#endif							/* IDEM_READING_H */
