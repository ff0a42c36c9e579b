/*-------------------------------------------------------------------------
 * machine_tables.c
 *	  The tables that are attached to a machine, and a list of all.
 *
 * Where a machine is attached to is written in pg_trigger alone: in the
 * arguments of the triggers that call idem_guard.  That survives renaming,
 * dump, restore and pg_upgrade, and there is nothing that could contradict it.
 *-------------------------------------------------------------------------
 */
#include "machine_tables.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Columns of the list */
enum
{
	LIST_NAME, LIST_VERSION, LIST_BUILTIN, LIST_DEFINED_BY, LIST_ATTACHED_TO,
	LIST_STATE_COLUMN, LIST_GUARD, LIST_RECORD
};

/* A column that holds the state of a machine, and the triggers that guard it */
typedef struct Guarded
{
	Oid			table;
	const char *machine;
	const char *state;
	char		guard;			/* pg_trigger.tgenabled; 0: missing */
	char		record;
	bool		active_key;		/* an index keeps one row of a key active */
} Guarded;

Oid
machine_guard_function(const IdemHouse *house)
{
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("idem_guard"),
						   PointerGetDatum(buildoidvector(NULL, 0)),
						   ObjectIdGetDatum(house->nspoid));
}


/* ---------- triggers ---------- */

/* The value of an argument name=value; NULL if it has another name */
static const char *
argument_value(const char *argument, const char *name)
{
	size_t		len = strlen(name);

	return strncmp(argument, name, len) == 0 && argument[len] == '=' ? argument + len + 1 : NULL;
}

/* Read what a trigger guards.  Its arguments stand one after the other. */
static Guarded
read_trigger(HeapTuple row, TupleDesc desc)
{
	Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(row);
	Guarded		guarded = {.table = trigger->tgrelid};
	bool		isnull;
	Datum		args = heap_getattr(row, Anum_pg_trigger_tgargs, desc, &isnull);
	const char *argument = VARDATA_ANY(DatumGetByteaPCopy(args));

	for (int i = 0; i < trigger->tgnargs; i++)
	{
		const char *machine = argument_value(argument, "machine");
		const char *state = argument_value(argument, "state");

		guarded.machine = machine != NULL ? machine : guarded.machine;
		guarded.state = state != NULL ? state : guarded.state;
		guarded.active_key |= argument_value(argument, "active_key") != NULL;
		argument += strlen(argument) + 1;
	}
	if (TRIGGER_FOR_BEFORE(trigger->tgtype) && TRIGGER_FOR_UPDATE(trigger->tgtype))
		guarded.guard = trigger->tgenabled;
	if (TRIGGER_FOR_AFTER(trigger->tgtype) && TRIGGER_FOR_UPDATE(trigger->tgtype))
		guarded.record = trigger->tgenabled;
	return guarded;
}

/* Add a trigger to the others of its column */
static List *
add_guarded(List *all, const Guarded *new)
{
	Guarded    *guarded;
	ListCell   *cell;

	foreach(cell, all)
	{
		guarded = lfirst(cell);
		if (guarded->table != new->table || strcmp(guarded->machine, new->machine) != 0 ||
			strcmp(guarded->state, new->state) != 0)
			continue;
		guarded->guard = Max(guarded->guard, new->guard);
		guarded->record = Max(guarded->record, new->record);
		guarded->active_key |= new->active_key;
		return all;
	}
	guarded = palloc(sizeof(Guarded));
	*guarded = *new;
	return lappend(all, guarded);
}

static int
compare_guarded(const ListCell *a, const ListCell *b)
{
	const Guarded *x = lfirst(a);
	const Guarded *y = lfirst(b);

	if (x->table != y->table)
		return x->table < y->table ? -1 : 1;
	return strcmp(x->state, y->state);
}

void
machine_visit_triggers(Oid guard, TriggerVisitor visit, void *arg)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	row;

	ScanKeyInit(&key, Anum_pg_trigger_tgfoid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(guard));
	scan = systable_beginscan(triggers, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(row = systable_getnext(scan)))
		visit(row, RelationGetDescr(triggers), arg);
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
}

static void
visit_guarded(HeapTuple row, TupleDesc desc, void *arg)
{
	List	  **all = arg;
	Guarded		guarded = read_trigger(row, desc);

	if (guarded.machine != NULL && guarded.state != NULL)
		*all = add_guarded(*all, &guarded);
}

/* Everything that has a guard with a machine, as Guarded, ascending by table */
static List *
find_guarded(const IdemHouse *house)
{
	List	   *all = NIL;

	machine_visit_triggers(machine_guard_function(house), visit_guarded, &all);
	list_sort(all, compare_guarded);
	return all;
}

/* The tables that are attached to a machine, all or those with an active_key */
static List *
tables_of(const IdemHouse *house, const char *machine_name, bool with_active_key)
{
	List	   *tables = NIL;
	ListCell   *cell;

	foreach(cell, find_guarded(house))
	{
		const Guarded *guarded = lfirst(cell);

		if (strcmp(guarded->machine, machine_name) == 0 &&
			(guarded->active_key || !with_active_key))
			tables = list_append_unique_oid(tables, guarded->table);
	}
	return tables;
}

List *
machine_tables(const IdemHouse *house, const char *machine_name)
{
	return tables_of(house, machine_name, false);
}

List *
machine_tables_with_active_key(const IdemHouse *house, const char *machine_name)
{
	return tables_of(house, machine_name, true);
}


/* ---------- the list ---------- */

static const char *
enabled_word(char enabled)
{
	switch (enabled)
	{
		case TRIGGER_FIRES_ON_ORIGIN:
			return "enabled";
		case TRIGGER_FIRES_ALWAYS:
			return "always";
		case TRIGGER_FIRES_ON_REPLICA:
			return "replica";
		case TRIGGER_DISABLED:
			return "disabled";
		default:
			return "missing";
	}
}

static Datum
name_datum(const char *word)
{
	Name		name = palloc(sizeof(NameData));

	namestrcpy(name, word);
	return NameGetDatum(name);
}

static void
put_guarded(IdemCall *call, const Guarded *guarded)
{
	idem_put(call, LIST_ATTACHED_TO, ObjectIdGetDatum(guarded->table));
	idem_put(call, LIST_STATE_COLUMN, name_datum(guarded->state));
	idem_put_text(call, LIST_GUARD, enabled_word(guarded->guard));
	idem_put_text(call, LIST_RECORD, enabled_word(guarded->record));
}

static void
emit_machine(IdemCall *call, const Machine *machine, const Guarded *guarded)
{
	idem_put_text(call, LIST_NAME, machine->name);
	idem_put(call, LIST_VERSION, Int32GetDatum(machine->version));
	idem_put(call, LIST_BUILTIN, BoolGetDatum(machine->builtin));
	if (machine->defined_by != NULL)
		idem_put(call, LIST_DEFINED_BY, name_datum(machine->defined_by));
	if (guarded != NULL)
		put_guarded(call, guarded);
	idem_emit(call);
}

/* A row for each column that is attached to the machine, one if there is none */
static void
list_machine(IdemCall *call, const Machine *machine, const List *all)
{
	bool		attached = false;
	ListCell   *cell;

	foreach(cell, all)
	{
		const Guarded *guarded = lfirst(cell);

		if (strcmp(guarded->machine, machine->name) != 0)
			continue;
		emit_machine(call, machine, guarded);
		attached = true;
	}
	if (!attached)
		emit_machine(call, machine, NULL);
}

static int
compare_machines(const ListCell *a, const ListCell *b)
{
	return strcmp(((Machine *) lfirst(a))->name, ((Machine *) lfirst(b))->name);
}

/*
 * idem_list_machines() -> rows (name, version, builtin, defined_by,
 *		attached_to, state_column, guard, record)
 *
 * Each machine with each table that is attached to it.
 */
PG_FUNCTION_INFO_V1(idem_list_machines);
Datum
idem_list_machines(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	List	   *machines = list_copy(machine_all(call->house));
	List	   *all = find_guarded(call->house);
	ListCell   *cell;

	idem_begin_rows(call);
	list_sort(machines, compare_machines);
	foreach(cell, machines)
		list_machine(call, lfirst(cell), all);
	return idem_leave_rows(call);
}
