/*-------------------------------------------------------------------------
 * look.h
 *	  Look at rows by index, lock them, wait for rivals.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LOOK_H
#define IDEM_LOOK_H

#include "call.h"

#include "executor/tuptable.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef struct IdemIndex
{
	const char *table;
	const char *index;
	int			natts;			/* columns that the caller will read */
} IdemIndex;

/* A row as it was seen: a copy that lives as long as the call */
typedef struct IdemRow
{
	ItemPointerData tid;
	uint64		line;			/* where one waits for it; 0: it was not found to be locked */
	bool		own;			/* written by this very transaction */
	Datum	   *values;			/* by attribute number - 1 */
	bool	   *isnull;
} IdemRow;

/*
 * With whose eyes to look.
 *
 * IDEM_SIGHT_FIRST: the statement's snapshot, and what the transaction has
 * written since; free, for the look before any lock.  IDEM_SIGHT_LATEST: what is
 * committed now.  IDEM_SIGHT_DIRTY: that and what is still open; a row that an
 * open transaction inserted, changed or deleted leaves that transaction in
 * call->rival.  These two raise 40001 for a row that the transaction's own
 * snapshot (REPEATABLE READ, SERIALIZABLE) does not see.  IDEM_SIGHT_BARE: what
 * is committed now, and no 40001; for a caller who compares with what the
 * snapshot sees himself.
 */
typedef enum IdemSight
{
	IDEM_SIGHT_FIRST,
	IDEM_SIGHT_LATEST,
	IDEM_SIGHT_DIRTY,
	IDEM_SIGHT_BARE
} IdemSight;

/* Kinds of thing a name can be locked for; the numbers are hashed, keep them */
typedef enum IdemNameKind
{
	IDEM_NAME_REQUEST_KEY = 1,
	IDEM_NAME_ORDER = 2,
	IDEM_NAME_PAYMENT = 3,
	IDEM_NAME_TRADE = 4,
	IDEM_NAME_REFUND = 5,
	IDEM_NAME_REQUEST = 6,
	IDEM_NAME_TOKEN = 7,
	IDEM_NAME_LEASE = 8,
	IDEM_NAME_LEASE_HELD = 9,	/* to commit, by idem_hold_name */
	IDEM_NAME_MACHINE = 10,		/* to commit, by machine_hold */
	IDEM_NAME_ENTITY = 11,		/* to commit, by who attaches a table */
	IDEM_NAME_DISPUTE = 12,
	IDEM_NAME_BRAKE = 13,
	IDEM_NAME_CHANNEL_EVENT = 14,	/* the channel stands for the tenant */
	IDEM_NAME_CHANNEL_ACCOUNT = 15,
	IDEM_NAME_ENTITLEMENT = 16,
	IDEM_NAME_CAMPAIGN = 17,
	IDEM_NAME_HOOK = 18,
	IDEM_NAME_SUBSCRIPTION = 20,	/* to commit; shared by who reads */
	IDEM_NAME_SLOT = 21,		/* to commit */
	IDEM_NAME_RING = 22,		/* to commit, by who turns it */
	IDEM_NAME_MESSAGE = 23
} IdemNameKind;

extern IdemRow *idem_look(IdemCall *call, const IdemIndex *index,
						  const Datum *keys, int nkeys, IdemSight sight);
extern IdemRow *idem_look_last(IdemCall *call, const IdemIndex *index,
							   const Datum *keys, int nkeys, IdemSight sight);
extern List *idem_look_all(IdemCall *call, const IdemIndex *index,
						   const Datum *keys, int nkeys, IdemSight sight);

/* Has enough been seen?  Asked with the rows so far, the last of them last. */
typedef bool (*IdemEnough) (const List *rows, const void *argument);
extern List *idem_look_back(IdemCall *call, const IdemIndex *index,
							const Datum *keys, int nkeys, IdemSight sight,
							IdemEnough enough, const void *argument);

/*
 * Several rows that say something together must be of one moment.  Who judges
 * them without a lock holds the moment in which he looks at the first: what
 * IDEM_SIGHT_LATEST sees from then on is what was committed by then.  To be let go
 * before anything is locked.
 */
extern void idem_hold_moment(IdemCall *call);
extern void idem_let_moment_go(IdemCall *call);

/* Raise 40001: another transaction was faster, as a whole sentence says */
pg_noreturn extern void idem_raise_race(const char *detail);

/* The same if the transaction's own snapshot does not see the row in the slot */
extern void idem_demand_visible(Relation table, TupleTableSlot *slot);

extern IdemRow *idem_lock_row(IdemCall *call, const IdemIndex *index,
							  const Datum *keys, int nkeys);
extern IdemRow *idem_lock_seen(IdemCall *call, const IdemIndex *index,
							   const Datum *keys, int nkeys, IdemRow *row);
extern List *idem_lock_all(IdemCall *call, const IdemIndex *index,
						   const Datum *keys, int nkeys, int order_by);
extern IdemRow *idem_try_lock(IdemCall *call, const IdemIndex *index,
							  ItemPointer tid);

extern void idem_lock_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key);
extern void idem_lock_names(IdemCall *call, IdemNameKind kind, Datum tenant_id,
							const Datum *keys, int nkeys);
extern void idem_unlock_names(IdemCall *call);

/*
 * A name that is held until the transaction ends: shared by those who need it
 * to stay as it is, exclusively by who changes it.  false: not without waiting.
 */
extern bool idem_hold_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key,
						   LOCKMODE mode, bool wait);
extern bool idem_await_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key,
							LOCKMODE mode);
extern bool idem_name_is_held(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key);
extern void idem_let_name_go(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key,
							 LOCKMODE mode);

extern bool idem_await_rival(IdemCall *call);
extern bool idem_pause(IdemCall *call, int *pause_ms);
extern bool idem_step_back(IdemCall *call, int *pause_ms);

/* Send off the first natts columns of a row as one row of the result set */
extern void idem_emit_row(IdemCall *call, const IdemRow *row, int natts);

/* Columns of a row */
#define IDEM_COLUMN(row, attnum) ((row)->values[(attnum) - 1])
#define IDEM_NULLABLE(row, attnum) \
	((NullableDatum) {(row)->values[(attnum) - 1], (row)->isnull[(attnum) - 1]})

#endif							/* IDEM_LOOK_H */
