/*-------------------------------------------------------------------------
 * append.c
 *	  Rows for history and outbox, past the executor.
 *
 * Every move appends two rows, and an SPI statement costs several times what
 * the row costs.  So a row goes straight into the heap and its indexes, which
 * is what the executor would do with it, as long as there is nothing else that
 * the executor would do: fire a trigger, check a constraint, apply a rule,
 * compute a column, an index expression or a predicate.  Where there is, or
 * where the table is not one of the kind and the columns that are expected,
 * the row goes through SPI, with the same values.
 *
 * The rows bear the current command id: what the transaction does next sees
 * them, the statement that fired the trigger does not, as with SPI.
 *-------------------------------------------------------------------------
 */
#include "outbox.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "catalog/index.h"
#include "utils/lsyscache.h"

/* More indexes than that, and the row goes through SPI */
#define MAX_LOG_INDEXES 8

/* An append-only table that is open for one row */
typedef struct OpenLog
{
	Relation	table;
	int			nindexes;
	Relation	indexes[MAX_LOG_INDEXES];
} OpenLog;


/* ---------- may the row go straight in? ---------- */

/* The trigger that gives foreign rows what ours have (log.c) */
static bool
is_stamp(const Trigger *trigger, const IdemHouse *house)
{
	char	   *name = get_func_name(trigger->tgfoid);

	return name != NULL && strcmp(name, "idem_outbox_stamp") == 0 &&
		get_func_namespace(trigger->tgfoid) == house->nspoid;
}

/* Does any other trigger fire on an INSERT? */
static bool
insert_fires(Relation table, const IdemHouse *house)
{
	TriggerDesc *triggers = table->trigdesc;

	if (triggers == NULL)
		return false;
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_INSERT(trigger->tgtype) && !is_stamp(trigger, house))
			return true;
	}
	return false;
}

/* Does an INSERT do nothing to this table but store the row? */
static bool
table_is_plain(Relation table, const IdemHouse *house)
{
	TupleConstr *constraints = RelationGetDescr(table)->constr;

	if (table->rd_rel->relkind != RELKIND_RELATION || table->rd_rules != NULL ||
		insert_fires(table, house))
		return false;
	return constraints == NULL || constraints->num_check == 0;
}

/* Has it the columns that we know, and no others? */
static bool
columns_are_known(Relation table, const IdemLog *log)
{
	TupleDesc	desc = RelationGetDescr(table);

	if (desc->natts != log->natts)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0' ||
			column->atttypid != log->insert.argtypes[i])
			return false;
	}
	return true;
}

/* Does an index take the row's columns as they are, and check at once? */
static bool
index_is_plain(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID &&
		index->rd_index->indimmediate &&
		!index->rd_index->indisexclusion &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/* Locks on indexes go at once, that on the table stays, as after any INSERT */
static void
close_log(OpenLog *open)
{
	for (int i = 0; i < open->nindexes; i++)
		index_close(open->indexes[i], RowExclusiveLock);
	table_close(open->table, NoLock);
}

/* Open a table and its indexes; false, and all closed, if a row cannot go in */
static bool
open_log(OpenLog *open, Oid table_oid, const IdemLog *log, const IdemHouse *house)
{
	bool		plain;
	List	   *indexes;
	ListCell   *cell;

	open->table = table_open(table_oid, RowExclusiveLock);
	open->nindexes = 0;
	plain = table_is_plain(open->table, house) && columns_are_known(open->table, log);
	if (plain)
	{
		indexes = RelationGetIndexList(open->table);
		plain = list_length(indexes) <= MAX_LOG_INDEXES;
		foreach(cell, indexes)
		{
			if (!plain)
				break;
			open->indexes[open->nindexes] = index_open(lfirst_oid(cell), RowExclusiveLock);
			plain = index_is_plain(open->indexes[open->nindexes++]);
		}
		list_free(indexes);
	}
	if (!plain)
		close_log(open);
	return plain;
}


/* ---------- the two paths ---------- */

/* Insert the row in the slot into one index */
static void
insert_into_index(Relation index, Relation table, TupleTableSlot *slot)
{
	IndexInfo  *info;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	if (!index->rd_index->indisready)
		return;
	info = BuildIndexInfo(index);
	FormIndexDatum(info, slot, NULL, values, nulls);
	(void) idem_index_insert(index, values, nulls, &slot->tts_tid, table,
							 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
							 info);
	pfree(info);
}

/* Insert straight into the heap and the indexes */
static void
append_directly(OpenLog *open, const NullableDatum *row)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(open->table),
													&TTSOpsVirtual);

	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = row[i].value;
		slot->tts_isnull[i] = row[i].isnull;
	}
	ExecStoreVirtualTuple(slot);

	table_tuple_insert(open->table, slot, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < open->nindexes; i++)
		insert_into_index(open->indexes[i], open->table, slot);
	ExecDropSingleTupleTableSlot(slot);
}

/* Insert by the statement, with all that the table asks for */
static void
append_by_statement(FunctionCallInfo fcinfo, IdemLog *log, const NullableDatum *row)
{
	IdemCall   *call = idem_enter_trigger(fcinfo);

	(void) idem_run(call, &log->insert, row);
	idem_leave_trigger(call);
}

void
idem_append(FunctionCallInfo fcinfo, IdemLog *log, const NullableDatum *row)
{
	idem_append_to(fcinfo, log, log->table, row);
}

void
idem_append_to(FunctionCallInfo fcinfo, IdemLog *log, const char *table, const NullableDatum *row)
{
	IdemHouse  *house = idem_house(fcinfo->flinfo->fn_oid);
	Oid			table_oid = get_relname_relid(table, house->nspoid);
	OpenLog		open;

	if (!OidIsValid(table_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" does not exist in schema %s", table, house->schema),
				 errdetail("It belongs to the extension idem.")));

	if (!open_log(&open, table_oid, log, house))
	{
		append_by_statement(fcinfo, log, row);
		return;
	}
	append_directly(&open, row);
	close_log(&open);
}
