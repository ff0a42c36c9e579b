/*-------------------------------------------------------------------------
 * lease.c
 *	  Named leases with fencing tokens.
 *
 * A lease says who may do a job, and until when.  Its holder can be stopped
 * for longer than that, by a garbage collector, a debugger or a network, and
 * wake up believing it still holds the lease.  So each lease carries a fence, a
 * number that grows with every change of hands and never goes back, and a
 * transaction can ask for proof that no takeover overtakes it: it holds the
 * lease's name shared until it ends, and whoever takes the lease over or
 * releases it needs that name exclusively, likewise until the end.  So either
 * the zombie commits before the lease changes hands, or it learns that it did.
 *
 * Held is a lease whose newest fence the caller has, if it was not released,
 * even past lease_until: from then on somebody else may take it, but as long as
 * nobody has, nothing was done behind the holder's back.
 *
 * Who writes does it as look.c says: lock the short name, look dirty, wait for
 * a rival without any lock and begin again, write, unlock.  The name that is
 * held to the end is only tried, and before the row is locked: so who is
 * answered "busy" leaves nothing in the holder's way.
 *-------------------------------------------------------------------------
 */
#include "direct.h"
#include "look.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Column numbers of idem_lease */
enum
{
	TENANT_ID = 1, NAME, WORKER, FENCE, LEASE_UNTIL, ACQUIRED_AT, NATTS = ACQUIRED_AT
};

static const IdemIndex lease_by_name = {"idem_lease", "idem_lease_pkey", NATTS};

static IdemTable leases = {
	"idem_lease", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_lease (tenant_id, name, worker, fence, lease_until, acquired_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, TEXTOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID)
};

/* TID scan: nothing can lead it astray */
static IdemChange store_lease = {
	&leases, {WORKER, FENCE, LEASE_UNTIL, ACQUIRED_AT},
	IDEM_QUERY("UPDATE @schema@.idem_lease SET worker = $2, fence = $3, lease_until = $4,"
			   " acquired_at = $5 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID)
};

/* A lease in memory */
typedef struct Lease
{
	ItemPointerData tid;
	Datum		name;
	NullableDatum worker;		/* NULL: released */
	int64		fence;
	TimestampTz lease_until;
	TimestampTz acquired_at;
} Lease;

static const char acquired[] = "acquired";
static const char renewed[] = "renewed";
static const char released[] = "released";
static const char duplicate[] = "duplicate";

/* Outcomes that another attempt may better, as long as there is time */
static const char busy[] = "busy";
static const char in_progress[] = "in_progress";


/* ---------- rows ---------- */

static Lease *
look_lease(IdemCall *call, Datum name, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, name};
	IdemRow    *row = idem_look(call, &lease_by_name, keys, lengthof(keys), sight);
	Lease	   *lease;

	if (row == NULL)
		return NULL;
	lease = palloc(sizeof(Lease));
	lease->tid = row->tid;
	lease->name = IDEM_COLUMN(row, NAME);
	lease->worker = IDEM_NULLABLE(row, WORKER);
	lease->fence = DatumGetInt64(IDEM_COLUMN(row, FENCE));
	lease->lease_until = DatumGetTimestampTz(IDEM_COLUMN(row, LEASE_UNTIL));
	lease->acquired_at = DatumGetTimestampTz(IDEM_COLUMN(row, ACQUIRED_AT));
	return lease;
}

/*
 * Lock the lease's short name and see what stands now; whatever is decided
 * from it is decided by the clock as of now.  false: an open transaction is at
 * it, call->rival.
 */
static bool
look_under_name(IdemCall *call, Datum name, Lease **lease)
{
	idem_lock_name(call, IDEM_NAME_LEASE, call->tenant_id, name);
	call->now = GetCurrentTimestamp();
	*lease = look_lease(call, name, IDEM_SIGHT_DIRTY);
	return !TransactionIdIsValid(call->rival);
}

/* The first row of a lease, with fence 1; false: it met a raw INSERT */
static bool
insert(IdemCall *call, Lease *lease)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(lease->name),
		lease->worker,
		IDEM_VALUE(Int64GetDatum(lease->fence)),
		IDEM_VALUE(TimestampTzGetDatum(lease->lease_until)),
		IDEM_VALUE(TimestampTzGetDatum(lease->acquired_at))
	};

	return idem_insert(call, &leases, row);
}

/*
 * Write a lease that was seen under its name.  false: somebody has locked or
 * changed its row by SQL of his own.
 */
static bool
store(IdemCall *call, Lease *lease)
{
	NullableDatum values[] = {
		lease->worker,
		IDEM_VALUE(Int64GetDatum(lease->fence)),
		IDEM_VALUE(TimestampTzGetDatum(lease->lease_until)),
		IDEM_VALUE(TimestampTzGetDatum(lease->acquired_at))
	};
	IdemRow    *row = idem_try_lock(call, &lease_by_name, &lease->tid);

	if (row == NULL || !ItemPointerEquals(&row->tid, &lease->tid))
		return false;
	if (!idem_change(call, &store_lease, &lease->tid, values))
		elog(ERROR, "locked lease \"%s\" could not be updated", TextDatumGetCString(lease->name));
	return true;
}

/*
 * Write a lease that changes hands.  in_progress as above, busy if another
 * transaction stands on the lease; then nothing is kept.
 */
static const char *
hand_over(IdemCall *call, Lease *lease, const char *outcome)
{
	if (!idem_hold_name(call, IDEM_NAME_LEASE_HELD, call->tenant_id, lease->name,
						ExclusiveLock, false))
		return busy;
	if (store(call, lease))
		return outcome;
	idem_let_name_go(call, IDEM_NAME_LEASE_HELD, call->tenant_id, lease->name, ExclusiveLock);
	return in_progress;
}


/* ---------- attempts ---------- */

/* What a call asks for */
typedef struct LeaseRequest
{
	Datum		name;
	Datum		worker;			/* who acquires */
	int64		fence;			/* of who renews or releases */
	int64		ttl_us;
} LeaseRequest;

typedef const char *(*LeaseAttempt) (IdemCall *call, const LeaseRequest *asked, Lease **lease);

/* What whoever has a lease, or had it, says of himself: its name and his fence */
static LeaseRequest
arg_holding(IdemCall *call)
{
	LeaseRequest asked = {0};

	asked.name = idem_arg_key(call, 1);
	asked.fence = DatumGetInt64(idem_arg_required(call, 2).value);
	return asked;
}

/* How long a lease is asked for */
static int64
arg_ttl(IdemCall *call, int n)
{
	(void) idem_arg_required(call, n);
	return DatumGetTimestampTz(idem_arg_expiry(call, n).value) - call->now;
}

/*
 * Try until the outcome is final or the call's time to wait is over; *lease is
 * the lease as the last attempt left it.  A wait may be long: what an attempt
 * made in memory goes with it.
 */
static const char *
attempt_until_done(IdemCall *call, LeaseAttempt attempt, const LeaseRequest *asked, Lease **lease)
{
	MemoryContext whole = call->context;
	const char *outcome;
	int			pause_ms = 1;

	call->context = AllocSetContextCreate(whole, "idem lease attempt", ALLOCSET_SMALL_SIZES);
	for (;;)
	{
		MemoryContextReset(call->context);
		MemoryContextSwitchTo(call->context);
		outcome = attempt(call, asked, lease);
		idem_unlock_names(call);
		if (outcome != busy && outcome != in_progress)
			break;
		if (TransactionIdIsValid(call->rival) ?
			!idem_await_rival(call) : !idem_pause(call, &pause_ms))
			break;
	}
	call->context = whole;
	MemoryContextSwitchTo(whole);
	return outcome;
}


/* ---------- acquire ---------- */

static bool
is_of(const Lease *lease, Datum worker)
{
	return !lease->worker.isnull && idem_same_text(lease->worker.value, worker);
}

/* Does somebody else hold the lease, whom nobody may overtake yet? */
static bool
is_taken(const IdemCall *call, const Lease *lease, Datum worker)
{
	return lease != NULL && !lease->worker.isnull && !is_of(lease, worker) &&
		lease->lease_until > call->now;
}

/* The lease as its next holder will have it; before is NULL for the first one */
static Lease *
next_lease(IdemCall *call, const LeaseRequest *asked, const Lease *before)
{
	Lease	   *next = palloc0(sizeof(Lease));

	if (before != NULL)
		next->tid = before->tid;
	next->name = asked->name;
	next->worker = IDEM_VALUE(asked->worker);
	next->fence = before != NULL ? before->fence + 1 : 1;
	next->lease_until = call->now + asked->ttl_us;
	next->acquired_at = call->now;
	return next;
}

/*
 * One attempt to acquire.  Most who wait find the lease taken, and need no lock
 * to see that.
 */
static const char *
try_acquire(IdemCall *call, const LeaseRequest *asked, Lease **lease)
{
	const char *outcome;
	Lease	   *next;

	*lease = look_lease(call, asked->name, IDEM_SIGHT_LATEST);
	if (is_taken(call, *lease, asked->worker))
		return busy;

	if (!look_under_name(call, asked->name, lease))
		return in_progress;
	if (is_taken(call, *lease, asked->worker))
		return busy;
	if (*lease != NULL && is_of(*lease, asked->worker))
	{
		(*lease)->lease_until = call->now + asked->ttl_us;
		return store(call, *lease) ? renewed : in_progress;
	}

	next = next_lease(call, asked, *lease);
	if (*lease == NULL)
		outcome = insert(call, next) ? acquired : in_progress;
	else
		outcome = hand_over(call, next, acquired);
	if (outcome == acquired)
		*lease = next;
	return outcome;
}

/*
 * idem_acquire_lease(tenant_id, name, worker, ttl, wait)
 *	 -> (outcome, fence, lease_until, blocking_no)
 *
 * Outcomes: acquired, renewed, busy, in_progress.  A fence that was given out
 * must not come again after a crash, so its commit waits for the disk whatever
 * synchronous_commit says.
 */
PG_FUNCTION_INFO_V1(idem_acquire_lease);
Datum
idem_acquire_lease(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	LeaseRequest asked = {0};
	Lease	   *lease;
	const char *outcome;

	asked.name = idem_arg_key(call, 1);
	asked.worker = idem_arg_key(call, 2);
	asked.ttl_us = arg_ttl(call, 3);
	idem_arg_wait(call, 4);

	outcome = attempt_until_done(call, try_acquire, &asked, &lease);
	if (outcome == acquired)
		ForceSyncCommit();
	if (outcome == in_progress)
		return idem_leave(call, outcome);
	if (outcome == busy)
		idem_put_nullable(call, 3, lease->worker);
	else
		idem_put(call, 1, Int64GetDatum(lease->fence));
	idem_put(call, 2, TimestampTzGetDatum(lease->lease_until));
	return idem_leave(call, outcome);
}


/* ---------- renew, release, assert ---------- */

static void
raise_not_found(const LeaseRequest *asked)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("lease \"%s\" does not exist", TextDatumGetCString(asked->name)),
			 errdetail("Nobody of the tenant has ever acquired it."),
			 errhint("Acquire it with idem_acquire_lease().")));
}

/* Raise ID005: what became of the lease since the caller acquired it */
static void
raise_lost(const LeaseRequest *asked, const Lease *lease)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_FENCED),
			 errmsg("lease \"%s\" is not held with fence " INT64_FORMAT,
					TextDatumGetCString(asked->name), asked->fence),
			 lease->fence == asked->fence ?
			 errdetail("It was released.") :
			 errdetail("Its newest fence is " INT64_FORMAT ".", lease->fence),
			 errhint("Stop what the lease is for, roll back, and acquire it anew with idem_acquire_lease().")));
}

/* Raise ID006 or ID005 unless the lease's newest fence is the caller's */
static void
demand_newest(const LeaseRequest *asked, const Lease *lease)
{
	if (lease == NULL)
		raise_not_found(asked);
	if (lease->fence != asked->fence)
		raise_lost(asked, lease);
}

/* The same, and if it was released */
static void
demand_held(const LeaseRequest *asked, const Lease *lease)
{
	demand_newest(asked, lease);
	if (lease->worker.isnull)
		raise_lost(asked, lease);
}

/* One attempt to renew.  Who has lost the lease has lost it for good, and is told at once. */
static const char *
try_renew(IdemCall *call, const LeaseRequest *asked, Lease **lease)
{
	demand_held(asked, look_lease(call, asked->name, IDEM_SIGHT_LATEST));

	if (!look_under_name(call, asked->name, lease))
		return in_progress;
	demand_held(asked, *lease);
	(*lease)->lease_until = call->now + asked->ttl_us;
	return store(call, *lease) ? renewed : in_progress;
}

/*
 * idem_renew_lease(tenant_id, name, fence, ttl) -> (outcome, lease_until)
 *
 * Outcomes: renewed, in_progress.  Errors: ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_renew_lease);
Datum
idem_renew_lease(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	LeaseRequest asked = arg_holding(call);
	Lease	   *lease;
	const char *outcome;

	asked.ttl_us = arg_ttl(call, 3);

	outcome = attempt_until_done(call, try_renew, &asked, &lease);
	if (outcome == renewed)
		idem_put(call, 1, TimestampTzGetDatum(lease->lease_until));
	return idem_leave(call, outcome);
}

/* One attempt to release */
static const char *
try_release(IdemCall *call, const LeaseRequest *asked, Lease **lease)
{
	*lease = look_lease(call, asked->name, IDEM_SIGHT_LATEST);
	demand_newest(asked, *lease);
	if ((*lease)->worker.isnull)
		return duplicate;

	if (!look_under_name(call, asked->name, lease))
		return in_progress;
	demand_newest(asked, *lease);
	if ((*lease)->worker.isnull)
		return duplicate;
	(*lease)->worker = IDEM_NULL;
	(*lease)->lease_until = call->now;
	return hand_over(call, *lease, released) == released ? released : in_progress;
}

/*
 * idem_release_lease(tenant_id, name, fence) -> (outcome)
 *
 * Outcomes: released, duplicate, in_progress.  Errors: ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_release_lease);
Datum
idem_release_lease(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	LeaseRequest asked = arg_holding(call);
	Lease	   *lease;

	return idem_leave(call, attempt_until_done(call, try_release, &asked, &lease));
}

/*
 * The lease as it stands now.  Under REPEATABLE READ and SERIALIZABLE the
 * snapshot must be of the same holding, or it may not show what the holder
 * before has done: 40001.  But it need not show the latest renewal, or no
 * transaction could outlast a heartbeat beside it.
 */
static Lease *
look_past_renewals(IdemCall *call, Datum name)
{
	Lease	   *now = look_lease(call, name, IDEM_SIGHT_BARE);
	Lease	   *seen;

	if (!IsolationUsesXactSnapshot() || now == NULL)
		return now;
	seen = look_lease(call, name, IDEM_SIGHT_FIRST);
	if (seen != NULL && seen->fence == now->fence &&
		seen->worker.isnull == now->worker.isnull)
		return now;
	return look_lease(call, name, IDEM_SIGHT_LATEST);
}

/*
 * idem_assert_lease(tenant_id, name, fence)
 *
 * Returns if the lease is held with this fence and cannot change hands before
 * the transaction ends.  The name comes first: from then on nobody hands the
 * lease over, and who was about to has ended.  It returns no outcome to be told
 * "in_progress" by, so it waits for him in the lock manager.  Writes nothing;
 * on a standby it could keep nobody from anything.  Errors: ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_assert_lease);
Datum
idem_assert_lease(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	LeaseRequest asked = arg_holding(call);

	PreventCommandDuringRecovery("idem_assert_lease()");
	(void) idem_hold_name(call, IDEM_NAME_LEASE_HELD, call->tenant_id, asked.name,
						  ShareLock, true);
	demand_held(&asked, look_past_renewals(call, asked.name));
	return idem_leave_void(call);
}
