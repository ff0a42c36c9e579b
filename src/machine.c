/*-------------------------------------------------------------------------
 * machine.c
 *	  The rules of state machines, and the triggers on the rules' own tables.
 *
 * Rules are rows, so that anybody can read them; every guarded row is checked
 * against them, so that they must cost nothing.  Hence a cache per backend and
 * per house.  What can go wrong with it, and does not:
 *
 * - A change of a row tells no other backend.  A trigger on the rules' tables,
 *	  ENABLE ALWAYS and for each row (the apply worker of a logical copy fires no
 *	  statement triggers), sends a relcache invalidation, which is delivered at
 *	  commit, and here at the end of the command or at rollback.
 * - An invalidation that arrives while rules are being read must not be lost.
 *	  The epoch is noted before the reading; it has moved on then, and the next
 *	  check reads again.  So does one after an error in the middle.
 * - A transaction with an old snapshot would cache old rules for good.  They
 *	  are read with the latest snapshot.
 * - A check may be running, further up the stack, on rules that are replaced.
 *	  The old ones are handed to the transaction, which frees them.
 *
 * Built-in machines are closed: whoever could add a move to "payment" could
 * forge its history.
 *-------------------------------------------------------------------------
 */
#include "attachment.h"
#include "look.h"
#include "machine.h"
#include "relation.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_proc.h"
#include "catalog/dependency.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The tables that hold rules, in the order in which they are read */
enum
{
	MACHINES, STATES, MOVES, RULE_TABLES
};

static const char *const rule_table_names[RULE_TABLES] = {
	"idem_machine", "idem_machine_state", "idem_machine_move"
};

/* Their columns, as far as they are read */
enum
{
	MACHINE_NAME, MACHINE_BUILTIN, MACHINE_DEFINED_BY, MACHINE_VERSION,
	MACHINE_NATTS
};
enum
{
	STATE_MACHINE, STATE_NAME, STATE_INITIAL, STATE_FINAL, STATE_ACTIVE,
	STATE_NATTS
};
enum
{
	MOVE_MACHINE, MOVE_FROM, MOVE_TO, MOVE_EVENT, MOVE_FACT, MOVE_GUARD,
	MOVE_NATTS
};

#define RULE_COLUMNS MOVE_NATTS

/* The rules of a house */
typedef struct Rules
{
	Oid			nspoid;			/* hash key */
	Oid			tables[RULE_TABLES];	/* whose invalidation ends the epoch */
	uint64		epoch;			/* noted before they were read; 0: never read */
	MemoryContext context;
	List	   *machines;		/* of Machine */
} Rules;

uint64		machine_epoch = 1;

static HTAB *rules_of_houses = NULL;


/* ---------- reading ---------- */

typedef void (*RowReader) (List **machines, const NullableDatum *row);

static Machine *
find_in_list(List *machines, const char *name)
{
	ListCell   *cell;

	foreach(cell, machines)
	{
		Machine    *machine = lfirst(cell);

		if (strcmp(machine->name, name) == 0)
			return machine;
	}
	return NULL;
}

static void
read_machine(List **machines, const NullableDatum *row)
{
	Machine    *machine = palloc0(sizeof(Machine));

	machine->name = TextDatumGetCString(row[MACHINE_NAME].value);
	machine->builtin = DatumGetBool(row[MACHINE_BUILTIN].value);
	if (!row[MACHINE_DEFINED_BY].isnull)
		machine->defined_by = pstrdup(NameStr(*DatumGetName(row[MACHINE_DEFINED_BY].value)));
	machine->version = DatumGetInt32(row[MACHINE_VERSION].value);
	*machines = lappend(*machines, machine);
}

static void
read_state(List **machines, const NullableDatum *row)
{
	Machine    *machine = find_in_list(*machines, TextDatumGetCString(row[STATE_MACHINE].value));
	MachineState *state;

	if (machine == NULL)
		return;
	state = palloc0(sizeof(MachineState));
	state->name = TextDatumGetCString(row[STATE_NAME].value);
	state->len = strlen(state->name);
	state->initial = DatumGetBool(row[STATE_INITIAL].value);
	state->final = DatumGetBool(row[STATE_FINAL].value);
	state->active = DatumGetBool(row[STATE_ACTIVE].value);
	machine->states = lappend(machine->states, state);
}

/* The state that a column of a move names; NULL if it is not declared */
static MachineState *
named_state(const Machine *machine, Datum name)
{
	char	   *word = TextDatumGetCString(name);

	return unconstify(MachineState *, machine_state(machine, word, strlen(word)));
}

static void
read_move(List **machines, const NullableDatum *row)
{
	Machine    *machine = find_in_list(*machines, TextDatumGetCString(row[MOVE_MACHINE].value));
	MachineState *from;
	MachineState *to;
	MachineMove *move;

	if (machine == NULL)
		return;
	from = named_state(machine, row[MOVE_FROM].value);
	to = named_state(machine, row[MOVE_TO].value);
	if (from == NULL || to == NULL)
		return;
	move = palloc0(sizeof(MachineMove));
	move->to = to;
	move->event = TextDatumGetCString(row[MOVE_EVENT].value);
	move->fact = DatumGetBool(row[MOVE_FACT].value);
	if (!row[MOVE_GUARD].isnull)
		move->guard = TextDatumGetCString(row[MOVE_GUARD].value);
	from->moves = lappend(from->moves, move);
}

static const struct
{
	int			natts;
	int			optional;		/* the column that may be NULL; -1: none */
	RowReader	reader;
}			rule_rows[RULE_TABLES] = {
	{MACHINE_NATTS, MACHINE_DEFINED_BY, read_machine},
	{STATE_NATTS, -1, read_state},
	{MOVE_NATTS, MOVE_GUARD, read_move}
};

/* Read one of the tables, past the planner and whatever the settings say */
static void
read_rule_table(Oid table_oid, int which, Snapshot snapshot, List **machines)
{
	Relation	table = table_open(table_oid, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(table);
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		NullableDatum row[RULE_COLUMNS];

		for (int i = 0; i < rule_rows[which].natts; i++)
		{
			row[i].value = heap_getattr(tuple, i + 1, desc, &row[i].isnull);
			if (row[i].isnull && i != rule_rows[which].optional)
				elog(ERROR, "unexpected null in table \"%s\"", rule_table_names[which]);
		}
		rule_rows[which].reader(machines, row);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
}

/* Read all rules of a house into the current memory context */
static List *
read_rules(const Oid *tables)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *machines = NIL;

	for (int i = 0; i < RULE_TABLES; i++)
		read_rule_table(tables[i], i, snapshot, &machines);
	UnregisterSnapshot(snapshot);
	return machines;
}


/* ---------- the cache ---------- */

/* Relcache callback: rules may have changed (0: anything may) */
static void
doubt_rules(Datum arg pg_attribute_unused(), Oid relid)
{
	HASH_SEQ_STATUS scan;
	Rules	   *rules;

	if (!OidIsValid(relid))
	{
		machine_epoch++;
		return;
	}
	hash_seq_init(&scan, rules_of_houses);
	while ((rules = hash_seq_search(&scan)) != NULL)
	{
		for (int i = 0; i < RULE_TABLES; i++)
		{
			if (rules->tables[i] == relid)
				machine_epoch++;
		}
	}
}

/* Let the transaction free what a running check may still stand on */
static void
retire(Rules *rules)
{
	if (rules->context != NULL)
		MemoryContextSetParent(rules->context, TopTransactionContext);
	rules->context = NULL;
	rules->machines = NIL;
}

/* Drop the rules of houses that are gone */
static void
sweep_rules(void)
{
	HASH_SEQ_STATUS scan;
	Rules	   *rules;

	hash_seq_init(&scan, rules_of_houses);
	while ((rules = hash_seq_search(&scan)) != NULL)
	{
		if (rules->epoch == machine_epoch)
			continue;
		retire(rules);
		hash_search(rules_of_houses, &rules->nspoid, HASH_REMOVE, NULL);
	}
}

/* The entry of a house, with its tables' OIDs, before anything is read */
static Rules *
enter_rules(const IdemHouse *house)
{
	Oid			tables[RULE_TABLES];
	Rules	   *rules;

	for (int i = 0; i < RULE_TABLES; i++)
		tables[i] = relation_demand(house, "table", rule_table_names[i]);
	rules = hash_search(rules_of_houses, &house->nspoid, HASH_ENTER, NULL);
	memcpy(rules->tables, tables, sizeof(tables));
	rules->epoch = 0;
	rules->context = NULL;
	rules->machines = NIL;
	return rules;
}

static Rules *
load_rules(const IdemHouse *house)
{
	MemoryContext context;
	MemoryContext old;
	Rules	   *rules;
	List	   *machines;
	uint64		epoch;

	sweep_rules();
	rules = enter_rules(house);

	context = AllocSetContextCreate(CurrentMemoryContext, "idem rules",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	epoch = machine_epoch;
	machines = read_rules(rules->tables);
	MemoryContextSwitchTo(old);

	MemoryContextSetParent(context, CacheMemoryContext);
	rules->context = context;
	rules->machines = machines;
	rules->epoch = epoch;
	return rules;
}

/* The rules of a house, as good as new */
static const Rules *
current_rules(const IdemHouse *house)
{
	Rules	   *rules = hash_search(rules_of_houses, &house->nspoid, HASH_FIND, NULL);

	if (rules == NULL || rules->epoch != machine_epoch)
		rules = load_rules(house);
	return rules;
}

List *
machine_all(const IdemHouse *house)
{
	return current_rules(house)->machines;
}

const Machine *
machine_find(const IdemHouse *house, const char *name, uint64 *epoch)
{
	const Rules *rules = current_rules(house);

	*epoch = rules->epoch;
	return find_in_list(rules->machines, name);
}

const MachineState *
machine_state(const Machine *machine, const char *name, int len)
{
	ListCell   *cell;

	foreach(cell, machine->states)
	{
		const MachineState *state = lfirst(cell);

		if (state->len == len && memcmp(state->name, name, len) == 0)
			return state;
	}
	return NULL;
}

const MachineMove *
machine_move(const MachineState *from, const MachineState *to)
{
	ListCell   *cell;

	foreach(cell, from->moves)
	{
		const MachineMove *move = lfirst(cell);

		if (move->to == to)
			return move;
	}
	return NULL;
}

bool
machine_hold(IdemCall *call, Datum name, LOCKMODE mode)
{
	if (!idem_await_name(call, IDEM_NAME_MACHINE, CStringGetTextDatum(""), name, mode))
		return false;
	/* who held them before has committed: hear of it */
	AcceptInvalidationMessages();
	return true;
}

/* Give back what was held for nothing */
void
machine_let_go(IdemCall *call, Datum name, LOCKMODE mode)
{
	idem_let_name_go(call, IDEM_NAME_MACHINE, CStringGetTextDatum(""), name, mode);
}


/* ---------- words for messages ---------- */

/* Append a name to a list of names */
void
machine_quote(StringInfo list, const char *name)
{
	appendStringInfo(list, list->len == 0 ? "\"%s\"" : ", \"%s\"", name);
}

char *
machine_targets(const MachineState *from)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, from->moves)
		machine_quote(&list, ((MachineMove *) lfirst(cell))->to->name);
	return list.data;
}

char *
machine_births(const Machine *machine)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, machine->states)
	{
		const MachineState *state = lfirst(cell);

		if (state->initial)
			machine_quote(&list, state->name);
	}
	return list.data;
}


/* ---------- triggers on the rules' tables ---------- */

static void
refuse_builtin(Relation table, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_PROTECTED),
			 errmsg("the rules of built-in state machines are closed"),
			 errdetail("Table \"%s\" holds rules of machine \"%s\", which belongs to the extension idem.",
					   RelationGetRelationName(table), name),
			 errhint("Define a machine of your own."),
			 errtable(table)));
}

/* Refuse a row that speaks of a built-in machine, or makes one */
static void
check_rule(const IdemHouse *house, Relation table, TupleTableSlot *slot)
{
	const Machine *machine;
	uint64		epoch;
	bool		isnull;
	char	   *name = TextDatumGetCString(slot_getattr(slot, 1, &isnull));

	machine = machine_find(house, name, &epoch);
	if (machine != NULL && machine->builtin)
		refuse_builtin(table, name);

	if (strcmp(RelationGetRelationName(table), rule_table_names[MACHINES]) == 0 &&
		DatumGetBool(slot_getattr(slot, MACHINE_BUILTIN + 1, &isnull)))
		refuse_builtin(table, name);
}

/* The extension's own scripts may change its own rules */
static bool
in_own_script(FunctionCallInfo fcinfo)
{
	return creating_extension &&
		CurrentExtensionObject == getExtensionOfObject(ProcedureRelationId,
													   fcinfo->flinfo->fn_oid);
}

/*
 * idem_guard_rules() -> trigger
 *
 * On the tables of rules: AFTER INSERT OR UPDATE OR DELETE for each row keeps
 * built-in machines closed and tells every backend to read the rules again;
 * BEFORE TRUNCATE refuses.  Errors: ID007.
 */
PG_FUNCTION_INFO_V1(idem_guard_rules);
Datum
idem_guard_rules(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const IdemHouse *house;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager", "idem_guard_rules")));

	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("table \"%s\" cannot be truncated",
						RelationGetRelationName(trigger->tg_relation)),
				 errdetail("It holds the rules of built-in state machines."),
				 errtable(trigger->tg_relation)));

	if (!TRIGGER_FIRED_AFTER(trigger->tg_event) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired AFTER ROW", "idem_guard_rules")));

	if (!in_own_script(fcinfo))
	{
		house = idem_house(fcinfo->flinfo->fn_oid);
		check_rule(house, trigger->tg_relation, trigger->tg_trigslot);
		if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
			check_rule(house, trigger->tg_relation, trigger->tg_newslot);
	}
	CacheInvalidateRelcacheByRelid(RelationGetRelid(trigger->tg_relation));
	return PointerGetDatum(NULL);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_machine(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(Rules);
	rules_of_houses = hash_create("idem rules", 4, &info, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(doubt_rules, (Datum) 0);
	idem_init_attachment();
}
