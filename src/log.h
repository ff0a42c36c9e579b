/*-------------------------------------------------------------------------
 * log.h
 *	  The log of events: where they lie, and who sees what of it.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LOG_H
#define IDEM_LOG_H

#include "look.h"
#include "outbox.h"

/* The log is a ring of so many tables */
#define LOG_SLICES 4

/*
 * Keys are spread over so many slots, by a hash of their own.  Rows bear it:
 * it can never be changed.
 */
#define LOG_SLOTS 64

/*
 * One event in so many is followed by a mark, where a reader may stop: dense
 * enough for a batch of a hundred, rare enough to cost an event next to nothing.
 */
#define LOG_EVENTS_A_MARK 128

/* Columns of idem_outbox */
enum
{
	EVENT_ID = 1, EVENT_TENANT_ID, EVENT_AGGREGATETYPE, EVENT_AGGREGATEID, EVENT_TYPE,
	EVENT_PAYLOAD, EVENT_HEADERS, EVENT_CREATED_AT, EVENT_SEQ, EVENT_XID, EVENT_SLOT,
	EVENT_SLICE, EVENT_NATTS = EVENT_SLICE
};

/* What was committed at some moment, by the numbers of transactions */
typedef struct LogSnapshot
{
	uint64		xmin;			/* all below are over */
	uint64		xmax;			/* none from here on is */
	int			nxip;
	uint64	   *xip;			/* in between, still open; ascending */
} LogSnapshot;

/* A moment in the log: what was committed, and a number near the last event's */
typedef struct LogPoint
{
	LogSnapshot *seen;
	int64		seq;
} LogPoint;

/* The slot of a key */
extern int	log_slot(Datum tenant_id, Datum aggregatetype, Datum aggregateid);

/* Append an event; the columns up to created_at are given */
extern void log_append(FunctionCallInfo fcinfo, NullableDatum *row);

/* Snapshots, from and to the type pg_snapshot; in CurrentMemoryContext */
extern LogSnapshot *log_snapshot_read(Datum snapshot);
extern LogSnapshot *log_snapshot_copy(MemoryContext context, const LogSnapshot *snapshot);
extern void log_snapshot_free(LogSnapshot *snapshot);
extern Datum log_snapshot_write(const LogSnapshot *snapshot);
extern LogSnapshot *log_snapshot_now(void);
extern bool log_sees(const LogSnapshot *snapshot, uint64 xid);
extern bool log_follows(const LogSnapshot *later, const LogSnapshot *earlier);

/* Nothing, and all that is committed now and not by this transaction */
extern LogPoint log_beginning(void);
extern LogPoint log_now(IdemCall *call);

/* Leave a mark at an event */
extern void log_leave_mark(FunctionCallInfo fcinfo, int64 seq, int slice);

/* The mark nearest behind seq that follows a point; false: there is none */
extern bool log_next_mark(IdemCall *call, const LogPoint *after, int64 seq, LogPoint *mark);

/* The last mark made at or before a time; false: there is none */
extern bool log_mark_at(IdemCall *call, TimestampTz at, LogPoint *mark);

/* The number of the last event that anybody has written, or is writing */
extern int64 log_last_seq(IdemCall *call);

/* Names of a ring's tables */
extern const char *log_slice_name(const char *table, int slice);

/* Where a ring stands, as the calling backend last heard */
extern int	log_current_slice(const IdemHouse *house);

extern void idem_init_log(void);

#endif							/* IDEM_LOG_H */
