/*-------------------------------------------------------------------------
 * move_history.c
 *	  idem_history_of: what has become of a row, move by move.
 *
 * History is the extension's own table, and holds the rows of everybody's
 * tables.  So a row's moves are shown to who may see the row: he needs SELECT
 * on its table, and where row security applies to him it must show him the
 * row.  Rows of the extension's own tables are shown to auditors of their
 * tenant, too.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "attach.h"
#include "machine_tables.h"
#include "move.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

/* Arguments */
enum
{
	TARGET, KEY
};

/* Columns of the result, as the statement returns them */
enum
{
	HISTORY_NATTS = 8
};

static IdemQuery moves_of_row = IDEM_QUERY(
	"SELECT at, version, from_state, to_state, event, actor, session_role, reason"
	" FROM @schema@.idem_history WHERE tenant_id = $1 AND entity = $2 AND key = $3"
	" ORDER BY version, at",
	TEXTOID, TEXTOID, TEXTOID);

/* The table that a name means on the caller's search_path; InvalidOid: none */
static Oid
table_by_name(text *name)
{
	return RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(name)),
							NoLock, true);
}

static bool
is_attached(IdemCall *call, Oid relid)
{
	Relation	relation;
	bool		attached;

	if (!OidIsValid(relid))
		return false;
	relation = relation_open(relid, AccessShareLock);
	attached = attachment_trigger(call->house, relation) != NULL;
	relation_close(relation, NoLock);
	return attached;
}

/* The attached table that is meant: by its name, else by its entity */
static Relation
open_target(IdemCall *call)
{
	Datum		target = idem_arg_key(call, TARGET);
	Oid			relid = table_by_name(DatumGetTextPP(target));
	bool		own;

	if (!is_attached(call, relid))
		relid = attach_entity_table(machine_guard_function(call->house),
									TextDatumGetCString(target), NIL, &own);
	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("\"%s\" is attached to no state machine", TextDatumGetCString(target)),
				 errdetail("It is neither an attached table nor what history calls one."),
				 errhint("Attach the table with idem_attach_machine().")));
	return relation_open(relid, AccessShareLock);
}

/* May the caller read the columns that name a row and its state? */
static bool
may_read(Relation relation, const MoveTable *table)
{
	Oid			relid = RelationGetRelid(relation);
	const AttachedColumn *state = &table->attachment->state;
	ListCell   *cell;

	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	foreach(cell, table->columns)
	{
		if (pg_attribute_aclcheck(relid, ((AttachedColumn *) lfirst(cell))->attnum,
								  GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return state->attnum == 0 ||
		pg_attribute_aclcheck(relid, state->attnum, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

/*
 * Read the key of a row that the caller may see.  He who has no business with
 * the table is told nothing of its key either.
 */
static void
read_key(IdemCall *call, Relation relation, const MoveTable *table, MoveKey *key)
{
	bool		may = may_read(relation, table);

	if (!may && (!table->attachment->own || table->attachment->tenant.attnum == 0))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(relation->rd_rel->relkind),
					   RelationGetRelationName(relation));
	move_read_key(call, KEY, relation, table, key);
	if (may)
		return;
	call->tenant_id = key->texts[0].value;
	access_require(call, "auditor");
}

/* Does row security, where it applies, show the caller the row? */
static bool
is_shown(IdemCall *call, Relation relation, MoveTable *table, const MoveKey *key)
{
	Snapshot	snapshot;
	MoveRow		row;
	bool		found;

	if (check_enable_rls(RelationGetRelid(relation), InvalidOid, true) != RLS_ENABLED)
		return true;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	found = move_find(call, relation, table, MOVE_LOOK, key, snapshot, &row);
	UnregisterSnapshot(snapshot);
	return found;
}

/* What history calls the row */
static NullableDatum
history_key(MoveTable *table, const MoveKey *key)
{
	int			ntenant = table->attachment->tenant.attnum != 0 ? 1 : 0;

	return attached_key_of(table->attachment, key->texts + ntenant);
}

static void
emit_moves(IdemCall *call, MoveTable *table, const MoveKey *key)
{
	NullableDatum args[] = {
		table->attachment->tenant.attnum != 0 ? key->texts[0] : IDEM_TEXT(""),
		IDEM_TEXT(table->attachment->entity),
		history_key(table, key)
	};
	uint64		nrows;

	idem_become_owner(call);
	nrows = idem_run(call, &moves_of_row, args);
	for (uint64 row = 0; row < nrows; row++)
	{
		for (int column = 0; column < HISTORY_NATTS; column++)
			idem_put_nullable(call, column, idem_result(call, row, column + 1));
		idem_emit(call);
	}
}

/*
 * idem_history_of(target, key)
 *	 -> rows (at, version, from_state, to_state, event, actor, session_role, reason)
 *
 * Errors: ID006 not attached, 42501 and ID008 for who may not see the row,
 * 22004 and 22023 nonsense arguments.
 */
PG_FUNCTION_INFO_V1(idem_history_of);
Datum
idem_history_of(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_as_caller(fcinfo);
	Relation	relation;
	MoveTable  *table;
	MoveKey		key;

	idem_begin_rows(call);
	relation = open_target(call);
	table = move_table(call, relation);
	read_key(call, relation, table, &key);
	if (is_shown(call, relation, table, &key))
		emit_moves(call, table, &key);
	relation_close(relation, NoLock);
	return idem_leave_rows(call);
}
