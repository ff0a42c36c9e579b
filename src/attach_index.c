/*-------------------------------------------------------------------------
 * attach_index.c
 *	  The index that lets one row of a key be active.
 *
 * A partial unique index over the rows in the machine's active states.  Who
 * has a big table builds it beforehand, CONCURRENTLY, and in his own words: so
 * an index is known by what it does.  Its columns are the key's, and of the
 * machine's states its predicate is true of the active ones.
 *
 * A predicate may call functions of the table's owner.  It is evaluated as he,
 * in a security-restricted operation, as when the index is built.
 *-------------------------------------------------------------------------
 */
#include "attach.h"
#include "try.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Keys that a message names */
#define KEYS_NAMED 5


/* ---------- is this the index? ---------- */

/* Are the index's columns those of the key, in whatever order? */
static bool
has_columns(Relation index, const Attachment *attachment)
{
	Bitmapset  *has = NULL;
	Bitmapset  *needs = NULL;
	ListCell   *cell;

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		if (index->rd_index->indkey.values[i] <= 0)
			return false;
		has = bms_add_member(has, index->rd_index->indkey.values[i]);
	}
	foreach(cell, attachment->active_key)
		needs = bms_add_member(needs, ((AttachedColumn *) lfirst(cell))->attnum);
	return bms_equal(has, needs);
}

/* Does the predicate depend on the state and on nothing else? */
static bool
is_of_state(List *predicate, AttrNumber state)
{
	Bitmapset  *columns = NULL;
	int			column;

	pull_varattnos((Node *) predicate, 1, &columns);
	return bms_get_singleton_member(columns, &column) &&
		column + FirstLowInvalidHeapAttributeNumber == state &&
		!contain_mutable_functions((Node *) predicate);
}

/* A state as a value of its column */
static Datum
state_value(Relation table, const Attachment *attachment, const MachineState *state)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), attachment->state.attnum - 1);
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(column->atttypid, &input, &ioparam);
	return OidInputFunctionCall(input, pstrdup(state->name), ioparam, column->atttypmod);
}

/* Is the predicate true of the active states, and of no others? */
static bool
is_of_active(Relation table, const Attachment *attachment, const Machine *machine, List *predicate)
{
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = GetPerTupleExprContext(estate);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table), &TTSOpsVirtual);
	ExprState  *qual = ExecPrepareQual(predicate, estate);
	bool		agrees = true;
	ListCell   *cell;

	foreach(cell, machine->states)
	{
		const MachineState *state = lfirst(cell);

		ExecStoreAllNullTuple(slot);
		slot->tts_values[attachment->state.attnum - 1] = state_value(table, attachment, state);
		slot->tts_isnull[attachment->state.attnum - 1] = false;
		econtext->ecxt_scantuple = slot;
		if (ExecQual(qual, econtext) != state->active)
			agrees = false;
	}
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
	return agrees;
}

static bool
is_active_index(Relation table, const Attachment *attachment, const Machine *machine, Relation index)
{
	List	   *predicate;

	if (!index->rd_index->indisunique || !index->rd_index->indisvalid ||
		!index->rd_index->indisready || !index->rd_index->indimmediate ||
		!has_columns(index, attachment))
		return false;
	predicate = RelationGetIndexPredicate(index);
	return predicate != NIL &&
		is_of_state(predicate, attachment->state.attnum) &&
		is_of_active(table, attachment, machine, predicate);
}

/*
 * The index that keeps the active key unique; InvalidOid if there is none.
 */
Oid
attach_find_index(Relation table, const Attachment *attachment, const Machine *machine)
{
	Oid			found = InvalidOid;
	Oid			user;
	int			user_context;
	ListCell   *cell;

	GetUserIdAndSecContext(&user, &user_context);
	SetUserIdAndSecContext(table->rd_rel->relowner,
						   user_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	foreach(cell, RelationGetIndexList(table))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (!OidIsValid(found) && is_active_index(table, attachment, machine, index))
			found = lfirst_oid(cell);
		index_close(index, AccessShareLock);
	}
	SetUserIdAndSecContext(user, user_context);
	return found;
}


/* ---------- make it ---------- */

/* The name of the target, and its columns, as SQL */
static char *
quoted_table(Oid target)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(target)),
									  get_rel_name(target));
}

static char *
quoted_list(const List *names, const char *between)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, names)
		appendStringInfo(&list, "%s%s", list.len > 0 ? between : "",
						 quote_identifier(lfirst(cell)));
	return list.data;
}

/* "status" IN ('pending', 'paid') */
static char *
active_condition(const Attach *attach)
{
	StringInfoData states;
	ListCell   *cell;

	initStringInfo(&states);
	foreach(cell, attach->machine->states)
	{
		const MachineState *state = lfirst(cell);

		if (state->active)
			appendStringInfo(&states, "%s%s", states.len > 0 ? ", " : "",
							 quote_literal_cstr(state->name));
	}
	if (states.len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("machine \"%s\" has no active state", attach->machine_name),
				 errdetail("An active key is one of which a single row is in an active state."),
				 errhint("Name the active states in the machine's definition.")));
	return psprintf("%s IN (%s)", quote_identifier(attach->state_column), states.data);
}

static void
run_statement(const char *sql, int expected)
{
	int			rc = SPI_execute(sql, false, 0);

	if (rc != expected)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
}

static void
create_index(void *arg)
{
	run_statement(arg, SPI_OK_UTILITY);
}

/* Name the first keys that have several active rows */
static char *
name_duplicates(const Attach *attach)
{
	char	   *keys = quoted_list(attach->active_key, ", ");
	StringInfoData words;

	run_statement(psprintf("SELECT pg_catalog.concat_ws(', ', %s), pg_catalog.count(*) FROM %s"
						   " WHERE %s AND %s IS NOT NULL GROUP BY %s"
						   " HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1 ORDER BY %s LIMIT %d",
						   keys, quoted_table(attach->target), active_condition(attach),
						   quoted_list(attach->active_key, " IS NOT NULL AND "),
						   keys, keys, KEYS_NAMED), SPI_OK_SELECT);
	initStringInfo(&words);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		NullableDatum key = idem_result(attach->call, row, 1);
		NullableDatum count = idem_result(attach->call, row, 2);

		appendStringInfo(&words, "%s(%s) = (%s) has " INT64_FORMAT, row > 0 ? ", " : "", keys,
						 TextDatumGetCString(key.value), DatumGetInt64(count.value));
	}
	MemoryContextSwitchTo(attach->call->context);
	return words.data;
}

static void
make_index(Attach *attach)
{
	Oid			nspoid = get_rel_namespace(attach->target);
	char	   *sql;

	attach->active_index = ChooseRelationName(get_rel_name(attach->target), NULL, "idem_active",
											  nspoid, false);
	sql = psprintf("CREATE UNIQUE INDEX %s ON %s (%s) WHERE %s",
				   quote_identifier(attach->active_index), quoted_table(attach->target),
				   quoted_list(attach->active_key, ", "), active_condition(attach));
	idem_connect(attach->call);
	if (idem_try(create_index, sql, ERRCODE_UNIQUE_VIOLATION, 0) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("table \"%s\" has keys with more than one active row",
						get_rel_name(attach->target)),
				 errdetail("Active rows: %s.", name_duplicates(attach)),
				 errhint("Leave one active row of each key, and attach again.")));
	MemoryContextSwitchTo(attach->call->context);
}

/*
 * Make the index, unless there is one that does the same.
 */
void
attach_ensure_index(Attach *attach)
{
	TriggerData data = {0};
	Trigger		trigger = {0};
	Relation	table;
	Oid			found;

	if (attach->active_key == NIL)
		return;
	(void) active_condition(attach);
	table = table_open(attach->target, NoLock);
	data.tg_relation = table;
	data.tg_trigger = &trigger;
	attach_fill_trigger(attach, &trigger);
	found = attach_find_index(table, attachment_read(&data, attach->call->house), attach->machine);
	table_close(table, NoLock);
	if (!OidIsValid(found))
		make_index(attach);
}

/*
 * Drop the index that was made for a table, if it still is the table's.
 */
void
attach_drop_index(Oid target, const char *name)
{
	Oid			index = name == NULL ? InvalidOid :
		get_relname_relid(name, get_rel_namespace(target));
	ObjectAddress address;

	if (!OidIsValid(index) ||
		(get_rel_relkind(index) != RELKIND_INDEX && get_rel_relkind(index) != RELKIND_PARTITIONED_INDEX) ||
		IndexGetRelation(index, true) != target)
		return;
	ObjectAddressSet(address, RelationRelationId, index);
	performDeletion(&address, DROP_RESTRICT, 0);
}
