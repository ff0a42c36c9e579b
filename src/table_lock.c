/*-------------------------------------------------------------------------
 * table_lock.c
 *	  Lock tables of users for as long as a call may wait.
 *
 * A table in use may never be without writers, so polling would never get the
 * lock: it takes a place in the queue.  From there it holds up who comes after
 * it, hence the limit; where he and
 * the call wait for each other, the call gives way.
 *-------------------------------------------------------------------------
 */
#include "table_lock.h"
#include "try.h"

#include "storage/lmgr.h"
#include "storage/proc.h"

typedef struct TableLock
{
	IdemCall   *call;
	List	   *tables;			/* Oid */
	LOCKMODE	mode;
} TableLock;

/* Let a lock be waited for so long */
static void
limit_wait(long wait_ms)
{
	char		timeout_ms[16];

	if (LockTimeout > 0)
		wait_ms = Min(wait_ms, LockTimeout);
	snprintf(timeout_ms, sizeof(timeout_ms), "%ld", Min(wait_ms, INT_MAX));
	idem_pin("lock_timeout", timeout_ms);
}

/* Lock a table; 55P03 when the call's time is over, 40P01 if it can never be */
static void
lock_one(const IdemCall *call, Oid table, LOCKMODE mode)
{
	long		left_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), call->deadline);

	if (left_ms > 0)
	{
		limit_wait(left_ms);
		LockRelationOid(table, mode);
	}
	else if (!ConditionalLockRelationOid(table, mode))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("table is in use"),
				 errdetail("The call may not wait for it.")));
}

static void
lock_each(void *arg)
{
	TableLock  *lock = arg;
	int			guc_level = NewGUCNestLevel();
	ListCell   *cell;

	foreach(cell, lock->tables)
		lock_one(lock->call, lfirst_oid(cell), lock->mode);
	AtEOXact_GUC(true, guc_level);
}

/*
 * Lock tables until the transaction ends.  false: not in the time that the
 * call may wait; then none is locked.
 */
bool
table_lock_all(IdemCall *call, List *tables, LOCKMODE mode)
{
	TableLock	lock = {call, tables, mode};

	if (tables == NIL)
		return true;
	return idem_try(lock_each, &lock, ERRCODE_LOCK_NOT_AVAILABLE,
					ERRCODE_T_R_DEADLOCK_DETECTED) == NULL;
}
