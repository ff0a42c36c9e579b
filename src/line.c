/*-------------------------------------------------------------------------
 * line.c
 *	  Lines in front of what is busy: who waits is called when it is free.
 *
 * A request waits only so long, and then answers; so it cannot wait in the lock
 * manager, whose only way out is an error.  It sleeps and tries again.  But
 * where thirty want one row, that row stands idle until one of the sleepers
 * happens to wake up, and whoever came first may be the last to have it.
 *
 * So who waits stands in line, and who ends a transaction calls: of those who
 * wait for a row the first, since one alone can have it, of those who wait to
 * see what becomes of the transaction all.  A line is an advisory lock that who
 * waits holds shared, and that nobody ever wants otherwise: the server's table
 * of locks keeps the list, in the order in which they came.  A call sets a
 * latch.
 *
 * It is a hint, never the truth.  Who locked a row by SQL of his own calls
 * nobody, nor does who ends a prepared transaction, and the row may be taken
 * before the one who was called gets to it.  So sleep is short all the same.
 * Nothing is slept through where calls come: who waits joins the line before he
 * tries once more, and who calls has ended for everybody before that.
 *-------------------------------------------------------------------------
 */
#include "line.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"

/* For no more rows than that does one transaction call */
#define MAX_ROWS 16

static uint64 rows[MAX_ROWS];
static int	nrows = 0;
static bool awaited = false;	/* others may wait to see what becomes of us */

Line
line_for_row(uint64 key)
{
	Line		line = {.joined = false};

	SET_LOCKTAG_ADVISORY(line.tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key,
						 IDEM_LOCK_ROW_LINE);
	return line;
}

Line
line_for_transaction(TransactionId xid)
{
	Line		line = {.joined = false};

	SET_LOCKTAG_ADVISORY(line.tag, MyDatabaseId, 0, xid, IDEM_LOCK_TRANSACTION_LINE);
	return line;
}

/* Does anybody stand in a line? */
static bool
is_line(const Line *line)
{
	return LockWaiterCount(&line->tag) > 0;
}

bool
line_join(Line *line)
{
	bool		others = is_line(line);

	(void) LockAcquire(&line->tag, ShareLock, false, false);
	line->joined = true;
	return others;
}

void
line_leave(Line *line)
{
	if (line->joined)
		(void) LockRelease(&line->tag, ShareLock, false);
	line->joined = false;
}

void
line_call_for_row(uint64 key)
{
	for (int i = 0; i < nrows; i++)
	{
		if (rows[i] == key)
			return;
	}
	if (nrows < MAX_ROWS)
		rows[nrows++] = key;
}

void
line_call_for_transaction(void)
{
	awaited = true;
}

/*
 * Wake so many of those who stand in a line, the first of them first.  Nearly
 * always there is nobody, and to be told so by the list costs as much as the
 * server has room for sessions.
 */
static void
call(const Line *line, int most)
{
	int			n;
	VirtualTransactionId *waiting;

	if (!is_line(line))
		return;
	waiting = GetLockConflicts(&line->tag, ExclusiveLock, &n);
	for (int i = 0; i < Min(n, most); i++)
	{
		PGPROC	   *proc = idem_vxid_proc(waiting[i]);

		if (proc != NULL)
			SetLatch(&proc->procLatch);
	}
	pfree(waiting);
}

/* Transaction callback: it is over for everybody from here on */
static void
call_those_who_wait(XactEvent event, void *arg pg_attribute_unused())
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (event != XACT_EVENT_PREPARE)
	{
		TransactionId xid = GetTopTransactionIdIfAny();

		for (int i = 0; i < nrows; i++)
		{
			Line		line = line_for_row(rows[i]);

			call(&line, 1);
		}
		if (awaited && TransactionIdIsValid(xid))
		{
			Line		line = line_for_transaction(xid);

			call(&line, INT_MAX);
		}
	}
	nrows = 0;
	awaited = false;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_line(void)
{
	RegisterXactCallback(call_those_who_wait, NULL);
}
