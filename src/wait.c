/*-------------------------------------------------------------------------
 * wait.c
 *	  Wait for events without standing in anybody's way.
 *
 * LISTEN and NOTIFY would do, were it not for a lock that all of a cluster's
 * notifying transactions take at commit, one after the other.  Here a commit
 * that wrote events counts one up in shared memory and wakes whoever sleeps
 * there; who comes to wait compares the count with the one he saw before he
 * looked, so that nothing is slept through.  Nobody holds a lock for it, and if
 * nobody waits it is a handful of instructions.
 *
 * It is a hint, never the truth: the waiter looks again every so often, since a
 * prepared transaction is committed by another session.  Without
 * shared_preload_libraries there is no shared memory, and looking is all he has.
 *
 * Who sleeps for minutes with a snapshot keeps the whole cluster from cleaning
 * up.  So this is a procedure: called outside a transaction block it lets its
 * snapshot go while it sleeps, and takes a new one to look.
 *-------------------------------------------------------------------------
 */
#include "ahead.h"
#include "wait.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/pquery.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* With a wake-up, look so seldom; without, from often to less often */
#define LONGEST_SLEEP_MS 1000
#define SHORTEST_POLL_MS 5
#define LONGEST_POLL_MS 50

/* Woken for nothing, again and again, look no more often than that */
#define LONGEST_DOZE_MS 16

/* The arguments, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_TIMEOUT
};

typedef struct Bell
{
	pg_atomic_uint64 commits;	/* that wrote events */
	ConditionVariable rung;
} Bell;

static Bell *bell = NULL;
static bool wrote_events = false;

/* The transaction has written an event */
void
wait_note_event(void)
{
	wrote_events = true;
}

/* Transaction callback: others see the events from here on */
static void
ring_bell(XactEvent event, void *arg pg_attribute_unused())
{
	if (event == XACT_EVENT_COMMIT && wrote_events && bell != NULL)
	{
		pg_atomic_fetch_add_u64(&bell->commits, 1);
		ConditionVariableBroadcast(&bell->rung);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		wrote_events = false;
}

static uint64
commits_so_far(void)
{
	return bell == NULL ? 0 : pg_atomic_read_u64(&bell->commits);
}


/* ---------- sleep ---------- */

/* Let the snapshots go, if nothing of the caller's stands on them */
static void
let_snapshots_go(void)
{
	ForgetPortalSnapshots();
	InvalidateCatalogSnapshot();
}

/* Sleep for so long, whoever rings */
static void
doze(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Sleep until a commit is not among those seen, but no longer than so long */
static void
sleep_until_rung(long ms, uint64 seen)
{
	ConditionVariablePrepareToSleep(&bell->rung);
	if (commits_so_far() == seen)
		(void) ConditionVariableTimedSleep(&bell->rung, ms, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	CHECK_FOR_INTERRUPTS();
}

/*
 * Sleep until it is worth looking.  Every commit of an event wakes, but few may
 * be for this subscription, or others are faster: who was woken for nothing
 * sleeps on for a moment before he looks the next time.
 */
static void
sleep_until(TimestampTz deadline, uint64 seen, long *pause_ms)
{
	long		left_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline) + 1;

	if (bell == NULL)
	{
		doze(Min(left_ms, Max(*pause_ms, SHORTEST_POLL_MS)));
		*pause_ms = Min(Max(*pause_ms, SHORTEST_POLL_MS) * 2, LONGEST_POLL_MS);
		return;
	}
	sleep_until_rung(Min(left_ms, LONGEST_SLEEP_MS), seen);
	if (commits_so_far() == seen)
		*pause_ms = 0;
	else
	{
		if (*pause_ms > 0)
			doze(*pause_ms);
		*pause_ms = *pause_ms == 0 ? 1 : Min(*pause_ms * 2, LONGEST_DOZE_MS);
	}
}

/* Is there anything?  Looks with a snapshot of its own. */
static bool
look(FunctionCallInfo fcinfo, Ahead *ahead, bool *unsure)
{
	IdemCall   *call = idem_enter(fcinfo);
	Subscription *subscription = subscription_look(call, idem_arg_key(call, ARG_SUBSCRIPTION),
												   IDEM_SIGHT_LATEST);
	bool		due;

	if (subscription == NULL)
		subscription_not_found(idem_arg(call, ARG_SUBSCRIPTION).value);
	due = ahead_is_due(call, subscription, ahead, unsure);
	(void) idem_leave_void(call);
	return due;
}

/* When waiting is over */
static TimestampTz
read_deadline(FunctionCallInfo fcinfo)
{
	IdemCall   *call = idem_enter(fcinfo);

	(void) idem_arg_required(call, ARG_TIMEOUT);
	idem_arg_wait(call, ARG_TIMEOUT);
	if (call->deadline - call->now > USECS_PER_DAY)
		idem_bad_argument(call, ARG_TIMEOUT, "Nobody waits for longer than a day at once.");
	(void) idem_leave_void(call);
	return call->deadline;
}

/*
 * CALL idem_wait_events(subscription, timeout)
 *
 * Errors: ID006, 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_wait_events);
Datum
idem_wait_events(PG_FUNCTION_ARGS)
{
	bool		atomic = fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
	TimestampTz deadline = read_deadline(fcinfo);
	long		pause_ms = 0;
	MemoryContext here = AllocSetContextCreate(CurrentMemoryContext, "idem wait",
											   ALLOCSET_SMALL_SIZES);
	Ahead		ahead = {
		.context = AllocSetContextCreate(CurrentMemoryContext, "idem look ahead",
										 ALLOCSET_SMALL_SIZES)
	};
	MemoryContext old = MemoryContextSwitchTo(here);

	for (;;)
	{
		uint64		seen = commits_so_far();
		bool		unsure;

		MemoryContextReset(here);
		if (look(fcinfo, &ahead, &unsure) || atomic || GetCurrentTimestamp() >= deadline)
			break;
		let_snapshots_go();
		if (unsure)
			CHECK_FOR_INTERRUPTS();
		else
			sleep_until(deadline, seen, &pause_ms);
		EnsurePortalSnapshotExists();
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(here);
	MemoryContextDelete(ahead.context);
	PG_RETURN_VOID();
}


/* ---------- shared memory ---------- */

static shmem_startup_hook_type next_shmem_startup = NULL;

static void
make_bell(void)
{
	bool		found;

	if (next_shmem_startup)
		next_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	bell = ShmemInitStruct("idem bell", sizeof(Bell), &found);
	if (!found)
	{
		pg_atomic_init_u64(&bell->commits, 0);
		ConditionVariableInit(&bell->rung);
	}
	LWLockRelease(AddinShmemInitLock);
}

static IdemShmemRequest next_shmem_request = NULL;

static void
request_bell(void)
{
	if (next_shmem_request)
		next_shmem_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Bell)));
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_wait(void)
{
	RegisterXactCallback(ring_bell, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	idem_hook_shmem_request(next_shmem_request, request_bell);
	next_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = make_bell;
}
