/*-------------------------------------------------------------------------
 * attach.c
 *	  Attach a table of anybody's to a state machine, and detach it.
 *
 * From the commit on, every row is in a state of the machine and moves as the
 * machine says; so no row may slip in between the look at the rows and the
 * creation of the triggers.  In the order in which things happen:
 *
 * 1. The caller must own the table; a table that is attached already and in
 *	  the same way is left alone, without a lock that anybody would feel.
 * 2. The machine is held shared, so that its rules stay what they are.
 * 3. The table, with what inherits from it, is locked against writers.  Readers
 *	  are not disturbed.  The lock is waited for no longer than a call may wait.
 * 4. All rows are looked at; one in a state that the machine does not have
 *	  ends it.
 * 5. The index of the active key is made, unless there is one.
 * 6. The triggers are made.
 *
 * So writers wait for one scan and one index build, until the caller commits.
 * Everything is done with the caller's rights, but for the triggers
 * (attach_trigger.c).
 *-------------------------------------------------------------------------
 */
#include "attach.h"
#include "conform.h"
#include "machine_tables.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/lsyscache.h"

/* Arguments of idem_attach_machine */
enum
{
	TARGET, STATE_COLUMN, MACHINE, ACTIVE_KEY, VERSION_COLUMN, FROZEN, HISTORY, OUTBOX,
	FORBID_DELETE, PAYLOAD, TENANT_COLUMN, ENTITY
};

/* Columns of its result */
enum
{
	ATTACH_OUTCOME, ATTACH_ENTITY, ATTACH_ACTIVE_INDEX
};

static const char in_progress[] = "in_progress";


/* ---------- arguments ---------- */

/* An optional argument of type name */
static const char *
arg_name(IdemCall *call, int n)
{
	NullableDatum name = idem_arg(call, n);

	return name.isnull ? NULL : pstrdup(NameStr(*DatumGetName(name.value)));
}

/* An optional array of column names; each stands once */
static List *
arg_names(IdemCall *call, int n)
{
	NullableDatum array = idem_arg(call, n);
	List	   *names = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;

	if (array.isnull)
		return NIL;
	deconstruct_array(DatumGetArrayTypeP(array.value), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &nelements);
	for (int i = 0; i < nelements; i++)
	{
		char	   *name;
		ListCell   *cell;

		if (nulls[i])
			idem_bad_argument(call, n, "A column has a name that is not null.");
		name = TextDatumGetCString(elements[i]);
		foreach(cell, names)
		{
			if (strcmp(lfirst(cell), name) == 0)
				idem_bad_argument(call, n, "A column is named once.");
		}
		names = lappend(names, name);
	}
	return names;
}

static void
read_arguments(Attach *attach)
{
	IdemCall   *call = attach->call;
	NullableDatum entity = idem_arg_optional_key(call, ENTITY);

	attach->target = DatumGetObjectId(idem_arg_required(call, TARGET).value);
	(void) idem_arg_required(call, STATE_COLUMN);
	attach->state_column = arg_name(call, STATE_COLUMN);
	attach->machine_name = TextDatumGetCString(idem_arg_key(call, MACHINE));
	attach->active_key = arg_names(call, ACTIVE_KEY);
	attach->version_column = arg_name(call, VERSION_COLUMN);
	attach->frozen = arg_names(call, FROZEN);
	attach->history = idem_arg_bool(call, HISTORY);
	attach->outbox = idem_arg_bool(call, OUTBOX);
	attach->forbid_delete = idem_arg_bool(call, FORBID_DELETE);
	attach->asked_payload = arg_names(call, PAYLOAD);
	attach->tenant_column = arg_name(call, TENANT_COLUMN);
	if (!entity.isnull)
		attach->asked_entity = TextDatumGetCString(entity.value);
	if (attach->asked_payload != NIL && !attach->outbox)
		idem_bad_argument(call, PAYLOAD, "Without outbox there are no events to carry it.");
	attach->guard = machine_guard_function(call->house);
}


/* ---------- what is there ---------- */

/* Find the machine; ID006 if there is none, ID007 if it is not for this table */
static void
find_machine(Attach *attach, Relation table)
{
	uint64		epoch;

	attach->machine = machine_find(attach->call->house, attach->machine_name, &epoch);
	if (attach->machine == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("state machine \"%s\" does not exist", attach->machine_name),
				 errdetail("Table \"%s\" is to be attached to it.", RelationGetRelationName(table)),
				 errhint("Define it with idem_define_machine().")));
	if (attach->machine->builtin && table->rd_rel->relowner != attach->call->house->owner)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("table \"%s\" cannot be guarded as one of the extension's own",
						RelationGetRelationName(table)),
				 errdetail("Machine \"%s\" is built in, for tables of the extension's owner.",
						   attach->machine_name),
				 errhint("Define a machine of your own.")));
}

/*
 * Check the target and what it is to be, and compare with what it is already:
 * ID001 if that is something else.
 */
static void
examine(Attach *attach)
{
	List	   *asked_frozen = attach->frozen;
	Relation	table;
	const Trigger *trigger;

	attach_check_members(attach);
	table = table_open(attach->target, NoLock);
	find_machine(attach, table);
	attach->key = NIL;
	attach->frozen = list_copy(asked_frozen);
	attach_choose_key(attach, table);
	attach_check_columns(attach, table);

	trigger = attachment_trigger(attach->call->house, table);
	attach->arguments = NIL;
	attach->entity = NULL;
	attach->active_index = NULL;
	if (trigger != NULL)
		attach_compare(attach, trigger);
	table_close(table, NoLock);
}

/* Has every member all that it needs? */
static bool
is_complete(const Attach *attach)
{
	ListCell   *cell;

	foreach(cell, attach->members)
	{
		if (!attach_is_complete(attach, lfirst_oid(cell)))
			return false;
	}
	return true;
}

/* Raise 23514 if a member that is new to the machine has rows in other states */
static void
check_rows(const Attach *attach)
{
	Misfits		misfits;
	ListCell   *cell;

	conform_start(&misfits);
	foreach(cell, attach->members)
	{
		Relation	table = table_open(lfirst_oid(cell), NoLock);
		Trigger		trigger = {0};
		TriggerData data = {0};

		data.tg_relation = table;
		data.tg_trigger = &trigger;
		attach_fill_trigger(attach, &trigger);
		if (table->rd_rel->relkind == RELKIND_RELATION &&
			attachment_trigger(attach->call->house, table) == NULL)
			conform_check(&misfits, table, attachment_read(&data, attach->call->house),
						  attach->machine, NULL);
		table_close(table, NoLock);
	}
	conform_demand(&misfits, attach->machine_name);
}

/* Now, in words that every DateStyle reads */
static const char *
this_moment(void)
{
	char	   *words = palloc(MAXDATELEN + 1);
	int			utc = 0;

	return JsonEncodeDateTime(words, TimestampTzGetDatum(GetCurrentTimestamp()),
							  TIMESTAMPTZOID, &utc);
}

/* Make what is missing; false: another transaction stands in the way */
static bool
make(Attach *attach)
{
	bool		is_new = attach->arguments == NIL;

	if (is_new && !attach_choose_entity(attach))
		return false;
	check_rows(attach);
	if (is_new)
	{
		attach->since = this_moment();
		attach_record_entity(attach);
		attach_ensure_index(attach);
		attach->arguments = attach_arguments(attach);
	}
	attach_create_triggers(attach);
	return true;
}

static const char *
do_attach(Attach *attach)
{
	List	   *asked_frozen = attach->frozen;
	Datum		machine = CStringGetTextDatum(attach->machine_name);

	attach_demand_owner(attach->target);
	if (!attach_lock_members(attach, AccessShareLock))
		return in_progress;
	examine(attach);
	if (is_complete(attach))
		return "duplicate";
	attach_demand_right(attach);

	if (!machine_hold(attach->call, machine, ShareLock) ||
		!attach_lock_members(attach, ShareRowExclusiveLock))
		return in_progress;
	attach->frozen = asked_frozen;
	examine(attach);
	if (is_complete(attach))
		return "duplicate";
	return make(attach) ? "attached" : in_progress;
}

/*
 * idem_attach_machine(target, state_column, machine, active_key,
 *	 version_column, frozen, history, outbox, forbid_delete, payload,
 *	 tenant_column, entity) -> (outcome, entity, active_index)
 *
 * Outcomes: attached, duplicate, in_progress.  Errors: 42501 not the owner,
 * ID001 attached otherwise, ID006 no such machine, ID007 not for this table,
 * 23514 rows in other states, 23505 several active rows of a key, and what is
 * wrong with the arguments.
 */
PG_FUNCTION_INFO_V1(idem_attach_machine);
Datum
idem_attach_machine(PG_FUNCTION_ARGS)
{
	Attach		attach = {0};
	const char *outcome;

	attach.call = idem_enter_as_caller(fcinfo);
	read_arguments(&attach);
	outcome = do_attach(&attach);
	if (outcome == in_progress)
		return idem_leave(attach.call, outcome);
	if (attach.entity != NULL)
		idem_put_text(attach.call, ATTACH_ENTITY, attach.entity);
	if (attach.active_index != NULL)
		idem_put_text(attach.call, ATTACH_ACTIVE_INDEX, attach.active_index);
	return idem_leave(attach.call, outcome);
}


/* ---------- detach ---------- */

/* Raise unless the caller owns all members; false if none has a guard */
static bool
check_attached(const Attach *attach)
{
	bool		attached = false;
	ListCell   *cell;

	foreach(cell, attach->members)
	{
		Relation	table;

		attach_demand_owner(lfirst_oid(cell));
		table = table_open(lfirst_oid(cell), NoLock);
		if (attachment_trigger(attach->call->house, table) != NULL)
			attached = true;
		table_close(table, NoLock);
	}
	return attached;
}

/* The index that was made for the active key of a table; NULL: none was */
static const char *
made_index(const Attach *attach)
{
	Relation	table = table_open(attach->target, NoLock);
	const Trigger *trigger = attachment_trigger(attach->call->house, table);
	const char *index = trigger == NULL ? NULL :
		attach_option(attach_options_of(trigger), "active_index");

	table_close(table, NoLock);
	return index;
}

static const char *
do_detach(Attach *attach)
{
	const char *index;
	ListCell   *cell;

	attach_demand_owner(attach->target);
	if (!attach_lock_members(attach, AccessShareLock))
		return in_progress;
	attach_check_members(attach);
	if (!check_attached(attach))
		return "duplicate";

	if (!attach_lock_members(attach, AccessExclusiveLock))
		return in_progress;
	if (!check_attached(attach))
		return "duplicate";
	index = made_index(attach);
	foreach(cell, attach->members)
		attach_drop_triggers(attach->guard, lfirst_oid(cell));
	attach_drop_index(attach->target, index);
	return "detached";
}

/*
 * idem_detach_machine(target) -> (outcome)
 *
 * Outcomes: detached, duplicate (it was not attached), in_progress.  Errors:
 * 42501 not the owner, ID007 one of the extension's own tables.
 */
PG_FUNCTION_INFO_V1(idem_detach_machine);
Datum
idem_detach_machine(PG_FUNCTION_ARGS)
{
	Attach		attach = {0};

	attach.call = idem_enter_as_caller(fcinfo);
	attach.target = DatumGetObjectId(idem_arg_required(attach.call, TARGET).value);
	attach.guard = machine_guard_function(attach.call->house);
	return idem_leave(attach.call, do_detach(&attach));
}
