/*-------------------------------------------------------------------------
 * guard.c
 *	  The trigger that guards a row's moves and records them.
 *
 * Whatever writes to a guarded table (our functions, raw SQL, ON CONFLICT DO
 * UPDATE, MERGE, COPY) passes here twice:
 *
 * BEFORE UPDATE, as the last of the table's triggers: an UPDATE that changes
 * nothing is stored as it is; any other must leave frozen columns alone, make
 * a legal move, and gets the next version.  It is not an UPDATE OF trigger,
 * since a later BEFORE trigger could then assign the state column unseen.
 *
 * AFTER INSERT OR UPDATE: a trigger that sorts still later may have changed
 * the row again, so what was really stored is checked once more; then the move
 * is written to history and to the outbox, in the same transaction.  A birth
 * is checked here only: BEFORE INSERT also fires for a row that ON CONFLICT
 * will turn into an UPDATE.
 *
 * A restore loads rows of the extension's own tables in whatever state they
 * were, while the triggers stand.  So a row that a member of the owner role
 * inserts outside a call of the API may be in any declared state, and is not
 * recorded: its history is in the dump, and the world has heard of it.
 *-------------------------------------------------------------------------
 */
#include "hook.h"
#include "outbox.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/datum.h"

/* One row's change under check */
typedef struct Check
{
	FunctionCallInfo fcinfo;
	TriggerData *data;
	Relation	table;
	Attachment *attachment;
	TupleTableSlot *before;		/* NULL: a birth */
	TupleTableSlot *after;
	const MachineState *from;	/* NULL: a birth, or no move */
	const MachineState *to;		/* NULL: no move */
	const char *event;
} Check;

static IdemLog history = {
	"idem_history", 12,
	IDEM_QUERY("INSERT INTO @schema@.idem_history (tenant_id, entity, key, version, from_state,"
			   " to_state, event, actor, session_role, reason, event_id, at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
			   TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID,
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, UUIDOID, TIMESTAMPTZOID)
};


/* ---------- messages ---------- */

/* The row in words: (tenant_id, payment_no) = (t, p) */
static char *
describe_row(Check *check, TupleTableSlot *row)
{
	Attachment *attachment = check->attachment;
	StringInfoData names;
	StringInfoData values;
	List	   *columns = list_copy(attachment->key);
	ListCell   *cell;

	initStringInfo(&names);
	initStringInfo(&values);
	if (attachment->tenant.attnum != 0)
		columns = lcons(&attachment->tenant, columns);
	foreach(cell, columns)
	{
		AttachedColumn *column = lfirst(cell);
		NullableDatum value = attached_text(column, row);
		const char *comma = names.len > 0 ? ", " : "";

		appendStringInfo(&names, "%s%s", comma, column->name);
		appendStringInfo(&values, "%s%s", comma,
						 value.isnull ? "null" : TextDatumGetCString(value.value));
	}
	return psprintf("(%s) = (%s)", names.data, values.data);
}

/* What an UPDATE did to a column against its rule */
static const char *const broken_rules[] = {
	[COLUMN_FROZEN] = "cannot be changed",
	[COLUMN_ONCE] = "is already set",
	[COLUMN_GROWS] = "cannot decrease"
};

pg_noreturn static void
raise_frozen(Check *check, Form_pg_attribute column, ColumnRule rule)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_PROTECTED),
			 errmsg("column \"%s\" of table \"%s\" %s", NameStr(column->attname),
					RelationGetRelationName(check->table), broken_rules[rule]),
			 errdetail("The UPDATE concerns the row with %s.", describe_row(check, check->before)),
			 errtablecol(check->table, column->attnum)));
}

pg_noreturn static void
raise_protected(Check *check, TupleTableSlot *row, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_PROTECTED),
			 errmsg(row == NULL ? "table \"%s\" cannot be %s" : "rows of table \"%s\" cannot be %s",
					RelationGetRelationName(check->table), what),
			 row == NULL || check->attachment->key == NIL ?
			 errdetail("The table is append-only or holds what must never be lost.") :
			 errdetail("The statement concerns the row with %s.", describe_row(check, row)),
			 errtable(check->table)));
}

pg_noreturn static void
raise_undeclared(Check *check, TupleTableSlot *row, const char *state)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("machine \"%s\" has no state \"%s\"", check->attachment->machine_name, state),
			 errdetail("Table \"%s\", row with %s.",
					   RelationGetRelationName(check->table), describe_row(check, row)),
			 errtable(check->table)));
}

pg_noreturn static void
raise_illegal_move(Check *check)
{
	char	   *targets = machine_targets(check->from);

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("illegal move of table \"%s\" from \"%s\" to \"%s\"",
					RelationGetRelationName(check->table), check->from->name, check->to->name),
			 targets[0] == '\0' ?
			 errdetail("The row with %s can go nowhere from \"%s\".",
					   describe_row(check, check->before), check->from->name) :
			 errdetail("The row with %s can go from \"%s\" to %s.",
					   describe_row(check, check->before), check->from->name, targets),
			 errtable(check->table)));
}

pg_noreturn static void
raise_illegal_birth(Check *check, const Machine *machine)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 errmsg("a row of table \"%s\" cannot be born in state \"%s\"",
					RelationGetRelationName(check->table), check->to->name),
			 errdetail("The row with %s must begin in %s.",
					   describe_row(check, check->after), machine_births(machine)),
			 errtable(check->table)));
}

pg_noreturn static void
raise_stale(Check *check, int64 before, int64 after)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_VERSION),
			 errmsg("version of a row of table \"%s\" cannot go from " INT64_FORMAT " to " INT64_FORMAT,
					RelationGetRelationName(check->table), before, after),
			 errdetail("The row with %s is at version " INT64_FORMAT ".",
					   describe_row(check, check->before), before),
			 errhint("Leave the version alone, or set it to one more than you have read and compare it in WHERE."),
			 errtable(check->table)));
}

pg_noreturn static void
raise_overruled(Check *check, int64 before, int64 after)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_VERSION),
			 errmsg("version of a row of table \"%s\" cannot go from " INT64_FORMAT " to " INT64_FORMAT,
					RelationGetRelationName(check->table), before, after),
			 errdetail("A BEFORE trigger that sorts after the guard has changed the row with %s.",
					   describe_row(check, check->before)),
			 errhint("Give that trigger a name that sorts before \"zz_idem_guard\"."),
			 errtable(check->table)));
}


/* ---------- what changed ---------- */

/* Are two tuples the same byte by byte?  Then nothing changed. */
static bool
same_image(HeapTuple a, HeapTuple b)
{
	return a->t_len == b->t_len &&
		a->t_data->t_hoff == b->t_data->t_hoff &&
		HeapTupleHeaderGetNatts(a->t_data) == HeapTupleHeaderGetNatts(b->t_data) &&
		(a->t_data->t_infomask & ~HEAP_XACT_MASK) == (b->t_data->t_infomask & ~HEAP_XACT_MASK) &&
		memcmp((char *) a->t_data + SizeofHeapTupleHeader,
			   (char *) b->t_data + SizeofHeapTupleHeader,
			   a->t_len - SizeofHeapTupleHeader) == 0;
}

/* Is a column the same in both? */
static inline bool
same_value(Form_pg_attribute column, Datum a, bool a_null, Datum b, bool b_null)
{
	const char *x = DatumGetPointer(a);
	const char *y = DatumGetPointer(b);

	if (a_null || b_null)
		return a_null && b_null;
	if (column->attbyval)
		return a == b;
	/* most are short texts, for which this is several times faster */
	if (column->attlen == -1 && VARATT_IS_SHORT(x) && !VARATT_IS_EXTERNAL(x) && x[0] == y[0])
		return memcmp(x, y, VARSIZE_SHORT(x)) == 0;
	return datum_image_eq(a, b, false, column->attlen);
}

/* Does a change from a to b break the column's rule? */
static inline bool
breaks_rule(ColumnRule rule, Datum a, bool a_null, Datum b, bool b_null)
{
	switch (rule)
	{
		case COLUMN_FREE:
			break;
		case COLUMN_FROZEN:
			return true;
		case COLUMN_ONCE:
			return !a_null;
		case COLUMN_GROWS:
			return !a_null && (b_null || DatumGetInt64(b) < DatumGetInt64(a));
	}
	return false;
}

/*
 * Did any column change?  A frozen one that did raises ID007.  Generated
 * columns follow the others and are not computed yet in a BEFORE trigger.
 */
static bool
find_change(Check *check)
{
	TupleDesc	desc = RelationGetDescr(check->table);
	TupleTableSlot *a = check->before;
	TupleTableSlot *b = check->after;
	bool		changed = false;

	slot_getallattrs(a);
	slot_getallattrs(b);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		ColumnRule	rule = check->attachment->rules[i];

		if (column->attisdropped || column->attgenerated != '\0' ||
			same_value(column, a->tts_values[i], a->tts_isnull[i],
					   b->tts_values[i], b->tts_isnull[i]))
			continue;
		changed = true;
		if (breaks_rule(rule, a->tts_values[i], a->tts_isnull[i],
						b->tts_values[i], b->tts_isnull[i]))
			raise_frozen(check, column, rule);
	}
	return changed;
}

/* The state that a row is in; raises ID003 if the machine has none such */
static const MachineState *
state_of(Check *check, const Machine *machine, TupleTableSlot *row)
{
	NullableDatum name = attached_text(&check->attachment->state, row);
	const MachineState *state;

	if (name.isnull)
		raise_undeclared(check, row, "null");
	state = machine_state(machine, VARDATA_ANY(DatumGetPointer(name.value)),
						  VARSIZE_ANY_EXHDR(DatumGetPointer(name.value)));
	if (state == NULL)
		raise_undeclared(check, row, TextDatumGetCString(name.value));
	return state;
}

/* Did the state column change? */
static bool
state_changed(Check *check)
{
	AttrNumber	attnum = check->attachment->state.attnum;
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(check->table), attnum - 1);
	bool		a_null;
	bool		b_null;
	Datum		a = slot_getattr(check->before, attnum, &a_null);
	Datum		b = slot_getattr(check->after, attnum, &b_null);

	return !same_value(column, a, a_null, b, b_null);
}

/* Find the move that an UPDATE makes, if it makes one; ID003 if it is not legal */
static void
find_move(Check *check)
{
	const Machine *machine;
	const MachineMove *move;

	if (check->attachment->machine_name == NULL || !state_changed(check))
		return;
	machine = attachment_machine(check->fcinfo, check->attachment);
	check->from = state_of(check, machine, check->before);
	check->to = state_of(check, machine, check->after);
	move = machine_move(check->from, check->to);
	if (move == NULL)
		raise_illegal_move(check);
	check->event = move->event;
}


/* ---------- BEFORE ---------- */

/* The new tuple with another version in it */
static HeapTuple
with_version(Check *check, int64 version)
{
	TupleDesc	desc = RelationGetDescr(check->table);
	int			column = check->attachment->version.attnum - 1;
	HeapTuple	given = check->data->tg_newtuple;
	HeapTuple	tuple;
	Datum	   *values;
	bool	   *nulls;

	if (version > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("version of a row of table \"%s\" is out of range",
						RelationGetRelationName(check->table)),
				 errdetail("The row with %s cannot be changed any more.",
						   describe_row(check, check->before)),
				 errtable(check->table)));

	/* find_change has taken the row apart already */
	values = palloc(sizeof(Datum) * desc->natts);
	nulls = palloc(sizeof(bool) * desc->natts);
	memcpy(values, check->after->tts_values, sizeof(Datum) * desc->natts);
	memcpy(nulls, check->after->tts_isnull, sizeof(bool) * desc->natts);
	values[column] = Int32GetDatum((int32) version);
	nulls[column] = false;

	tuple = heap_form_tuple(desc, values, nulls);
	tuple->t_data->t_ctid = given->t_data->t_ctid;
	tuple->t_self = given->t_self;
	tuple->t_tableOid = given->t_tableOid;
	return tuple;
}

/*
 * BEFORE UPDATE: the row to store.
 */
static HeapTuple
guard_update(Check *check)
{
	HeapTuple	tuple = check->data->tg_newtuple;
	int64		before;
	int64		after;

	if (check->attachment->append_only)
		raise_protected(check, check->before, "updated");
	if (same_image(check->data->tg_trigtuple, tuple) || !find_change(check))
		return tuple;
	find_move(check);

	if (check->attachment->version.attnum == 0)
		return tuple;
	before = attached_version(check->attachment, check->before);
	after = attached_version(check->attachment, check->after);
	if (after == before)
		return with_version(check, before + 1);
	if (after != before + 1)
		raise_stale(check, before, after);
	return tuple;
}


/* ---------- AFTER ---------- */

/* Whether an INSERT is the loading of a row that was guarded before */
static bool
is_restored(Check *check)
{
	return check->attachment->own && !idem_inside_call() &&
		has_privs_of_role(GetUserId(), idem_house(check->fcinfo->flinfo->fn_oid)->owner);
}

/* Check the state that a row is born in; false if it is not to be recorded */
static bool
check_birth(Check *check)
{
	const Machine *machine;

	if (check->attachment->machine_name == NULL)
		return false;
	machine = attachment_machine(check->fcinfo, check->attachment);
	check->to = state_of(check, machine, check->after);
	check->event = check->attachment->birth;
	if (is_restored(check))
		return false;
	if (!check->to->initial)
		raise_illegal_birth(check, machine);
	return true;
}

/*
 * Check what an UPDATE has stored in the end; false if it is no move.  Where
 * nothing could touch the row after the BEFORE trigger, only the move is left
 * to be found.
 */
static bool
check_stored(Check *check)
{
	int64		before;
	int64		after;

	if (check->attachment->last_word)
	{
		find_move(check);
		return check->to != NULL;
	}

	if (same_image(check->data->tg_trigtuple, check->data->tg_newtuple) ||
		!find_change(check))
		return false;
	find_move(check);
	if (check->attachment->version.attnum != 0)
	{
		before = attached_version(check->attachment, check->before);
		after = attached_version(check->attachment, check->after);
		if (after != before + 1)
			raise_overruled(check, before, after);
	}
	return check->to != NULL;
}

/* The version after a move, as history and events show it */
static NullableDatum
moved_version(Check *check)
{
	if (check->attachment->version.attnum == 0)
		return IDEM_NULL;
	return IDEM_VALUE(Int32GetDatum((int32) attached_version(check->attachment, check->after)));
}

/* A text, NULL where there is none or it is empty */
static NullableDatum
optional_text(const char *text)
{
	return text == NULL || text[0] == '\0' ? IDEM_NULL : IDEM_TEXT(text);
}

/* Append a move to history; event_id is NULL where nothing is announced */
static void
write_history(Check *check, const Move *move, NullableDatum event_id)
{
	NullableDatum row[] = {
		move->tenant_id,
		IDEM_TEXT(check->attachment->entity),
		move->key,
		move->version,
		optional_text(move->from ? move->from->name : NULL),
		IDEM_TEXT(move->to->name),
		IDEM_TEXT(move->event),
		optional_text(idem_actor),
		IDEM_TEXT(GetUserNameFromId(GetSessionUserId(), false)),
		optional_text(idem_current_reason()),
		event_id,
		IDEM_VALUE(TimestampTzGetDatum(move->at))
	};

	idem_append(check->fcinfo, &history, row);
}

/* Write a move, or a birth, to the outbox and to history */
static void
record_move(Check *check)
{
	Attachment *attachment = check->attachment;
	NullableDatum event_id = IDEM_NULL;
	Move		move;

	move.row = check->after;
	move.tenant_id = attached_text(&attachment->tenant, check->after);
	if (move.tenant_id.isnull)
		move.tenant_id = IDEM_TEXT("");
	move.key = attached_key(attachment, check->after);
	move.version = moved_version(check);
	move.from = check->from;
	move.to = check->to;
	move.event = check->event;
	move.at = GetCurrentTimestamp();

	if (attachment->outbox)
		event_id = IDEM_VALUE(outbox_announce(check->fcinfo, attachment, &move));
	if (attachment->history)
		write_history(check, &move, event_id);
	if (attachment->own)
		hook_note(check->fcinfo, attachment, &move);
}


/* ---------- the trigger ---------- */

static void
check_called_right(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", "idem_guard")));
}

pg_noreturn static void
raise_fired_wrong(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("function \"%s\" must be fired BEFORE UPDATE OR DELETE or AFTER INSERT OR UPDATE for each row, or BEFORE TRUNCATE",
					"idem_guard")));
}

/* BEFORE: what to store, or an error */
static HeapTuple
fire_before(Check *check)
{
	TriggerEvent event = check->data->tg_event;

	if (TRIGGER_FIRED_BY_DELETE(event))
		raise_protected(check, check->data->tg_trigslot, "deleted");
	if (!TRIGGER_FIRED_BY_UPDATE(event))
		raise_fired_wrong();
	check->before = check->data->tg_trigslot;
	check->after = check->data->tg_newslot;
	return guard_update(check);
}

/* AFTER: record what was stored, or an error */
static void
fire_after(Check *check)
{
	TriggerEvent event = check->data->tg_event;
	bool		moved;

	if (TRIGGER_FIRED_BY_INSERT(event))
	{
		check->after = check->data->tg_trigslot;
		moved = check_birth(check);
	}
	else if (TRIGGER_FIRED_BY_UPDATE(event))
	{
		check->before = check->data->tg_trigslot;
		check->after = check->data->tg_newslot;
		moved = check_stored(check);
	}
	else
		raise_fired_wrong();
	if (moved)
		record_move(check);
}

/*
 * idem_guard(name=value, ...) -> trigger
 *
 * The arguments are those of attachment.c.  Errors: ID003 an illegal move or
 * birth, ID004 a version that does not follow, ID007 a frozen column, a
 * forbidden DELETE or TRUNCATE.
 */
PG_FUNCTION_INFO_V1(idem_guard);
Datum
idem_guard(PG_FUNCTION_ARGS)
{
	Check		check = {0};

	check_called_right(fcinfo);
	check.fcinfo = fcinfo;
	check.data = (TriggerData *) fcinfo->context;
	check.table = check.data->tg_relation;
	check.attachment = attachment_of(fcinfo);

	if (TRIGGER_FIRED_BY_TRUNCATE(check.data->tg_event))
		raise_protected(&check, NULL, "truncated");
	if (!TRIGGER_FIRED_FOR_ROW(check.data->tg_event))
		raise_fired_wrong();
	if (TRIGGER_FIRED_BEFORE(check.data->tg_event))
		return PointerGetDatum(fire_before(&check));
	if (!TRIGGER_FIRED_AFTER(check.data->tg_event))
		raise_fired_wrong();
	fire_after(&check);
	return PointerGetDatum(NULL);
}
