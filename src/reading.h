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
	bool		passed;			/* and so has read some that it did not pass on */
	LogTake		take;			/* is given what was never handed out */
	void	   *taker;
} Reading;

extern Reading reading_begin(IdemCall *call, Subscription *subscription, int events, int effort,
							 LogTake take, void *taker);
extern void reading_end(Reading *reading);

/*
 * Pass on events of a slot that were never handed out, at most so many; how many.
 * The position moves up to them, its upto, and next, behind them.  0: there are
 * none, there is no room for the first of them, or the effort is over.
 */
extern int	reading_next(Reading *reading, Position *position, int most, bool one_at_least);

/*
 * Those that were handed out, or the first of them, as copies, since some of them
 * may be given up; what upto and next say follows.  NIL: none of them is to be
 * handed out any more.
 */
extern List *reading_again(Reading *reading, Position *position, int most);

#endif							/* IDEM_READING_H */
