/*-------------------------------------------------------------------------
 * define.c
 *	  idem_define_machine: give a machine its rules, or other rules.
 *
 * New rules must not meet rows in states that they do not have, and a move
 * that is no longer legal must not be made once the rules are committed.  But
 * a writer judges by the rules that it has read, and one that has begun before
 * the commit may end after it.  So who makes rules narrower locks the attached
 * tables against writers (SHARE ROW EXCLUSIVE) until commit: those who were
 * there have ended, those who come wait, and read the new rules when they have
 * got their lock.  Every move is then either before the change, by the old
 * rules, or after it, by the new ones, also in the clock's time, by which
 * history is judged.  Readers are not disturbed.  Rules that only get wider
 * take no lock on a table: what was legal still is.
 *
 *	1.	The definition is read.  If nothing would change: unchanged, nothing
 *		locked, nothing written.
 *	2.	The machine is held exclusively; attaching a table holds it shared.
 *	3.	If states go: all rows of all attached tables are looked at while
 *		writers go on.  Rows in a state that goes end it here (23514).
 *	4.	If rules get narrower: the tables are locked.  This waits for writers
 *		at most as long as a call may wait, and stops others no longer; then it
 *		answers in_progress.
 *	5.	If states go: what has changed since 3 is looked at (conform.c), all of
 *		a table that was attached meanwhile.
 *	6.	The rules are written; commit tells everybody (machine.c).
 *
 * The locks of step 4 last until the caller commits: he does well to do so at
 * once.  Before it looks, each step reads what is committed now, whatever the
 * transaction's snapshot; what that does not see then ends in 40001 where it
 * is written over.
 *-------------------------------------------------------------------------
 */
#include "conform.h"
#include "definition.h"
#include "look.h"
#include "machine_tables.h"
#include "table_lock.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Columns of the result */
enum
{
	DEFINE_OUTCOME, DEFINE_VERSION, DEFINE_ATTACHED
};

static IdemQuery put_machine = IDEM_QUERY(
	"INSERT INTO @schema@.idem_machine AS m (name, defined_by, definition, version)"
	" SELECT $1, $2, $3, 1 + coalesce(max(v.version), 0)"
	" FROM @schema@.idem_machine_version v WHERE v.name = $1"
	" ON CONFLICT (name) DO UPDATE SET defined_by = EXCLUDED.defined_by,"
	" definition = EXCLUDED.definition, version = greatest(m.version + 1, EXCLUDED.version)"
	" RETURNING version",
	TEXTOID, NAMEOID, JSONBOID);

static IdemQuery insert_version = IDEM_QUERY(
	"INSERT INTO @schema@.idem_machine_version (name, version, definition, defined_by, at)"
	" VALUES ($1, $2, $3, $4, clock_timestamp())",
	TEXTOID, INT4OID, JSONBOID, NAMEOID);

static IdemQuery delete_states = IDEM_QUERY(
	"DELETE FROM @schema@.idem_machine_state WHERE machine = $1", TEXTOID);

static IdemQuery delete_moves = IDEM_QUERY(
	"DELETE FROM @schema@.idem_machine_move WHERE machine = $1", TEXTOID);

static IdemQuery insert_states = IDEM_QUERY(
	"INSERT INTO @schema@.idem_machine_state (machine, state, initial, final, active)"
	" SELECT $1, s.* FROM unnest($2, $3, $4, $5) AS s",
	TEXTOID, TEXTARRAYOID, BOOLARRAYOID, BOOLARRAYOID, BOOLARRAYOID);

static IdemQuery insert_moves = IDEM_QUERY(
	"INSERT INTO @schema@.idem_machine_move (machine, from_state, to_state, event, fact, guard)"
	" SELECT $1, m.* FROM unnest($2, $3, $4, $5, $6) AS m",
	TEXTOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, BOOLARRAYOID, TEXTARRAYOID);

/* What is to be changed into what */
typedef struct Redefinition
{
	IdemCall   *call;
	Datum		name;			/* text */
	Datum		definition;		/* jsonb */
	const Machine *current;		/* NULL: it is defined for the first time */
	Machine    *machine;
	RuleChange	change;
} Redefinition;


/* ---------- rows in states that go ---------- */

/* Look at the rows of a table, once for each column that holds a state of the machine */
static void
look_at_rows(const Redefinition *redefinition, Relation table, Snapshot since, Misfits *misfits)
{
	const IdemHouse *house = redefinition->call->house;
	const TriggerDesc *triggers = table->trigdesc;
	Oid			guard = machine_guard_function(house);
	Bitmapset  *seen = NULL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		TriggerData data = {.tg_relation = table, .tg_trigger = &triggers->triggers[i]};
		Attachment *attachment;

		if (data.tg_trigger->tgfoid != guard)
			continue;
		attachment = attachment_read(&data, house);
		if (attachment->machine_name == NULL ||
			strcmp(attachment->machine_name, redefinition->machine->name) != 0 ||
			bms_is_member(attachment->state.attnum, seen))
			continue;
		seen = bms_add_member(seen, attachment->state.attnum);
		conform_check(misfits, table, attachment, redefinition->machine, since);
	}
}

/*
 * Look at the rows of tables that are locked.  Those of another session's
 * temporary tables cannot be seen; the guard will.
 */
static void
look_at_tables(const Redefinition *redefinition, List *tables, List *seen, Snapshot since)
{
	Misfits		misfits;
	ListCell   *cell;

	conform_start(&misfits);
	foreach(cell, tables)
	{
		Relation	table = try_relation_open(lfirst_oid(cell), NoLock);

		if (table == NULL)
			continue;
		if (table->rd_rel->relkind == RELKIND_RELATION && !RELATION_IS_OTHER_TEMP(table))
			look_at_rows(redefinition, table,
						 list_member_oid(seen, lfirst_oid(cell)) ? since : NULL, &misfits);
		relation_close(table, NoLock);
	}
	conform_demand(&misfits, redefinition->machine->name);
}

/*
 * An index knows by name which states are active.
 */
static void
check_active_keys(const Redefinition *redefinition)
{
	const Machine *current = redefinition->current;
	List	   *tables;

	if (current == NULL || definition_same_active(current, redefinition->machine))
		return;
	tables = machine_tables_with_active_key(redefinition->call->house, current->name);
	if (tables == NIL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot change which states of machine \"%s\" are active", current->name),
			 errdetail("Table \"%s\" has an index on its active_key, for the states that are active now.",
					   get_rel_name(linitial_oid(tables))),
			 errhint("Detach it with idem_detach_machine, and attach it again when the machine is defined.")));
}

/* Lock the tables that are attached, and those that get attached meanwhile */
static bool
lock_attached(const Redefinition *redefinition, List **tables)
{
	List	   *locked = NIL;

	for (;;)
	{
		*tables = machine_tables(redefinition->call->house, redefinition->machine->name);
		if (list_difference_oid(*tables, locked) == NIL)
			return true;
		if (!table_lock_all(redefinition->call, list_difference_oid(*tables, locked),
							ShareRowExclusiveLock))
			return false;
		locked = list_concat_unique_oid(locked, *tables);
	}
}

/*
 * Make sure that no row and no writer stands in the way of narrower rules.
 * false: writers do, and the wait is over.
 */
static bool
make_way(const Redefinition *redefinition)
{
	bool		states_go = redefinition->change == RULES_LOSE_STATES;
	List	   *seen = NIL;
	List	   *tables;
	Snapshot	since = NULL;
	bool		locked;

	if (states_go)
	{
		since = RegisterSnapshot(GetLatestSnapshot());
		seen = machine_tables(redefinition->call->house, redefinition->machine->name);
		if (!table_lock_all(redefinition->call, seen, AccessShareLock))
		{
			UnregisterSnapshot(since);
			return false;
		}
		look_at_tables(redefinition, seen, NIL, NULL);
	}
	locked = lock_attached(redefinition, &tables);
	if (locked && states_go)
		look_at_tables(redefinition, tables, seen, since);
	if (states_go)
		UnregisterSnapshot(since);
	return locked;
}


/* ---------- writing the rules ---------- */

#define MOST_COLUMNS 5

/* Rows for unnest, an array a column */
typedef struct Columns
{
	int			n;
	Oid			types[MOST_COLUMNS];
	ArrayBuildState *arrays[MOST_COLUMNS];
} Columns;

static void
add_row(Columns *columns, const NullableDatum *row)
{
	for (int i = 0; i < columns->n; i++)
		columns->arrays[i] = accumArrayResult(columns->arrays[i], row[i].value, row[i].isnull,
											  columns->types[i], CurrentMemoryContext);
}

/* Run a statement with the machine's name and these columns */
static void
run_with_columns(const Redefinition *redefinition, IdemQuery *query, const Columns *columns)
{
	NullableDatum args[MOST_COLUMNS + 1];

	args[0] = IDEM_VALUE(redefinition->name);
	for (int i = 0; i < columns->n; i++)
		args[i + 1] = IDEM_VALUE(makeArrayResult(columns->arrays[i], CurrentMemoryContext));
	(void) idem_run(redefinition->call, query, args);
}

static void
write_states(const Redefinition *redefinition)
{
	Columns		columns = {4, {TEXTOID, BOOLOID, BOOLOID, BOOLOID}, {NULL}};
	ListCell   *cell;

	foreach(cell, redefinition->machine->states)
	{
		const MachineState *state = lfirst(cell);

		add_row(&columns, (NullableDatum[]) {
			IDEM_TEXT(state->name),
			IDEM_VALUE(BoolGetDatum(state->initial)),
			IDEM_VALUE(BoolGetDatum(state->final)),
			IDEM_VALUE(BoolGetDatum(state->active))
		});
	}
	run_with_columns(redefinition, &insert_states, &columns);
}

static void
write_moves(const Redefinition *redefinition)
{
	Columns		columns = {5, {TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID}, {NULL}};
	ListCell   *cell;
	ListCell   *inner;

	foreach(cell, redefinition->machine->states)
	{
		const MachineState *from = lfirst(cell);

		foreach(inner, from->moves)
		{
			const MachineMove *move = lfirst(inner);

			add_row(&columns, (NullableDatum[]) {
				IDEM_TEXT(from->name),
				IDEM_TEXT(move->to->name),
				IDEM_TEXT(move->event),
				IDEM_VALUE(BoolGetDatum(move->fact)),
				move->guard == NULL ? IDEM_NULL : IDEM_TEXT(move->guard)
			});
		}
	}
	if (columns.arrays[0] != NULL)
		run_with_columns(redefinition, &insert_moves, &columns);
}

/* Write machine, version, states and moves; returns the version */
static Datum
write_rules(const Redefinition *redefinition)
{
	IdemCall   *call = redefinition->call;
	NameData	defined_by = {{0}};
	NullableDatum name = IDEM_VALUE(redefinition->name);
	NullableDatum definition = IDEM_VALUE(redefinition->definition);
	NullableDatum role = IDEM_VALUE(NameGetDatum(&defined_by));
	NullableDatum version;

	namestrcpy(&defined_by, redefinition->machine->defined_by);
	(void) idem_run(call, &put_machine, (NullableDatum[]) {name, role, definition});
	version = idem_result(call, 0, 1);
	(void) idem_run(call, &insert_version, (NullableDatum[]) {name, version, definition, role});
	(void) idem_run(call, &delete_states, &name);
	(void) idem_run(call, &delete_moves, &name);
	write_states(redefinition);
	write_moves(redefinition);
	return version.value;
}


/* ---------- the function ---------- */

/* Compare with the rules as they are; built-in ones are closed */
static void
compare_rules(Redefinition *redefinition)
{
	uint64		epoch;
	const Machine *current = machine_find(redefinition->call->house,
										  redefinition->machine->name, &epoch);

	redefinition->current = current;
	if (current == NULL)
		redefinition->change = RULES_LOSE_STATES;
	else if (current->builtin)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("machine \"%s\" cannot be defined", current->name),
				 errdetail("It belongs to the extension idem, whose state machines are closed."),
				 errhint("Define a machine of another name.")));
	else
		redefinition->change = definition_compare(current, redefinition->machine);

	/* rules that were written by hand are not in force by a definition yet */
	if (redefinition->change == RULES_SAME && current->defined_by == NULL)
		redefinition->change = RULES_WIDER;
}

/* Read the arguments; 22023 if the definition makes no sense */
static void
take_arguments(IdemCall *call, Redefinition *redefinition)
{
	char	   *name;

	redefinition->call = call;
	redefinition->name = idem_arg_key(call, 0);
	redefinition->definition = idem_arg_required(call, 1).value;
	name = TextDatumGetCString(redefinition->name);
	redefinition->machine = definition_read(call, name, DatumGetJsonbP(redefinition->definition));
	redefinition->machine->defined_by = GetUserNameFromId(call->caller, false);
}

static Datum
leave(const Redefinition *redefinition, const char *outcome)
{
	IdemCall   *call = redefinition->call;
	List	   *tables = machine_tables(call->house, redefinition->machine->name);

	idem_put(call, DEFINE_ATTACHED, Int32GetDatum(list_length(tables)));
	return idem_leave(call, outcome);
}

static Datum
leave_unchanged(const Redefinition *redefinition)
{
	idem_put(redefinition->call, DEFINE_VERSION, Int32GetDatum(redefinition->current->version));
	return leave(redefinition, "unchanged");
}

/*
 * idem_define_machine(name, definition) -> outcome, version, attached
 *
 * Gives a machine its rules.
 */
PG_FUNCTION_INFO_V1(idem_define_machine);
Datum
idem_define_machine(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Redefinition redefinition = {0};

	take_arguments(call, &redefinition);
	compare_rules(&redefinition);
	if (redefinition.change == RULES_SAME)
		return leave_unchanged(&redefinition);

	PreventCommandIfReadOnly("idem_define_machine()");
	if (!machine_hold(call, redefinition.name, ExclusiveLock))
		return idem_leave(call, "in_progress");
	compare_rules(&redefinition);
	if (redefinition.change == RULES_SAME)
	{
		machine_let_go(call, redefinition.name, ExclusiveLock);
		return leave_unchanged(&redefinition);
	}
	check_active_keys(&redefinition);
	if (redefinition.change > RULES_WIDER && !make_way(&redefinition))
	{
		machine_let_go(call, redefinition.name, ExclusiveLock);
		return idem_leave(call, "in_progress");
	}

	idem_put(call, DEFINE_VERSION, write_rules(&redefinition));
	return leave(&redefinition, redefinition.current == NULL ? "created" : "updated");
}
