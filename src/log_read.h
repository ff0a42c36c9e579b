/*-------------------------------------------------------------------------
 * log_read.h
 *	  Read what a window of the log shows.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LOG_READ_H
#define IDEM_LOG_READ_H

#include "log.h"

/* What hi sees and lo does not, of every slots'th of the log's slots */
typedef struct LogWindow
{
	const LogSnapshot *lo;
	const LogSnapshot *hi;
	int			slot;
	int			slots;
	List	   *types;			/* of text Datum; NIL: all */
} LogWindow;

/* How much is wanted of it */
typedef struct LogLimits
{
	int64		after;			/* with a greater seq than this */
	int64		upto;			/* and none greater than this */
	int			events;
	int64		bytes;			/* but one event at least */
} LogLimits;

/* Events in the order of seq */
typedef struct LogBatch
{
	List	   *events;			/* of IdemRow */
	int64		bytes;
	int64		upto;			/* all up to here have been looked at */
	bool		more;			/* there may be others behind */
} LogBatch;

extern LogBatch log_read(IdemCall *call, const LogWindow *window, const LogLimits *limits);

#endif							/* IDEM_LOG_READ_H */
