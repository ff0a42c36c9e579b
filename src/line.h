/*-------------------------------------------------------------------------
 * line.h
 *	  Lines in front of what is busy.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LINE_H
#define IDEM_LINE_H

#include "idem.h"

#include "storage/lock.h"

/* Nobody is called for certain: who waits sleeps no longer than this at once */
#define LONGEST_PAUSE_MS 16

/* Something that is waited for, and whether we stand in line for it */
typedef struct Line
{
	LOCKTAG		tag;
	bool		joined;
} Line;

/* The line for a row, by a hash of its key, and for the end of a transaction */
extern Line line_for_row(uint64 key);
extern Line line_for_transaction(TransactionId xid);

/* Whoever joins tries once more before he sleeps; true: somebody is before him */
extern bool line_join(Line *line);
extern void line_leave(Line *line);

/*
 * When this transaction ends: call who is first in line for the row, or
 * everybody in line for the transaction.
 */
extern void line_call_for_row(uint64 key);
extern void line_call_for_transaction(void);

extern void idem_init_line(void);

#endif							/* IDEM_LINE_H */
