/*-------------------------------------------------------------------------
 * direct_change.c
 *	  Rows that are changed in place, past the executor.
 *
 * What direct.c says of a row that goes into a table holds for one that is
 * changed: the statement would do the same, and costs several times as much.
 * So the new version of the row goes straight into the heap and, where an
 * indexed column has changed, into the indexes, as long as nobody has added
 * anything that an UPDATE would do.  The guard is called here, before and after.
 *
 * The row is locked by the caller, or was written by this transaction.  Should
 * it not be where he saw it, nothing is written, and it is his to say that this
 * cannot be.  Amounts are added to what is stored, not to what was read.
 */
#include "direct_table.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A row on its way from one version to the next */
typedef struct Version
{
	OpenTable	open;
	TupleTableSlot *before;
	Datum	   *values;			/* of the next */
	bool	   *nulls;
} Version;

/* By the statement, with all that the table asks for */
static bool
change_by_statement(IdemCall *call, IdemChange *change, ItemPointer tid,
					const NullableDatum *values)
{
	NullableDatum args[IDEM_MAX_CHANGED + 1];

	args[0] = IDEM_VALUE(PointerGetDatum(tid));
	memcpy(args + 1, values, sizeof(NullableDatum) * (change->update.nargs - 1));
	if (idem_run(call, &change->update, args) != 1)
		return false;
	*tid = *(ItemPointer) DatumGetPointer(idem_result(call, 0, 1).value);
	return true;
}

/* Add to a value of that type; false: there is no sum */
static bool
add(Oid type, Datum *value, Datum amount)
{
	int64		sum;
	int32		small_sum;

	if (type == INT4OID)
	{
		if (pg_add_s32_overflow(DatumGetInt32(*value), DatumGetInt32(amount), &small_sum))
			return false;
		*value = Int32GetDatum(small_sum);
		return true;
	}
	Assert(type == INT8OID);
	if (pg_add_s64_overflow(DatumGetInt64(*value), DatumGetInt64(amount), &sum))
		return false;
	*value = Int64GetDatum(sum);
	return true;
}

/* Set one column, or add to it; false: it cannot be, which is the statement's to say */
static bool
set_column(Version *version, int column, bool adds, Oid type, NullableDatum value)
{
	if (adds)
		return !value.isnull && !version->nulls[column] &&
			add(type, &version->values[column], value.value);
	version->values[column] = value.value;
	version->nulls[column] = value.isnull;
	return !value.isnull || !version->open.known->notnull[column];
}

/* The same, and what its domain says of it; those of other columns are not asked, as in an UPDATE */
static bool
change_column(Version *version, int attnum, Oid type, NullableDatum value)
{
	int			column = abs(attnum) - 1;

	return set_column(version, column, attnum < 0, type, value) &&
		direct_check_column(&version->open, column, version->values[column],
							version->nulls[column]);
}

/* Form the next version; false: it must go through the statement */
static bool
form_next(Version *version, const IdemChange *change, const NullableDatum *values)
{
	TupleDesc	desc = RelationGetDescr(version->open.table);
	HeapTuple	tuple;

	slot_getallattrs(version->before);
	version->values = palloc(sizeof(Datum) * desc->natts);
	version->nulls = palloc(sizeof(bool) * desc->natts);
	memcpy(version->values, version->before->tts_values, sizeof(Datum) * desc->natts);
	memcpy(version->nulls, version->before->tts_isnull, sizeof(bool) * desc->natts);
	for (int i = 1; i < change->update.nargs; i++)
	{
		if (!change_column(version, change->columns[i - 1], change->update.argtypes[i],
						   values[i - 1]))
			return false;
	}
	tuple = heap_form_tuple(desc, version->values, version->nulls);
	tuple->t_tableOid = RelationGetRelid(version->open.table);
	(void) ExecForceStoreHeapTuple(tuple, version->open.slot, false);
	return direct_passes(&version->open);
}

/* Call the guard, if there is one; returns the row as it is to be stored */
static HeapTuple
fire(Version *version, const KnownGuard *guard, TriggerEvent timing)
{
	HeapTuple	next = ExecFetchSlotHeapTuple(version->open.slot, false, NULL);
	TriggerData data = {
		.tg_event = TRIGGER_EVENT_UPDATE | timing,
		.tg_trigtuple = ExecFetchSlotHeapTuple(version->before, false, NULL),
		.tg_newtuple = next,
		.tg_trigslot = version->before,
		.tg_newslot = version->open.slot
	};

	return guard->trigger == NULL ? next : direct_fire(&version->open, guard, &data);
}

/* The guard's last word before the row is stored */
static void
let_guard_see(Version *version)
{
	HeapTuple	next = ExecFetchSlotHeapTuple(version->open.slot, false, NULL);
	HeapTuple	allowed = fire(version, &version->open.known->before_update,
							   TRIGGER_EVENT_BEFORE);

	if (allowed == NULL)
		elog(ERROR, "guard of table \"%s\" keeps a row as it is, unasked",
			 RelationGetRelationName(version->open.table));
	if (allowed != next)
		(void) ExecForceStoreHeapTuple(allowed, version->open.slot, false);
}

/* Store the next version in place of the one at tid; false: that is not the newest */
static bool
store_next(Version *version, ItemPointer tid)
{
	Relation	table = version->open.table;
	TM_FailureData failure;
	LockTupleMode mode;
	IdemIndexesDue due;

	if (table_tuple_update(table, tid, version->open.slot, GetCurrentCommandId(true),
						   InvalidSnapshot, InvalidSnapshot, true, &failure, &mode,
						   &due) != TM_Ok)
		return false;
	if (due)
		(void) direct_insert_into_indexes(&version->open, UNIQUE_CHECK_YES);
	*tid = version->open.slot->tts_tid;
	return true;
}

/* The version at tid, whoever sees it; false: there is none */
static bool
fetch(Version *version, ItemPointer tid)
{
	return table_tuple_fetch_row_version(version->open.table, tid, SnapshotAny, version->before);
}

/* Open the table for a change of a row; false: it must go through the statement */
static bool
open_for_change(IdemCall *call, const IdemChange *change, Version *version)
{
	direct_open(&version->open, call->house, change->table, change->table->table);
	if (version->open.known->changeable && SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
	{
		/* subscribers must be able to tell which row it was */
		CheckCmdReplicaIdentity(version->open.table, CMD_UPDATE);
		version->before = table_slot_create(version->open.table, NULL);
		version->open.slot = MakeSingleTupleTableSlot(RelationGetDescr(version->open.table),
													  &TTSOpsHeapTuple);
		return true;
	}
	direct_close(&version->open);
	return false;
}

static void
close_after_change(Version *version)
{
	ExecDropSingleTupleTableSlot(version->before);
	ExecDropSingleTupleTableSlot(version->open.slot);
	direct_close(&version->open);
}

bool
idem_change(IdemCall *call, IdemChange *change, ItemPointer tid, const NullableDatum *values)
{
	Version		version;
	bool		changed;

	PreventCommandIfReadOnly(NameStr(call->function->name));
	if (!open_for_change(call, change, &version))
		return change_by_statement(call, change, tid, values);
	if (!fetch(&version, tid) || !form_next(&version, change, values))
	{
		close_after_change(&version);
		return change_by_statement(call, change, tid, values);
	}
	let_guard_see(&version);
	changed = store_next(&version, tid);
	if (changed)
		(void) fire(&version, &version.open.known->after_update, TRIGGER_EVENT_AFTER);
	close_after_change(&version);
	CommandCounterIncrement();
	return changed;
}
