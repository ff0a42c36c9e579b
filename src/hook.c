/*-------------------------------------------------------------------------
 * hook.c
 *	  Hooks: when users' functions run, and what becomes of one that fails.
 *
 * A hook is told of a move in the transaction that made it, so that the
 * application's own tables move together with ours.  But it is a stranger in
 * the house: it may wait, fail, or call the API again.  So a move is only
 * noted while a call is at work; when the outermost call has left, with its
 * names unlocked and its rights given back, the hooks run in the order of the
 * moves.  A move outside of any call, by SQL of an owner, runs its hook at
 * once.  What a savepoint undoes is no longer noted.
 *
 * A fact must not be lost to a broken hook.  With on_error "record" the hook
 * runs behind a savepoint; where it fails, the move stands, the failure is a
 * row with the note in it, an anomaly is open, and the sweep tries again, less
 * and less often, until it succeeds, or a human resolves the anomaly, or the
 * hook is removed.  Only hooks need savepoints; without any registered, nothing
 * is spent but a look at a cached list.
 *
 * No hook hears of the anomalies that hooks cause: it would fail for ever.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "hook.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/memutils.h"

#define HOOK_FAILED "hook_failed"

/* A failed hook is tried again after a minute, then after twice as long each time */
#define LONGEST_DELAY_MINUTES 1440

/* Column numbers of idem_hook_failure */
enum
{
	TENANT_ID = 1, ENTITY, KEY, TO_STATE, VERSION, ORDER_ID, ROW_MOVED, ATTEMPTS, NEXT_AT,
	SQLSTATE, MESSAGE, FAILED_AT, NATTS = FAILED_AT
};

/* tenant_id, entity, key, to_state, version */
static const IdemIndex failure_by_key = {"idem_hook_failure", "idem_hook_failure_pkey", NATTS};

static IdemQuery store_failure = IDEM_QUERY(
	"INSERT INTO @schema@.idem_hook_failure AS mine (tenant_id, entity, key, to_state, version,"
	" order_id, row_moved, attempts, next_at, sqlstate, message, failed_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
	" ON CONFLICT (tenant_id, entity, key, to_state, version) DO UPDATE SET attempts = excluded.attempts,"
	" next_at = excluded.next_at, sqlstate = excluded.sqlstate, message = excluded.message",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, JSONBOID, INT4OID, TIMESTAMPTZOID,
	TEXTOID, TEXTOID, TIMESTAMPTZOID);

static IdemQuery select_due = IDEM_QUERY(
	"SELECT tenant_id, entity, key, to_state, version, order_id, row_moved, attempts"
	" FROM @schema@.idem_hook_failure WHERE next_at <= $1"
	" ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED",
	TIMESTAMPTZOID, INT8OID);

static IdemQuery delete_failure = IDEM_QUERY(
	"DELETE FROM @schema@.idem_hook_failure WHERE ctid = $1",
	TIDOID);

/* HookNotes that wait for the call to leave; they live as long as the transaction */
static List *noted = NIL;


/* ---------- note ---------- */

/* Text of a column of the row's event; NULL where it has none of this name */
static NullableDatum
payload_text(Attachment *attachment, TupleTableSlot *row, const char *name)
{
	ListCell   *cell;

	foreach(cell, attachment->payload)
	{
		AttachedColumn *column = lfirst(cell);

		if (strcmp(column->name, name) == 0)
			return attached_text(column, row);
	}
	return IDEM_NULL;
}

/* An anomaly that a hook has caused? */
static bool
is_of_hooks(Attachment *attachment, TupleTableSlot *row)
{
	NullableDatum kind;

	if (strcmp(attachment->entity, "anomaly") != 0)
		return false;
	kind = payload_text(attachment, row, "kind");
	return !kind.isnull && idem_text_is(kind.value, HOOK_FAILED);
}

static Datum
row_as_jsonb(TupleTableSlot *row)
{
	Datum		json = DirectFunctionCall1(row_to_json, ExecFetchSlotHeapTupleDatum(row));

	return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));
}

/* Memory that a note's values may point to, where it is to live */
static Datum
keep(Datum value)
{
	return datumCopy(value, false, -1);
}

static NullableDatum
keep_nullable(NullableDatum value)
{
	return value.isnull ? value : IDEM_VALUE(keep(value.value));
}

static HookNote *
make_note(Attachment *attachment, const Move *move)
{
	Datum		row = row_as_jsonb(move->row);
	NullableDatum order_id = payload_text(attachment, move->row, "order_id");
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	HookNote   *note = palloc0(sizeof(HookNote));

	note->nest_level = GetCurrentTransactionNestLevel();
	note->tenant_id = keep(move->tenant_id.value);
	note->entity = CStringGetTextDatum(attachment->entity);
	note->key = keep(move->key.value);
	note->to_state = CStringGetTextDatum(move->to->name);
	note->version = move->version.isnull ? 0 : DatumGetInt32(move->version.value);
	note->order_id = keep_nullable(order_id);
	note->row = keep(row);
	MemoryContextSwitchTo(old);
	return note;
}

static void
free_note(HookNote *note)
{
	pfree(DatumGetPointer(note->tenant_id));
	pfree(DatumGetPointer(note->entity));
	pfree(DatumGetPointer(note->key));
	pfree(DatumGetPointer(note->to_state));
	pfree(DatumGetPointer(note->row));
	if (!note->order_id.isnull)
		pfree(DatumGetPointer(note->order_id.value));
	pfree(note);
}

static void
add_note(HookNote *note)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	noted = lappend(noted, note);
	MemoryContextSwitchTo(old);
}

void
hook_note(FunctionCallInfo fcinfo, Attachment *attachment, const Move *move)
{
	if (hook_find(idem_house(fcinfo->flinfo->fn_oid), attachment->entity, move->to->name) == NULL ||
		is_of_hooks(attachment, move->row))
		return;
	add_note(make_note(attachment, move));
	hook_run_noted(fcinfo);
}

/* Transaction callback: nothing is left to be told */
static void
forget_notes(XactEvent event pg_attribute_unused(), void *arg pg_attribute_unused())
{
	noted = NIL;
}

/* Subtransaction callback: what is undone is not told, the rest is the parent's */
static void
revise_notes(SubXactEvent event, SubTransactionId sub pg_attribute_unused(),
			 SubTransactionId parent pg_attribute_unused(),
			 void *arg pg_attribute_unused())
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *cell;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	foreach(cell, noted)
	{
		HookNote   *note = lfirst(cell);

		if (note->nest_level < level)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			noted = foreach_delete_current(noted, cell);
		else
			note->nest_level = level - 1;
	}
}


/* ---------- failures ---------- */

static Datum
detail_of(const Hook *hook, const ErrorData *error)
{
	StringInfoData json;

	initStringInfo(&json);
	appendStringInfoString(&json, "{\"hook\": ");
	escape_json(&json, psprintf("%s.%s", hook->entity, hook->to_state));
	appendStringInfoString(&json, ", \"function\": ");
	escape_json(&json, hook->function);
	appendStringInfo(&json, ", \"sqlstate\": \"%s\", \"message\": ",
					 unpack_sql_state(error->sqlerrcode));
	escape_json(&json, error->message ? error->message : "");
	appendStringInfoChar(&json, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(json.data));
}

/* When a hook that has failed so many times is tried again */
static TimestampTz
next_try(const IdemCall *call, int attempts)
{
	int64		minutes = attempts > 10 ? LONGEST_DELAY_MINUTES : (int64) 1 << (attempts - 1);

	return call->now + Min(minutes, LONGEST_DELAY_MINUTES) * 60 * USECS_PER_SEC;
}

/* Note that it has failed, so that the sweep tries it again and a human hears of it */
static void
record_failure(FunctionCallInfo fcinfo, const HookNote *note, const Hook *hook,
			   const ErrorData *error)
{
	IdemCall   *call = idem_reenter(fcinfo, note->tenant_id);
	int			attempts = note->attempts + 1;

	(void) idem_run(call, &store_failure, (NullableDatum[]) {
		IDEM_VALUE(note->tenant_id),
		IDEM_VALUE(note->entity),
		IDEM_VALUE(note->key),
		IDEM_VALUE(note->to_state),
		IDEM_VALUE(Int32GetDatum(note->version)),
		note->order_id,
		IDEM_VALUE(note->row),
		IDEM_VALUE(Int32GetDatum(attempts)),
		IDEM_VALUE(TimestampTzGetDatum(next_try(call, attempts))),
		IDEM_TEXT(unpack_sql_state(error->sqlerrcode)),
		IDEM_TEXT(error->message ? error->message : ""),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
	anomaly_open(call, HOOK_FAILED, TextDatumGetCString(note->entity), note->key,
				 note->order_id, IDEM_VALUE(detail_of(hook, error)));
	idem_leave_trigger(call);
}

/* One that had failed is done with; the last one of its row closes the anomaly */
static void
drop_failure(FunctionCallInfo fcinfo, const HookNote *note, const char *resolution)
{
	IdemCall   *call = idem_reenter(fcinfo, note->tenant_id);
	Datum		keys[] = {
		note->tenant_id, note->entity, note->key, note->to_state, Int32GetDatum(note->version)
	};
	IdemRow    *row = idem_look(call, &failure_by_key, keys, 5, IDEM_SIGHT_LATEST);

	if (row != NULL)
		(void) idem_run(call, &delete_failure, (NullableDatum[]) {
			IDEM_VALUE(PointerGetDatum(&row->tid))
		});
	if (idem_look(call, &failure_by_key, keys, 3, IDEM_SIGHT_LATEST) == NULL)
		anomaly_resolve(call, HOOK_FAILED, TextDatumGetCString(note->entity), note->key,
						resolution, IDEM_NULL);
	idem_leave_trigger(call);
}


/* ---------- run ---------- */

static void
run_one(FunctionCallInfo fcinfo, const HookNote *note)
{
	bool		again = note->attempts > 0;
	Hook	   *hook = hook_find(idem_house(fcinfo->flinfo->fn_oid),
								 TextDatumGetCString(note->entity),
								 TextDatumGetCString(note->to_state));
	ErrorData  *error;

	if (hook != NULL && hook->raise && !again)
	{
		hook_call(hook, note, GetUserId());
		return;
	}
	error = hook == NULL ? NULL : hook_try(hook, note, GetUserId());
	if (error != NULL)
		record_failure(fcinfo, note, hook, error);
	else if (again)
		drop_failure(fcinfo, note, hook == NULL ? "removed" : "retried");
}

void
hook_run_noted(FunctionCallInfo fcinfo)
{
	List	   *notes = noted;
	ListCell   *cell;

	if (notes == NIL || idem_inside_call())
		return;

	/* what a hook sets off runs within it */
	noted = NIL;
	foreach(cell, notes)
	{
		CHECK_FOR_INTERRUPTS();
		run_one(fcinfo, (HookNote *) lfirst(cell));
		free_note((HookNote *) lfirst(cell));
	}
	list_free(notes);
}


/* ---------- the sweep ---------- */

/* The note in a row that select_due returned */
static HookNote *
due_note(IdemCall *call, uint64 row)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	HookNote   *note = palloc0(sizeof(HookNote));

	note->nest_level = GetCurrentTransactionNestLevel();
	note->tenant_id = keep(idem_result(call, row, TENANT_ID).value);
	note->entity = keep(idem_result(call, row, ENTITY).value);
	note->key = keep(idem_result(call, row, KEY).value);
	note->to_state = keep(idem_result(call, row, TO_STATE).value);
	note->version = DatumGetInt32(idem_result(call, row, VERSION).value);
	note->order_id = keep_nullable(idem_result(call, row, ORDER_ID));
	note->row = keep(idem_result(call, row, ROW_MOVED).value);
	note->attempts = DatumGetInt32(idem_result(call, row, ATTEMPTS).value);
	MemoryContextSwitchTo(old);
	return note;
}

/* Is the anomaly still open?  Who resolved it wants no more of it. */
static bool
is_wanted(IdemCall *call, const HookNote *note)
{
	call->tenant_id = note->tenant_id;
	return anomaly_look(call, HOOK_FAILED, TextDatumGetCString(note->entity), note->key,
						IDEM_SIGHT_LATEST);
}

int64
hook_note_due(IdemCall *call, int64 max_rows)
{
	NullableDatum args[] = {
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		IDEM_VALUE(Int64GetDatum(max_rows))
	};
	uint64		n = idem_run(call, &select_due, args);
	List	   *due = NIL;
	ListCell   *cell;

	for (uint64 row = 0; row < n; row++)
		due = lappend(due, due_note(call, row));
	foreach(cell, due)
	{
		HookNote   *note = lfirst(cell);

		if (is_wanted(call, note))
			add_note(note);
		else
			drop_failure(call->fcinfo, note, "removed");
	}
	call->tenant_id = (Datum) 0;
	return (int64) n;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_hook(void)
{
	RegisterXactCallback(forget_notes, NULL);
	RegisterSubXactCallback(revise_notes, NULL);
	idem_init_hook_set();
}
