/*-------------------------------------------------------------------------
 * hook_set.c
 *	  Which hooks there are: idem_set_hook and its kin, and the cache.
 *
 * Every move asks whether a hook wants to hear of it, so the few rows are kept
 * in memory, as the access tables are: a trigger sends an invalidation, the
 * mark "stale" is wiped before the rows are read, and they are read with the
 * latest snapshot.
 *
 * A hook belongs to the role that registered it.  Both the role and the
 * function are kept by name.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "hook.h"
#include "look.h"
#include "relation.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/regproc.h"

#define HOOK_TABLE "idem_hook"

/* Column numbers of idem_hook */
enum
{
	ENTITY = 1, TO_STATE, FUNCTION, ROLE, ON_ERROR, NATTS = ON_ERROR
};

static const IdemIndex hook_by_state = {HOOK_TABLE, "idem_hook_pkey", NATTS};

static IdemQuery insert_hook = IDEM_QUERY(
	"INSERT INTO @schema@.idem_hook (entity, to_state, function, role, on_error)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, TEXTOID, NAMEOID, TEXTOID);

static IdemQuery store_hook = IDEM_QUERY(
	"UPDATE @schema@.idem_hook SET function = $2, role = $3, on_error = $4 WHERE ctid = $1",
	TIDOID, TEXTOID, NAMEOID, TEXTOID);

static IdemQuery delete_hook = IDEM_QUERY(
	"DELETE FROM @schema@.idem_hook WHERE ctid = $1",
	TIDOID);

static IdemQuery make_due = IDEM_QUERY(
	"UPDATE @schema@.idem_hook_failure SET next_at = $3 WHERE ctid = ANY (ARRAY("
	"SELECT ctid FROM @schema@.idem_hook_failure"
	" WHERE entity = $1 AND to_state = $2 AND next_at > $3 FOR UPDATE SKIP LOCKED))",
	TEXTOID, TEXTOID, TIMESTAMPTZOID);


/* ---------- the cache ---------- */

/* The hooks of the house that was last asked for */
static struct
{
	Oid			nspoid;
	Oid			relid;
	bool		loaded;			/* false: never read, or the reading failed */
	bool		stale;			/* changed since the last reading began */
	MemoryContext context;
	List	   *hooks;			/* of Hook */
}			cache;

/* Relcache callback: a table changed (0: any may have) */
static void
doubt_hooks(Datum arg pg_attribute_unused(), Oid relid)
{
	if (relid == InvalidOid || relid == cache.relid)
		cache.stale = true;
}

static char *
column_text(TupleTableSlot *slot, int column)
{
	bool		isnull;

	return TextDatumGetCString(slot_getattr(slot, column, &isnull));
}

/* Keep a row of the table */
static void
keep_hook(void *into, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(cache.context);
	List	  **hooks = into;
	Hook	   *hook = palloc(sizeof(Hook));
	bool		isnull;

	hook->entity = column_text(slot, ENTITY);
	hook->to_state = column_text(slot, TO_STATE);
	hook->function = column_text(slot, FUNCTION);
	hook->role = pstrdup(NameStr(*DatumGetName(slot_getattr(slot, ROLE, &isnull))));
	hook->raise = strcmp(column_text(slot, ON_ERROR), "raise") == 0;
	*hooks = lappend(*hooks, hook);
	MemoryContextSwitchTo(old);
}

static void
load_hooks(const IdemHouse *house)
{
	cache.loaded = false;
	if (cache.context == NULL)
		cache.context = AllocSetContextCreate(TopMemoryContext, "idem hooks",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(cache.context);
	cache.hooks = NIL;
	cache.nspoid = house->nspoid;
	cache.relid = relation_demand(house, "table", HOOK_TABLE);

	cache.stale = false;		/* before the reading, not after */
	access_read_table(cache.relid, keep_hook, &cache.hooks);
	cache.loaded = true;
}

/* A copy that outlives the cache */
static Hook *
copy_hook(const Hook *hook)
{
	Hook	   *copy = palloc(sizeof(Hook));

	copy->entity = pstrdup(hook->entity);
	copy->to_state = pstrdup(hook->to_state);
	copy->function = pstrdup(hook->function);
	copy->role = pstrdup(hook->role);
	copy->raise = hook->raise;
	return copy;
}

Hook *
hook_find(const IdemHouse *house, const char *entity, const char *to_state)
{
	ListCell   *cell;

	if (!cache.loaded || cache.stale || cache.nspoid != house->nspoid)
		load_hooks(house);
	foreach(cell, cache.hooks)
	{
		const Hook *hook = lfirst(cell);

		if (strcmp(hook->to_state, to_state) == 0 && strcmp(hook->entity, entity) == 0)
			return copy_hook(hook);
	}
	return NULL;
}


/* ---------- set, remove, retry ---------- */

/* A hook as it is asked for, or found */
typedef struct HookRow
{
	ItemPointerData tid;
	Datum		entity;
	Datum		to_state;
	Datum		function;		/* text */
	Datum		role;			/* name */
	Datum		on_error;
} HookRow;

static HookRow *
hook_of_row(const IdemRow *row)
{
	HookRow    *hook;

	if (row == NULL)
		return NULL;
	hook = palloc(sizeof(HookRow));
	hook->tid = row->tid;
	hook->entity = IDEM_COLUMN(row, ENTITY);
	hook->to_state = IDEM_COLUMN(row, TO_STATE);
	hook->function = IDEM_COLUMN(row, FUNCTION);
	hook->role = IDEM_COLUMN(row, ROLE);
	hook->on_error = IDEM_COLUMN(row, ON_ERROR);
	return hook;
}

static HookRow *
look_hook(IdemCall *call, const HookRow *asked, IdemSight sight)
{
	Datum		keys[] = {asked->entity, asked->to_state};

	return hook_of_row(idem_look(call, &hook_by_state, keys, lengthof(keys), sight));
}

static HookRow *
lock_hook(IdemCall *call, const HookRow *asked)
{
	Datum		keys[] = {asked->entity, asked->to_state};

	return hook_of_row(idem_lock_row(call, &hook_by_state, keys, lengthof(keys)));
}

static bool
same_hook(const HookRow *a, const HookRow *b)
{
	return idem_same_text(a->function, b->function) &&
		strcmp(NameStr(*DatumGetName(a->role)), NameStr(*DatumGetName(b->role))) == 0 &&
		idem_same_text(a->on_error, b->on_error);
}

/* Arguments 0 and 1: a state of a built-in entity */
static void
take_state(IdemCall *call, HookRow *asked)
{
	const Machine *machine;
	char	   *state;
	uint64		epoch;

	asked->entity = idem_arg_key(call, 0);
	asked->to_state = idem_arg_key(call, 1);
	machine = machine_find(call->house, TextDatumGetCString(asked->entity), &epoch);
	if (machine == NULL || !machine->builtin)
		idem_bad_argument(call, 0, "It must be a built-in entity: order, payment, refund, anomaly, ...; see idem_machine.");
	state = TextDatumGetCString(asked->to_state);
	if (machine_state(machine, state, strlen(state)) == NULL)
		idem_bad_argument(call, 1, "It must be a state of the entity; see idem_machine_state.");
}

/* The same, and what is to be called */
static void
take_arguments(IdemCall *call, HookRow *asked)
{
	Name		role = palloc0(sizeof(NameData));
	Oid			function;
	char	   *on_error;

	take_state(call, asked);
	function = DatumGetObjectId(idem_arg_required(call, 2).value);
	hook_check_function(function, call->caller);
	asked->function = CStringGetTextDatum(format_procedure_qualified(function));
	namestrcpy(role, GetUserNameFromId(call->caller, false));
	asked->role = NameGetDatum(role);
	on_error = idem_arg_word(call, 3);
	if (strcmp(on_error, "record") != 0 && strcmp(on_error, "raise") != 0)
		idem_bad_argument(call, 3, "It must be \"record\" or \"raise\".");
	asked->on_error = CStringGetTextDatum(on_error);
}

static const char *
create_hook(IdemCall *call, const HookRow *asked, int *pause_ms)
{
	NullableDatum args[] = {
		IDEM_VALUE(asked->entity),
		IDEM_VALUE(asked->to_state),
		IDEM_VALUE(asked->function),
		IDEM_VALUE(asked->role),
		IDEM_VALUE(asked->on_error)
	};

	idem_lock_name(call, IDEM_NAME_HOOK, asked->entity, asked->to_state);
	if (look_hook(call, asked, IDEM_SIGHT_DIRTY) == NULL &&
		!TransactionIdIsValid(call->rival) &&
		idem_run(call, &insert_hook, args) == 1)
	{
		idem_unlock_names(call);
		return "created";
	}
	return idem_step_back(call, pause_ms) ? NULL : "in_progress";
}

/* One attempt; NULL: again */
static const char *
try_set(IdemCall *call, const HookRow *asked, int *pause_ms)
{
	HookRow    *hook = look_hook(call, asked, IDEM_SIGHT_LATEST);

	if (hook == NULL)
		return create_hook(call, asked, pause_ms);
	if (same_hook(hook, asked))
		return "unchanged";
	hook = lock_hook(call, asked);
	if (hook == NULL)
		return call->busy ? "in_progress" : NULL;
	if (idem_run(call, &store_hook, (NullableDatum[]) {
		IDEM_VALUE(PointerGetDatum(&hook->tid)),
		IDEM_VALUE(asked->function),
		IDEM_VALUE(asked->role),
		IDEM_VALUE(asked->on_error)
	}) != 1)
		elog(ERROR, "locked hook could not be updated");
	return "updated";
}

/*
 * idem_set_hook(entity, to_state, function, on_error) -> outcome
 *
 * Outcomes: created, updated, unchanged, in_progress.  Errors: 42501.
 */
PG_FUNCTION_INFO_V1(idem_set_hook);
Datum
idem_set_hook(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	HookRow		asked;
	const char *outcome;
	int			pause_ms = 1;

	take_arguments(call, &asked);
	while ((outcome = try_set(call, &asked, &pause_ms)) == NULL)
		CHECK_FOR_INTERRUPTS();
	return idem_leave(call, outcome);
}

/*
 * idem_remove_hook(entity, to_state) -> outcome
 *
 * Outcomes: removed, duplicate, in_progress.
 */
PG_FUNCTION_INFO_V1(idem_remove_hook);
Datum
idem_remove_hook(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	HookRow		asked;
	HookRow    *hook;

	take_state(call, &asked);
	hook = lock_hook(call, &asked);
	if (hook == NULL)
		return idem_leave(call, call->busy ? "in_progress" : "duplicate");
	if (idem_run(call, &delete_hook, (NullableDatum[]) {
		IDEM_VALUE(PointerGetDatum(&hook->tid))
	}) != 1)
		elog(ERROR, "locked hook could not be deleted");
	return idem_leave(call, "removed");
}

/*
 * idem_retry_hooks(entity, to_state) -> (outcome, count)
 *
 * Outcomes: scheduled, duplicate.
 */
PG_FUNCTION_INFO_V1(idem_retry_hooks);
Datum
idem_retry_hooks(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	HookRow		asked;
	uint64		count;

	take_state(call, &asked);
	count = idem_run(call, &make_due, (NullableDatum[]) {
		IDEM_VALUE(asked.entity),
		IDEM_VALUE(asked.to_state),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
	idem_put(call, 1, Int64GetDatum((int64) count));
	return idem_leave(call, count > 0 ? "scheduled" : "duplicate");
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_hook_set(void)
{
	CacheRegisterRelcacheCallback(doubt_hooks, (Datum) 0);
}
