/*-------------------------------------------------------------------------
 * look_wait.c
 *	  Wait for who was met by a look.
 *
 * What a rival's transaction will have done cannot be judged before it has
 * ended.  A fact waits as long as it takes, in the lock manager, where a deadlock
 * is found.  A request has its time, in which it sleeps and looks again, and
 * stands in line meanwhile (line.c); two that wait for each other so answer
 * when that time is over.  Nobody waits while a name is locked.
 *-------------------------------------------------------------------------
 */
#include "look.h"

#include "line.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"

/*
 * Sleep a little, each time twice as long up to 16 ms.  false: a request's
 * time to wait is over.
 */
bool
idem_pause(IdemCall *call, int *pause_ms)
{
	TimestampTz now = GetCurrentTimestamp();
	long		left_ms = LONGEST_PAUSE_MS;

	if (!call->fact)
	{
		if (now >= call->deadline)
			return false;
		left_ms = TimestampDifferenceMilliseconds(now, call->deadline) + 1;
	}

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(*pause_ms, left_ms), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();

	*pause_ms = Min(*pause_ms * 2, LONGEST_PAUSE_MS);
	call->now = GetCurrentTimestamp();
	return true;
}

/*
 * Hold a name until the transaction, or the savepoint, ends.  false: somebody
 * else held it for as long as a request may wait.  Who is woken by a lock that
 * its holder released at his end polls as well: others of his may go later.
 */
bool
idem_await_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key, LOCKMODE mode)
{
	int			pause_ms = 1;

	while (!idem_hold_name(call, kind, tenant_id, key, mode, false))
	{
		if (!idem_pause(call, &pause_ms))
			return false;
	}
	return true;
}

/* Stand in line until a transaction has ended; false: a request's time to wait is over */
static bool
outwait(IdemCall *call, TransactionId rival)
{
	Line		line;
	bool		over;
	int			pause_ms = 1;

	if (!TransactionIdIsInProgress(rival))
		return true;
	line = line_for_transaction(SubTransGetTopmostTransaction(rival));
	(void) line_join(&line);
	while (!(over = !TransactionIdIsInProgress(rival)) && idem_pause(call, &pause_ms))
		 /* again */ ;
	line_leave(&line);
	return over;
}

/*
 * Wait until the transaction that a dirty look met has ended.  A fact waits in
 * the lock manager, where a deadlock is found; a request gets false when its
 * time is over.  No name may be locked.
 */
bool
idem_await_rival(IdemCall *call)
{
	TransactionId rival = call->rival;

	Assert(call->nnames == 0);
	call->rival = InvalidTransactionId;
	if (!call->fact)
		return outwait(call, rival);
	XactLockTableWait(rival, NULL, NULL, XLTW_None);
	call->now = GetCurrentTimestamp();
	return true;
}

/*
 * Unlock the names and wait for whoever was in the way: the rival, if one was
 * met, else a little.  false: a request's time to wait is over.
 */
bool
idem_step_back(IdemCall *call, int *pause_ms)
{
	idem_unlock_names(call);
	CHECK_FOR_INTERRUPTS();
	return TransactionIdIsValid(call->rival) ?
		idem_await_rival(call) : idem_pause(call, pause_ms);
}
