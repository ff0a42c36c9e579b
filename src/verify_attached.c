/*-------------------------------------------------------------------------
 * verify_attached.c
 *	  The checker's look at the tables that users have attached.
 *
 * Their owners can disable or drop a trigger, rewrite a column by ALTER TABLE,
 * rename the value of an enum; a superuser can load rows as a replica.  None of
 * that can be refused, so it is found here: triggers and index that do not
 * stand, rows in states that the machine does not have, rows whose history ends
 * elsewhere.
 *
 * All of it in C: a statement would run what the tables' owners have written,
 * with the rights of the extension's owner.
 *-------------------------------------------------------------------------
 */
#include "attach.h"
#include "machine_tables.h"
#include "move.h"
#include "try.h"
#include "verify.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* A table under check */
typedef struct Checked
{
	IdemCall   *call;
	Oid			guard;
	Relation	table;
	Attachment *attachment;
	const Machine *machine;
} Checked;


/* ---------- findings ---------- */

static void
report_table(const Checked *check, const char *detail)
{
	IdemCall   *call = check->call;

	idem_put_text(call, VERIFY_INVARIANT, "attachment_stands");
	idem_put_text(call, VERIFY_ENTITY, "table");
	idem_put_text(call, VERIFY_KEY,
				  quote_qualified_identifier(get_namespace_name(RelationGetNamespace(check->table)),
											 RelationGetRelationName(check->table)));
	idem_put_text(call, VERIFY_DETAIL, detail);
	idem_emit(call);
}

static void
report_row(const Checked *check, TupleTableSlot *row, const char *invariant, const char *detail)
{
	IdemCall   *call = check->call;

	idem_put_text(call, VERIFY_INVARIANT, invariant);
	idem_put_nullable(call, VERIFY_TENANT_ID, attached_text(&check->attachment->tenant, row));
	idem_put_text(call, VERIFY_ENTITY, check->attachment->entity);
	idem_put_nullable(call, VERIFY_KEY, attached_key(check->attachment, row));
	idem_put_text(call, VERIFY_DETAIL, detail);
	idem_emit(call);
}


/* ---------- what guards the table ---------- */

/* Every table that inherits from this one is guarded, too */
static void
check_children(const Checked *check)
{
	ListCell   *cell;

	foreach(cell, find_inheritance_children(RelationGetRelid(check->table), AccessShareLock))
	{
		Relation	child = relation_open(lfirst_oid(cell), NoLock);

		if (attachment_trigger(check->call->house, child) == NULL)
			report_table(check, psprintf("\"%s\" inherits from it and is not attached",
										 RelationGetRelationName(child)));
		relation_close(child, NoLock);
	}
}

static void
check_guards(const Checked *check)
{
	const Attachment *attachment = check->attachment;
	char	   *faults = attach_trigger_faults(check->guard, check->table,
											   attachment_trigger(check->call->house, check->table),
											   attachment->forbid_delete);

	if (faults != NULL)
		report_table(check, faults);
	if (check->table->rd_rel->relispartition && !attachment->last_word)
		report_table(check, "a BEFORE UPDATE trigger sorts after zz_idem_guard");
	if (attachment->active_key != NIL && !check->table->rd_rel->relispartition &&
		!OidIsValid(attach_find_index(check->table, attachment, check->machine)))
		report_table(check, "no unique index keeps its active_key");
	check_children(check);
}


/* ---------- rows ---------- */

/*
 * Is a row still what the calling statement sees?  The rules that it is judged
 * by are those of now, and it may have been moved to let them change.
 */
static bool
still_stands(const Checked *check, TupleTableSlot *row)
{
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(check->table, NULL);
	bool		stands = table_tuple_fetch_row_version(check->table, &row->tts_tid, latest, slot);

	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(latest);
	return stands;
}

static bool
is_declared(const Checked *check, const char *state)
{
	return state != NULL && machine_state(check->machine, state, strlen(state)) != NULL;
}

static void
check_row(const Checked *check, TupleTableSlot *row)
{
	Attachment *attachment = check->attachment;
	NullableDatum state = attached_text(&attachment->state, row);
	char	   *word = state.isnull ? NULL : TextDatumGetCString(state.value);
	NullableDatum last;

	if (!is_declared(check, word))
	{
		if (still_stands(check, row))
			report_row(check, row, "attached_state_declared",
					   psprintf("machine %s has no state %s", attachment->machine_name,
								word == NULL ? "null" : word));
	}
	else if (attachment->history &&
			 !move_history_agrees(check->call, attachment, row, state, &last))
		report_row(check, row, "attached_history_ends_in_state",
				   psprintf("state %s; the last move went to %s", word,
							TextDatumGetCString(last.value)));
}

/* Check all rows, as the calling statement sees them */
static void
check_rows(const Checked *check)
{
	IdemCall   *call = check->call;
	MemoryContext whole = call->context;
	TupleTableSlot *slot = table_slot_create(check->table, NULL);
	TableScanDesc scan = table_beginscan(check->table, GetActiveSnapshot(), 0, NULL);

	call->context = AllocSetContextCreate(whole, "idem verify row", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(call->context);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		check_row(check, slot);
		MemoryContextReset(call->context);
	}
	MemoryContextSwitchTo(whole);
	MemoryContextDelete(call->context);
	call->context = whole;
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}


/* ---------- tables ---------- */

/* What the guard's arguments say; raises 42703 if a column has gone */
static void
read_guard(void *arg)
{
	Checked    *check = arg;

	check->attachment = attachment_of_table(check->call->house, check->table);
}

static void
check_table(Checked *check)
{
	ErrorData  *error = idem_try(read_guard, check, ERRCODE_UNDEFINED_COLUMN, 0);
	uint64		epoch;

	if (error != NULL)
	{
		report_table(check, error->message);
		return;
	}
	if (check->attachment == NULL || check->attachment->own ||
		check->attachment->machine_name == NULL)
		return;
	check->machine = machine_find(check->call->house, check->attachment->machine_name, &epoch);
	if (check->machine == NULL)
	{
		report_table(check, psprintf("machine %s does not exist", check->attachment->machine_name));
		return;
	}
	check_guards(check);
	if (check->table->rd_rel->relkind == RELKIND_RELATION)
		check_rows(check);
}

static void
visit_table(HeapTuple row, TupleDesc desc pg_attribute_unused(), void *arg)
{
	List	  **tables = arg;

	*tables = list_append_unique_oid(*tables, ((Form_pg_trigger) GETSTRUCT(row))->tgrelid);
}

/*
 * Report what is wrong with attached tables, and with their rows.
 */
void
verify_attached_tables(IdemCall *call)
{
	Checked		check = {0};
	List	   *tables = NIL;
	ListCell   *cell;

	check.call = call;
	check.guard = machine_guard_function(call->house);
	if (!OidIsValid(check.guard))
		return;
	machine_visit_triggers(check.guard, visit_table, &tables);
	list_sort(tables, list_oid_cmp);
	foreach(cell, tables)
	{
		check.table = try_relation_open(lfirst_oid(cell), AccessShareLock);
		if (check.table == NULL)
			continue;
		if (!RELATION_IS_OTHER_TEMP(check.table))
			check_table(&check);
		relation_close(check.table, AccessShareLock);
	}
}
