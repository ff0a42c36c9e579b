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
#include "look.h"
#include "machine_tables.h"
#include "move.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

/* Arguments */
enum
{
	TARGET, KEY
};

/* Column numbers of idem_history */
enum
{
	TENANT_ID = 1, ENTITY, ROW_KEY, VERSION, FROM_STATE, TO_STATE, EVENT, ACTOR, SESSION_ROLE,
	REASON, EVENT_ID, AT, NATTS = AT
};

static const IdemIndex history_by_key = {"idem_history", "idem_history_key", NATTS};

/* What is shown of a move, in this order */
static const int shown_columns[] = {
	AT, VERSION, FROM_STATE, TO_STATE, EVENT, ACTOR, SESSION_ROLE, REASON
};

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

pg_noreturn static void
raise_not_attached(Datum target)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("\"%s\" is attached to no state machine", TextDatumGetCString(target)),
			 errdetail("It is neither an attached table nor what history calls one."),
			 errhint("Attach the table with idem_attach_machine().")));
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
		raise_not_attached(target);
	return relation_open(relid, AccessShareLock);
}

/* What is known of it; ID006 if it has triggers of ours, but no machine */
static MoveTable *
demand_table(IdemCall *call, Relation relation)
{
	MoveTable  *table = move_table(call, relation);

	if (table == NULL || table->attachment->machine_name == NULL)
		raise_not_attached(idem_arg_key(call, TARGET));
	return table;
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
	return pg_attribute_aclcheck(relid, state->attnum, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
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


/* ---------- moves ---------- */

/* The version after a move, 0 where there is none */
static int32
version_of(const IdemRow *move)
{
	return move->isnull[VERSION - 1] ? 0 : DatumGetInt32(IDEM_COLUMN(move, VERSION));
}

/* By the clock; moves of one moment by version */
static int
compare_moves(const ListCell *a, const ListCell *b)
{
	const IdemRow *x = lfirst(a);
	const IdemRow *y = lfirst(b);
	TimestampTz x_at = DatumGetTimestampTz(IDEM_COLUMN(x, AT));
	TimestampTz y_at = DatumGetTimestampTz(IDEM_COLUMN(y, AT));

	if (x_at != y_at)
		return x_at < y_at ? -1 : 1;
	return version_of(x) - version_of(y);
}

/*
 * The moves of a row, oldest first, as idem_history has them.  No statement:
 * nobody's rights matter here.
 */
static List *
look_moves(IdemCall *call, const Attachment *attachment, NullableDatum tenant_id, Datum key,
		   IdemSight sight)
{
	Datum		keys[] = {
		tenant_id.isnull ? CStringGetTextDatum("") : tenant_id.value,
		CStringGetTextDatum(attachment->entity),
		key
	};
	List	   *moves = idem_look_all(call, &history_by_key, keys, lengthof(keys), sight);

	list_sort(moves, compare_moves);
	return moves;
}

static List *
moves_of(IdemCall *call, const MoveTable *table, const MoveKey *key, IdemSight sight)
{
	bool		has_tenant = table->attachment->tenant.attnum != 0;

	return look_moves(call, table->attachment, has_tenant ? key->texts[0] : IDEM_NULL,
					  attached_key_of(table->attachment, key->texts + (has_tenant ? 1 : 0)).value,
					  sight);
}

/*
 * Has an event led a row to a state after a version of it?  false, if its
 * history is not kept.
 */
bool
move_was_made(IdemCall *call, const MoveTable *table, const MoveKey *key,
			  const char *event, NullableDatum to_state, int32 since)
{
	ListCell   *cell;

	foreach(cell, moves_of(call, table, key, IDEM_SIGHT_LATEST))
	{
		const IdemRow *move = lfirst(cell);

		if (version_of(move) > since &&
			idem_text_is(IDEM_COLUMN(move, EVENT), event) &&
			idem_same_nullable(IDEM_NULLABLE(move, TO_STATE), to_state))
			return true;
	}
	return false;
}

/* When the table was attached; what its rows did before is another story */
static TimestampTz
attached_since(const Attachment *attachment)
{
	if (attachment->since == NULL)
		return DT_NOBEGIN;
	return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in,
												   CStringGetDatum(attachment->since),
												   ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
}

/*
 * The moves since the table was attached, and since the row's last birth: it
 * may have been deleted, and come again.
 */
static List *
last_life(List *moves, TimestampTz since)
{
	List	   *life = NIL;
	ListCell   *cell;

	foreach(cell, moves)
	{
		IdemRow    *move = lfirst(cell);

		if (DatumGetTimestampTz(IDEM_COLUMN(move, AT)) < since)
			continue;
		life = move->isnull[FROM_STATE - 1] ? list_make1(move) : lappend(life, move);
	}
	return life;
}

/*
 * Does the history of a row since it is attached, if there is one, end in the state that the row is
 * in?  By its newest version; without versions moves of one moment have no
 * order, and it will do that some move has led there.  *last is where it ends.
 */
bool
move_history_agrees(IdemCall *call, Attachment *attachment, TupleTableSlot *row,
					NullableDatum state, NullableDatum *last)
{
	List	   *moves = look_moves(call, attachment, attached_text(&attachment->tenant, row),
								   attached_key(attachment, row).value, IDEM_SIGHT_FIRST);
	bool		has_version = attachment->version.attnum != 0;
	int32		newest = -1;
	bool		led_here = false;
	ListCell   *cell;

	moves = last_life(moves, attached_since(attachment));
	foreach(cell, moves)
	{
		const IdemRow *move = lfirst(cell);

		if (has_version && version_of(move) < newest)
			continue;
		newest = version_of(move);
		*last = IDEM_NULLABLE(move, TO_STATE);
		if (has_version)
			led_here = false;
		led_here |= idem_same_nullable(*last, state);
	}
	return moves == NIL || led_here;
}

static void
emit_moves(IdemCall *call, const List *moves)
{
	ListCell   *cell;

	foreach(cell, moves)
	{
		const IdemRow *move = lfirst(cell);

		for (int i = 0; i < (int) lengthof(shown_columns); i++)
			idem_put_nullable(call, i, IDEM_NULLABLE(move, shown_columns[i]));
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
	table = demand_table(call, relation);
	read_key(call, relation, table, &key);
	if (is_shown(call, relation, table, &key))
		emit_moves(call, moves_of(call, table, &key, IDEM_SIGHT_FIRST));
	relation_close(relation, NoLock);
	return idem_leave_rows(call);
}
