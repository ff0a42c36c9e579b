/*-------------------------------------------------------------------------
 * attach_table.c
 *	  Whether a table can be attached, and by which key its rows are known.
 *
 * All of this is asked of the catalogs, as whoever wants to attach the table,
 * who must own it and whatever inherits from it.
 *-------------------------------------------------------------------------
 */
#include "attach.h"
#include "table_lock.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"


/* ---------- owner, kind, members ---------- */

/*
 * Raise 42501 unless the current user owns a table, 42P01 if there is none.
 */
void
attach_demand_owner(Oid target)
{
	HeapTuple	row = SearchSysCache1(RELOID, ObjectIdGetDatum(target));
	char		kind;

	if (!HeapTupleIsValid(row))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table with OID %u does not exist", target),
				 errdetail("It may have been dropped meanwhile.")));
	kind = ((Form_pg_class) GETSTRUCT(row))->relkind;
	ReleaseSysCache(row);
	if (!idem_owns_table(target, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(kind), get_rel_name(target));
}

pg_noreturn static void
raise_unfit(Relation table, int sqlstate, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("\"%s\" cannot be attached to a state machine", RelationGetRelationName(table)),
			 errdetail("%s", detail),
			 hint == NULL ? 0 : errhint("%s", hint)));
}

/* Can triggers of ours guard every row of this table? */
static void
check_kind(const Attach *attach, Relation table)
{
	Oid			relid = RelationGetRelid(table);

	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		raise_unfit(table, ERRCODE_WRONG_OBJECT_TYPE, "It is no ordinary or partitioned table.", NULL);
	if (IsSystemRelation(table))
		raise_unfit(table, ERRCODE_INSUFFICIENT_PRIVILEGE, "It is a system catalog.", NULL);
	if (getExtensionOfObject(RelationRelationId, relid) ==
		getExtensionOfObject(ProcedureRelationId, attach->guard) &&
		OidIsValid(getExtensionOfObject(RelationRelationId, relid)))
		raise_unfit(table, ERRCODE_IDEM_PROTECTED, "It is one of the extension's own tables.", NULL);
	if (table->rd_rel->relispartition && relid == attach->target)
		raise_unfit(table, ERRCODE_WRONG_OBJECT_TYPE, "It is a partition.",
					"Attach the partitioned table itself.");
	if (RELATION_IS_OTHER_TEMP(table))
		raise_unfit(table, ERRCODE_FEATURE_NOT_SUPPORTED,
					"It is a temporary table of another session.", NULL);
}

/*
 * Lock the target and what inherits from it.  false: the wait is over.
 */
bool
attach_lock_members(Attach *attach, LOCKMODE mode)
{
	List	   *locked = NIL;

	for (;;)
	{
		List	   *members = find_all_inheritors(attach->target, NoLock, NULL);
		List	   *missing = list_difference_oid(members, locked);

		attach->members = members;
		if (missing == NIL)
			return true;
		if (!table_lock_all(attach->call, missing, mode))
			return false;
		locked = list_concat_unique_oid(locked, missing);
	}
}

/*
 * Raise unless each member is the caller's and of a kind that can be guarded.
 */
void
attach_check_members(Attach *attach)
{
	ListCell   *cell;

	foreach(cell, attach->members)
	{
		Relation	table;

		attach_demand_owner(lfirst_oid(cell));
		table = relation_open(lfirst_oid(cell), NoLock);
		check_kind(attach, table);
		if (attach->active_key != NIL && lfirst_oid(cell) != attach->target &&
			!table->rd_rel->relispartition)
			raise_unfit(table, ERRCODE_FEATURE_NOT_SUPPORTED,
						"It inherits from the target, and no index can keep keys unique over both.",
						"Attach without active_key, or use a partitioned table.");
		relation_close(table, NoLock);
	}
}


/* ---------- the key ---------- */

/* Does an index name each row, by columns that are never NULL? */
static bool
names_rows(Relation table, Relation index)
{
	if (!index->rd_index->indisunique || !index->rd_index->indimmediate ||
		!index->rd_index->indisvalid ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];
		Form_pg_attribute column;

		if (attnum <= 0)
			return false;
		column = TupleDescAttr(RelationGetDescr(table), attnum - 1);
		if (!column->attnotnull || column->attgenerated != '\0')
			return false;
	}
	return true;
}

/* The columns of an index, by name */
static List *
columns_of(Relation table, Relation index)
{
	List	   *columns = NIL;

	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];

		columns = lappend(columns, pstrdup(NameStr(TupleDescAttr(RelationGetDescr(table),
																 attnum - 1)->attname)));
	}
	return columns;
}

/* A column by name, NULL if the table has none such */
static Form_pg_attribute
find_column(Relation table, const char *name)
{
	for (int i = 0; i < RelationGetNumberOfAttributes(table); i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), i);

		if (!column->attisdropped && strcmp(NameStr(column->attname), name) == 0)
			return column;
	}
	return NULL;
}

static bool
is_in(const List *names, const char *name)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	}
	return false;
}

/* Freeze a column once */
static void
freeze(Attach *attach, const char *name)
{
	if (name != NULL && !is_in(attach->frozen, name))
		attach->frozen = lappend(attach->frozen, pstrdup(name));
}

/*
 * Choose the columns by which rows are known: the primary key, else the replica
 * identity, else the first unique index over columns that are never NULL.  They
 * are frozen, with the tenant: what is recorded of a row stays the row's.
 */
void
attach_choose_key(Attach *attach, Relation table)
{
	List	   *indexes = RelationGetIndexList(table);
	int			best_rank = 0;
	List	   *best = NIL;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		int			rank = index->rd_index->indisprimary ? 3 :
			index->rd_index->indisreplident ? 2 : 1;

		if (rank > best_rank && names_rows(table, index))
		{
			best_rank = rank;
			best = columns_of(table, index);
		}
		index_close(index, AccessShareLock);
	}
	if (best == NIL)
		raise_unfit(table, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
					"It has no key: neither a primary key nor a unique index over columns that are NOT NULL.",
					"Add a primary key.");

	foreach(cell, best)
	{
		freeze(attach, lfirst(cell));
		if (list_length(best) == 1 || attach->tenant_column == NULL ||
			strcmp(attach->tenant_column, lfirst(cell)) != 0)
			attach->key = lappend(attach->key, lfirst(cell));
	}
	freeze(attach, attach->tenant_column);
}


/* ---------- columns ---------- */

/* A column that an argument names; 42703 if the table has none such */
static Form_pg_attribute
demand_column(Relation table, const char *argument, const char *name)
{
	Form_pg_attribute column = find_column(table, name);

	if (column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table \"%s\" does not exist",
						name, RelationGetRelationName(table)),
				 errdetail("Argument \"%s\" names it.", argument),
				 errtable(table)));
	return column;
}

pg_noreturn static void
raise_wrong_column(Relation table, Form_pg_attribute column, const char *role, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of table \"%s\" cannot be %s",
					NameStr(column->attname), RelationGetRelationName(table), role),
			 errdetail("%s", detail),
			 errtablecol(table, column->attnum)));
}

/* A trigger sees no generated column before it is computed, a virtual one never */
static void
demand_stored(Relation table, Form_pg_attribute column, const char *role)
{
	if (column->attgenerated != '\0')
		raise_wrong_column(table, column, role, "It is a generated column.");
}

static void
check_state_column(const Attach *attach, Relation table)
{
	Form_pg_attribute column = demand_column(table, "state_column", attach->state_column);
	Oid			type = getBaseType(column->atttypid);

	demand_stored(table, column, "the state column");
	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
			break;
		default:
			if (get_typtype(type) != TYPTYPE_ENUM)
				raise_wrong_column(table, column, "the state column",
								   "A state is a text, an enum, an integer, or a domain over one of these.");
	}
	if (is_in(attach->frozen, attach->state_column))
		raise_wrong_column(table, column, "the state column", "It is frozen, or part of the key.");
}

static void
check_version_column(const Attach *attach, Relation table)
{
	Form_pg_attribute column;

	if (attach->version_column == NULL)
		return;
	column = demand_column(table, "version_column", attach->version_column);
	demand_stored(table, column, "the version column");
	if (getBaseType(column->atttypid) != INT4OID)
		raise_wrong_column(table, column, "the version column", "A version is an integer.");
	if (column->attidentity != '\0')
		raise_wrong_column(table, column, "the version column", "It is an identity column.");
	if (is_in(attach->frozen, attach->version_column) ||
		strcmp(attach->version_column, attach->state_column) == 0)
		raise_wrong_column(table, column, "the version column",
						   "It is frozen, part of the key, or the state.");
}

static void
check_column_list(Relation table, const char *argument, const List *names, bool stored)
{
	ListCell   *cell;

	foreach(cell, names)
	{
		Form_pg_attribute column = demand_column(table, argument, lfirst(cell));

		if (stored ? column->attgenerated != '\0' :
			column->attgenerated != '\0' && column->attgenerated != ATTRIBUTE_GENERATED_STORED)
			raise_wrong_column(table, column, stored ? argument : psprintf("in %s", argument),
							   "It is a generated column.");
	}
}

/* Raise whatever a state of the machine raises that the column cannot hold */
static void
check_states(const Attach *attach, Relation table)
{
	Form_pg_attribute column = find_column(table, attach->state_column);
	Oid			input;
	Oid			ioparam;
	ListCell   *cell;

	getTypeInputInfo(column->atttypid, &input, &ioparam);
	foreach(cell, attach->machine->states)
	{
		const MachineState *state = lfirst(cell);

		(void) OidInputFunctionCall(input, pstrdup(state->name), ioparam, column->atttypmod);
	}
}

static void
say_what_is_checked(void *arg)
{
	const Attach *attach = arg;

	errcontext("the states of machine \"%s\" as values of column \"%s\"",
			   attach->machine_name, attach->state_column);
}

/*
 * Raise unless every column that was named exists and is of use for what it
 * was named for.
 */
void
attach_check_columns(Attach *attach, Relation table)
{
	ErrorContextCallback context = {error_context_stack, say_what_is_checked, attach};

	check_state_column(attach, table);
	check_version_column(attach, table);
	if (attach->tenant_column != NULL)
		demand_stored(table, demand_column(table, "tenant_column", attach->tenant_column),
					  "the tenant column");
	check_column_list(table, "active_key", attach->active_key, false);
	check_column_list(table, "frozen", attach->frozen, true);
	check_column_list(table, "payload", attach->asked_payload, false);

	error_context_stack = &context;
	check_states(attach, table);
	error_context_stack = context.previous;
}
