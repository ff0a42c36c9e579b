/*-------------------------------------------------------------------------
 * look.c
 *	  Look at rows and lock them.
 *
 * Two sessions that create the same thing at once cannot see each other's
 * rows.  The protocol that every function follows:
 *
 * 1. Look.  Most calls are repetitions; they find their row by an index scan
 *	  in C, write nothing and leave.  No planner stands in between, so no
 *	  setting and no statistics can make this slow.
 * 2. Lock the name of the thing, an advisory lock in a space of our own that
 *	  is held for the look and the insert only.
 * 3. Look again with the dirty snapshot, which sees what is still open.  A
 *	  rival's row cannot be judged before the rival has ended: unlock, wait for
 *	  it (a request only so long), begin again.
 * 4. Insert, unlock.  From here on others see the row dirtily.
 *
 * While a name is locked nothing may block; row locks come before it, or are
 * only tried.  So names take part in no deadlock.
 *
 * Under REPEATABLE READ and SERIALIZABLE the second look can meet rows that
 * the transaction's snapshot does not see.  Deciding by them would contradict
 * what the caller has read, deciding without them would be wrong: 40001.
 *-------------------------------------------------------------------------
 */
#include "look.h"

#include "line.h"
#include "relation.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"


/* ---------- look ---------- */

static Relation
open_index_of(IdemCall *call, const IdemIndex *index, Relation *table, LOCKMODE mode)
{
	Oid			table_oid = relation_oid(call->house, index->table);
	Oid			index_oid = relation_oid(call->house, index->index);

	if (!OidIsValid(table_oid) || !OidIsValid(index_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" or its index \"%s\" does not exist in schema %s",
						index->table, index->index, call->house->schema),
				 errdetail("They belong to the extension idem.")));
	*table = table_open(table_oid, mode);
	if (RelationGetNumberOfAttributes(*table) < index->natts)
		elog(ERROR, "table \"%s\" has too few columns for this library", index->table);
	return index_open(index_oid, AccessShareLock);
}

/*
 * The table's lock stays until the transaction ends, as after any SELECT.  That
 * of who looks back goes at once: so the log is read, which is emptied by
 * TRUNCATE, and that must not wait for the end of whoever has read there.
 *
 * The index's goes at once in any case.  A backend can hold 16 locks on relations
 * by itself; from there on each one stands in the table that all backends share,
 * where those on one relation share one LWLock, and a few hundred sessions that
 * all make the same call queue for it.
 */
static void
close_both(Relation table, Relation index, ScanDirection direction)
{
	index_close(index, AccessShareLock);
	table_close(table, ScanDirectionIsBackward(direction) ? AccessShareLock : NoLock);
}

/* The equality of a type that our keys have */
static RegProcedure
equality_of(Oid type)
{
	switch (type)
	{
		case TEXTOID:
			return F_TEXTEQ;
		case BYTEAOID:
			return F_BYTEAEQ;
		case INT2OID:
			return F_INT2EQ;
		case INT8OID:
			return F_INT8EQ;
		case BOOLOID:
			return F_BOOLEQ;
		case XID8OID:
			return F_XID8EQ;
		default:
			return F_INT4EQ;
	}
}

/* Equality on the first columns of an index */
static void
fill_scan_keys(Relation index, const Datum *keys, int nkeys, ScanKey scan_keys)
{
	for (int i = 0; i < nkeys; i++)
	{
		Oid			type = index->rd_opcintype[i];

		ScanKeyInit(&scan_keys[i], i + 1, BTEqualStrategyNumber, equality_of(type), keys[i]);
		scan_keys[i].sk_collation = type == TEXTOID ? C_COLLATION_OID : InvalidOid;
	}
}

/* What a key is called in the line for its row (line.c) */
static uint64
hash_keys(Relation index, const Datum *keys, int nkeys)
{
	uint64		hash = RelationGetRelid(index);

	for (int i = 0; i < nkeys; i++)
	{
		Oid			type = index->rd_opcintype[i];
		struct varlena *bytes;

		if (type != TEXTOID && type != BYTEAOID)
		{
			hash = hash_combine64(hash, (uint64) keys[i]);
			continue;
		}
		bytes = PG_DETOAST_DATUM_PACKED(keys[i]);
		hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(bytes),
								   VARSIZE_ANY_EXHDR(bytes), hash);
	}
	return hash;
}

void
idem_raise_race(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errdetail("%s", detail),
			 errhint("Retry the transaction.")));
	pg_unreachable();
}

/* Raise 40001 if the transaction's own snapshot does not see this row */
void
idem_demand_visible(Relation table, TupleTableSlot *slot)
{
	if (IsolationUsesXactSnapshot() &&
		!table_tuple_satisfies_snapshot(table, slot, GetTransactionSnapshot()))
		idem_raise_race(psprintf("A row of \"%s\" was written after this transaction's snapshot.",
								 RelationGetRelationName(table)));
}

/* A copy of the row in the slot, in the call's memory */
static IdemRow *
copy_row(IdemCall *call, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(call->context);
	TupleDesc	desc = slot->tts_tupleDescriptor;
	HeapTuple	tuple = ExecCopySlotHeapTuple(slot);
	IdemRow    *row = palloc(sizeof(IdemRow));

	row->tid = slot->tts_tid;
	row->line = 0;
	row->own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	row->values = palloc(sizeof(Datum) * desc->natts);
	row->isnull = palloc(sizeof(bool) * desc->natts);
	heap_deform_tuple(tuple, desc, row->values, row->isnull);
	MemoryContextSwitchTo(old);
	return row;
}

/*
 * Take note of what a dirty look said about the row in hand.  Returns true if
 * the row itself is not yet born.
 */
static bool
note_rival(IdemCall *call, const SnapshotData *dirty)
{
	if (TransactionIdIsValid(dirty->xmin))
	{
		call->rival = dirty->xmin;
		return true;
	}
	if (TransactionIdIsValid(dirty->xmax))
		call->rival = dirty->xmax;
	return false;
}

/*
 * The next row of a scan, into the slot; false: no more.  *lost is set when an
 * entry of the index led to no row.
 */
static bool
next_row(IndexScanDesc desc, ScanDirection direction, TupleTableSlot *slot, bool *lost)
{
	for (;;)
	{
		bool		inside_chain = desc->xs_heap_continue;

		if (!inside_chain && index_getnext_tid(desc, direction) == NULL)
			return false;
		if (index_fetch_heap(desc, slot))
			return true;
		if (!inside_chain)
			*lost = true;
	}
}

/*
 * What the statement sees, and what this transaction has written since: a call
 * must know what another call in the same statement has done.
 */
static void
see_own_writes(SnapshotData *snapshot)
{
	*snapshot = *GetActiveSnapshot();
	snapshot->curcid = Max(snapshot->curcid, GetCurrentCommandId(false));
}

/*
 * The rows of an index that match, in that direction, until there are enough;
 * enough NULL: all of them.
 *
 * A dirty look reads the entries of the index first and the rows after that.
 * Whoever updates a row and commits in between has left its old version dead
 * and its new one without an entry in hand: the row is there all the time, and
 * not seen.  So where an entry led to no row, what is committed is looked at
 * once more with a snapshot, which no update can slip through.
 */
static List *
scan(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
	 IdemSight sight, ScanDirection direction, IdemEnough enough, const void *argument)
{
	List	   *rows = NIL;
	bool		lost = false;
	Relation	table;
	Relation	by = open_index_of(call, index, &table, AccessShareLock);
	ScanKeyData scan_keys[INDEX_MAX_KEYS];
	TupleTableSlot *slot = table_slot_create(table, NULL);
	SnapshotData seen;
	Snapshot	snapshot = &seen;
	IndexScanDesc desc;
	uint64		line = sight == IDEM_SIGHT_LATEST ? hash_keys(by, keys, nkeys) : 0;

	InitDirtySnapshot(seen);
	if (sight == IDEM_SIGHT_FIRST)
		see_own_writes(&seen);
	else if (sight == IDEM_SIGHT_LATEST && call->moment != NULL)
		snapshot = call->moment;
	else if (sight != IDEM_SIGHT_DIRTY)
		snapshot = RegisterSnapshot(GetLatestSnapshot());

	fill_scan_keys(by, keys, nkeys, scan_keys);
	desc = idem_index_beginscan(table, by, snapshot, nkeys);
	index_rescan(desc, scan_keys, nkeys, NULL, 0);
	while (next_row(desc, direction, slot, &lost))
	{
		IdemRow    *row;

		if (sight == IDEM_SIGHT_DIRTY && note_rival(call, &seen))
			continue;
		if (sight == IDEM_SIGHT_LATEST || sight == IDEM_SIGHT_DIRTY)
			idem_demand_visible(table, slot);
		row = copy_row(call, slot);
		row->line = line;
		rows = lappend(rows, row);
		if (enough != NULL && enough(rows, argument))
			break;
	}
	index_endscan(desc);
	ExecDropSingleTupleTableSlot(slot);
	if (snapshot != &seen && snapshot != call->moment)
		UnregisterSnapshot(snapshot);
	close_both(table, by, direction);

	if (sight == IDEM_SIGHT_DIRTY && lost)
		return scan(call, index, keys, nkeys, IDEM_SIGHT_LATEST, direction, enough, argument);
	return rows;
}

static bool
one_is_enough(const List *rows, const void *argument pg_attribute_unused())
{
	return rows != NIL;
}

static IdemRow *
first_of(List *rows)
{
	return rows == NIL ? NULL : (IdemRow *) linitial(rows);
}

/*
 * The first row of an index whose leading columns equal the keys; NULL: none.
 */
IdemRow *
idem_look(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
		  IdemSight sight)
{
	return first_of(scan(call, index, keys, nkeys, sight, ForwardScanDirection, one_is_enough, NULL));
}

/* The last such row */
IdemRow *
idem_look_last(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
			   IdemSight sight)
{
	return first_of(scan(call, index, keys, nkeys, sight, BackwardScanDirection, one_is_enough, NULL));
}

/* All of them, in the order of the index; a list of IdemRow */
List *
idem_look_all(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
			  IdemSight sight)
{
	return scan(call, index, keys, nkeys, sight, ForwardScanDirection, NULL, NULL);
}

/* From the last of them back, until there are enough */
List *
idem_look_back(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
			   IdemSight sight, IdemEnough enough, const void *argument)
{
	return scan(call, index, keys, nkeys, sight, BackwardScanDirection, enough, argument);
}

void
idem_hold_moment(IdemCall *call)
{
	call->moment = RegisterSnapshot(GetLatestSnapshot());
}

void
idem_let_moment_go(IdemCall *call)
{
	UnregisterSnapshot(call->moment);
	call->moment = NULL;
}

/* Send off a row as it was seen: for functions that show rows of a table */
void
idem_emit_row(IdemCall *call, const IdemRow *row, int natts)
{
	for (int attnum = 1; attnum <= natts; attnum++)
		idem_put_nullable(call, attnum - 1, IDEM_NULLABLE(row, attnum));
	idem_emit(call);
}


/* ---------- lock rows ---------- */

/* What came of an attempt to lock a row */
typedef enum LockResult
{
	ROW_LOCKED,
	ROW_GONE,					/* deleted, or it moved: look again */
	ROW_BUSY					/* somebody else holds it */
} LockResult;

/*
 * Of several lockers of a row, one who keeps us from locking it; invalid:
 * none.
 */
static TransactionId
holder_among(MultiXactId lockers, uint16 infomask)
{
	MultiXactMember *members;
	int			n = GetMultiXactIdMembers(lockers, &members, false,
										  HEAP_XMAX_IS_LOCKED_ONLY(infomask));

	for (int i = 0; i < n; i++)
	{
		if (members[i].status != MultiXactStatusForKeyShare &&
			!TransactionIdIsCurrentTransactionId(members[i].xid) &&
			TransactionIdIsInProgress(members[i].xid))
			return members[i].xid;
	}
	return InvalidTransactionId;
}

/*
 * Who keeps us from locking the row at tid; invalid: nobody any more.  The
 * attempt itself does not tell: of several lockers it gives the number of
 * their list, which could be that of a stranger's transaction, or our own.
 */
static TransactionId
holder_of(Relation table, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(table, NULL);
	TransactionId holder = InvalidTransactionId;

	if (table_tuple_fetch_row_version(table, tid, SnapshotAny, slot))
	{
		HeapTupleHeader header = ExecFetchSlotHeapTuple(slot, false, NULL)->t_data;
		Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;
		uint16		infomask;
		TransactionId xmax;

		/* both at one moment */
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		infomask = header->t_infomask;
		xmax = HeapTupleHeaderGetRawXmax(header);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

		if ((infomask & HEAP_XMAX_INVALID) || HEAP_LOCKED_UPGRADED(infomask))
			holder = InvalidTransactionId;
		else if (infomask & HEAP_XMAX_IS_MULTI)
			holder = holder_among(xmax, infomask);
		else if (!HEAP_XMAX_IS_KEYSHR_LOCKED(infomask) && TransactionIdIsInProgress(xmax))
			holder = xmax;
	}
	ExecDropSingleTupleTableSlot(slot);
	return holder;
}

/*
 * Lock the row at tid FOR NO KEY UPDATE and copy its newest version.  Where
 * the row is busy, *holder gets who holds it, if it is asked for.
 */
static LockResult
lock_tid(IdemCall *call, const IdemIndex *index, ItemPointer tid,
		 LockWaitPolicy policy, IdemRow **row, TransactionId *holder)
{
	Oid			table_oid = relation_oid(call->house, index->table);
	Relation	table = table_open(table_oid, RowShareLock);
	TupleTableSlot *slot = table_slot_create(table, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	uint8		flags = IsolationUsesXactSnapshot() ? 0 : TUPLE_LOCK_FLAG_FIND_LAST_VERSION;
	ItemPointerData at = *tid;
	TM_FailureData failure;
	TM_Result	result;
	LockResult	locked = ROW_GONE;

	PreventCommandIfReadOnly(NameStr(call->function->name));
	result = table_tuple_lock(table, &at, snapshot, slot, GetCurrentCommandId(false),
							  LockTupleNoKeyExclusive, policy, flags, &failure);
	if (result == TM_Ok)
	{
		idem_demand_visible(table, slot);
		*row = copy_row(call, slot);
		locked = ROW_LOCKED;
	}
	else if (result == TM_WouldBlock)
	{
		locked = ROW_BUSY;
		if (holder != NULL)
			*holder = holder_of(table, &at);
	}
	else if (IsolationUsesXactSnapshot())
		idem_raise_race(psprintf("A row of \"%s\" was written after this transaction's snapshot.",
								 index->table));

	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	table_close(table, NoLock);
	return locked;
}

/*
 * Lock a row that was found by its key; who waits for that key is called when
 * this transaction ends.
 */
static LockResult
lock_found(IdemCall *call, const IdemIndex *index, IdemRow *seen, IdemRow **row)
{
	LockWaitPolicy policy = call->fact ? LockWaitBlock : LockWaitSkip;
	LockResult	result = lock_tid(call, index, &seen->tid, policy, row, NULL);

	if (result == ROW_LOCKED)
		line_call_for_row(seen->line);
	return result;
}

/*
 * A row is busy: join the line and try once more, then sleep; and where others
 * come first, not for a little only.  false: a request's time to wait is over.
 */
static bool
wait_for_row(IdemCall *call, const IdemRow *row, Line *line, int *pause_ms)
{
	if (line->joined)
		return idem_pause(call, pause_ms);
	*line = line_for_row(row->line);
	if (line_join(line))
		*pause_ms = LONGEST_PAUSE_MS;
	return true;
}

/*
 * Find a row by its key and lock it.  A fact waits for the lock as long as it
 * takes (cancel, statement_timeout and lock_timeout end it); a request gives
 * up when its wait is over, with call->busy.  NULL otherwise: no such row.
 */
IdemRow *
idem_lock_row(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys)
{
	Line		line = {.joined = false};
	int			pause_ms = 1;
	IdemRow    *seen;
	IdemRow    *row = NULL;

	while ((seen = idem_look(call, index, keys, nkeys, IDEM_SIGHT_LATEST)) != NULL)
	{
		LockResult	result = lock_found(call, index, seen, &row);

		if (result == ROW_LOCKED)
			break;
		if (result == ROW_BUSY && !wait_for_row(call, seen, &line, &pause_ms))
		{
			call->busy = true;
			break;
		}
		CHECK_FOR_INTERRUPTS();
	}
	line_leave(&line);
	return row;
}

/*
 * The same for a row that was just seen with IDEM_SIGHT_LATEST.  One that this
 * very transaction wrote is nobody else's, locked or not.
 */
IdemRow *
idem_lock_seen(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
			   IdemRow *row)
{
	if (row->own || lock_found(call, index, row, &row) == ROW_LOCKED)
		return row;
	return idem_lock_row(call, index, keys, nkeys);
}

/*
 * Lock a row that was seen at tid, if nobody else holds it.  NULL: somebody
 * does, who is left in call->rival, or the row has moved.
 */
IdemRow *
idem_try_lock(IdemCall *call, const IdemIndex *index, ItemPointer tid)
{
	TransactionId holder = InvalidTransactionId;
	IdemRow    *row;

	switch (lock_tid(call, index, tid, LockWaitSkip, &row, &holder))
	{
		case ROW_LOCKED:
			return row;
		case ROW_BUSY:
			if (TransactionIdIsValid(holder))
				call->rival = holder;
			break;
		case ROW_GONE:
			break;
	}
	return NULL;
}

/* The column that idem_lock_all sorts by, for its comparator */
static int	sort_column;

static int
compare_rows(const ListCell *a, const ListCell *b)
{
	return idem_compare_text(IDEM_COLUMN((IdemRow *) lfirst(a), sort_column),
							 IDEM_COLUMN((IdemRow *) lfirst(b), sort_column));
}

/*
 * Lock all rows that match, ascending by a text column, so that two calls
 * that lock the same rows cannot wait for each other.  NIL with call->busy: a
 * request gave up.
 */
List *
idem_lock_all(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys,
			  int order_by)
{
	List	   *seen = idem_look_all(call, index, keys, nkeys, IDEM_SIGHT_LATEST);
	List	   *locked = NIL;
	Line		line = {.joined = false};
	int			pause_ms = 1;
	ListCell   *cell;

	sort_column = order_by;
	list_sort(seen, compare_rows);
	foreach(cell, seen)
	{
		IdemRow    *row = lfirst(cell);
		LockResult	result;

		while ((result = lock_found(call, index, lfirst(cell), &row)) == ROW_BUSY)
		{
			if (wait_for_row(call, row, &line, &pause_ms))
				continue;
			call->busy = true;
			line_leave(&line);
			return NIL;
		}
		if (result == ROW_LOCKED)
			locked = lappend(locked, row);
	}
	line_leave(&line);
	return locked;
}


/* ---------- lock names ---------- */

/*
 * The lock tag of a name.  The hash may collide with another name's: then two
 * strangers take turns, nothing worse.
 */
static LOCKTAG
name_tag(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key)
{
	text	   *tenant = DatumGetTextPP(tenant_id);
	text	   *name = DatumGetTextPP(key);
	LOCKTAG		tag;
	uint64		hash;

	hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(tenant),
							   VARSIZE_ANY_EXHDR(tenant),
							   ((uint64) call->house->nspoid << 32) | kind);
	hash = hash_bytes_extended((unsigned char *) VARDATA_ANY(name),
							   VARSIZE_ANY_EXHDR(name), hash);

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash,
						 IDEM_LOCK_NAME);
	return tag;
}

/* Lock a name that name_tag made; kept in the call, to be unlocked with the rest */
static void
lock_tag(IdemCall *call, const LOCKTAG *tag)
{
	if (call->nnames >= call->names_size)
	{
		call->names_size = Max(4, call->names_size * 2);
		call->names = call->names == NULL ?
			MemoryContextAlloc(GetMemoryChunkContext(call), sizeof(LOCKTAG) * call->names_size) :
			repalloc(call->names, sizeof(LOCKTAG) * call->names_size);
	}
	(void) LockAcquire(tag, ExclusiveLock, false, false);
	call->names[call->nnames++] = *tag;
}

/*
 * Lock the name of a thing that may not exist yet.
 */
void
idem_lock_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key)
{
	LOCKTAG		tag = name_tag(call, kind, tenant_id, key);

	PreventCommandIfReadOnly(NameStr(call->function->name));
	line_call_for_transaction();
	lock_tag(call, &tag);
}

static int
compare_tags(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(LOCKTAG));
}

/*
 * Lock many names of one kind, ascending, so that two batches cannot wait for
 * each other.  A name that occurs twice is locked twice, which is harmless.
 */
void
idem_lock_names(IdemCall *call, IdemNameKind kind, Datum tenant_id,
				const Datum *keys, int nkeys)
{
	LOCKTAG    *tags = palloc(sizeof(LOCKTAG) * Max(nkeys, 1));

	PreventCommandIfReadOnly(NameStr(call->function->name));
	line_call_for_transaction();
	for (int i = 0; i < nkeys; i++)
		tags[i] = name_tag(call, kind, tenant_id, keys[i]);
	qsort(tags, nkeys, sizeof(LOCKTAG), compare_tags);
	for (int i = 0; i < nkeys; i++)
		lock_tag(call, &tags[i]);
}

/* Unlock the names, the last one first; to be done right after the insert */
void
idem_unlock_names(IdemCall *call)
{
	while (call->nnames > 0)
		(void) LockRelease(&call->names[--call->nnames], ExclusiveLock, false);
}

/*
 * Hold a name until the transaction, or the savepoint, ends.  Unlike the locks
 * above it may be waited for, in the lock manager, where a deadlock is found;
 * under a locked name it is only tried.
 */
bool
idem_hold_name(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key,
			   LOCKMODE mode, bool wait)
{
	LOCKTAG		tag = name_tag(call, kind, tenant_id, key);

	Assert(!wait || call->nnames == 0);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* Does anybody else hold it?  Asked without holding it for a moment, which others would meet. */
bool
idem_name_is_held(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key)
{
	LOCKTAG		tag = name_tag(call, kind, tenant_id, key);
	int			holders;

	/* the list costs as much as the server has room for sessions */
	if (LockWaiterCount(&tag) == 0)
		return false;
	(void) GetLockConflicts(&tag, ShareLock, &holders);
	return holders > 0;
}

/* Give back what was held for nothing, once */
void
idem_let_name_go(IdemCall *call, IdemNameKind kind, Datum tenant_id, Datum key, LOCKMODE mode)
{
	LOCKTAG		tag = name_tag(call, kind, tenant_id, key);

	(void) LockRelease(&tag, mode, false);
}
