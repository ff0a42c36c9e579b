/*-------------------------------------------------------------------------
 * log_read.h
 *	  Read what a window of the log shows.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LOG_READ_H
#define IDEM_LOG_READ_H

#include "log.h"

#include "access/genam.h"
#include "executor/tuptable.h"
#include "utils/snapshot.h"

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
	int64		bytes;
	bool		one_at_least;	/* even if it has more bytes */
	int			examine;		/* look at about so many that are not wanted */
} LogLimits;

/* An event */
typedef struct LogEvent
{
	NullableDatum columns[EVENT_SEQ];	/* up to seq; nothing lies out of line */
	int64		seq;
	int64		bytes;			/* of its own data */
	int32		attempt;		/* for who hands it out: how often it was */
	bool		parked;			/* and where it was found: */
	bool		beyond;			/* in the window after that which was begun with */
} LogEvent;

/*
 * Whoever is given the events, one after the other in the order of seq.  An event
 * is there, with what it points to, until the next one; who keeps it copies it.
 */
typedef void (*LogTake) (void *taker, LogEvent *event);

extern LogEvent *log_event_copy(const LogEvent *event);

/* Takes them into a List of copies */
extern void log_take_copy(void *taker, LogEvent *event);

/* What a reading came to */
typedef struct LogBatch
{
	int			events;
	int64		bytes;
	int64		upto;			/* all up to here have been looked at */
	int			examined;
	bool		more;			/* there may be others behind */
	bool		full;			/* the next one has too many bytes */
} LogBatch;

/* The slices, open for reading; to be closed before the call leaves */
typedef struct LogReader LogReader;

extern LogReader *log_reader_open(IdemCall *call);
extern LogBatch log_read(LogReader *reader, const LogWindow *window, const LogLimits *limits,
						 LogTake take, void *taker);
extern void log_reader_close(LogReader *reader);

/* Has one slice a committed event of the window, behind a number? */
extern bool log_slice_has(LogReader *reader, int slice, const LogWindow *window, int64 after);

/* A table of a ring and an index of it, open for reading */
typedef struct LogTable
{
	Relation	table;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} LogTable;

extern void log_table_open(IdemCall *call, LogTable *open, const char *table, const char *index,
						   Snapshot snapshot, int nkeys);
extern void log_table_close(LogTable *open);

#endif							/* IDEM_LOG_READ_H */
