/*-------------------------------------------------------------------------
 * attach_trigger.c
 *	  The triggers of an attached table, and what their arguments say.
 *
 * The triggers are all that attaching leaves in the database, so that nothing
 * can contradict them: what a table is attached to and how stands in their
 * arguments, which survive renaming, dump and restore.
 *
 * Who creates a trigger needs EXECUTE on its function.  Whoever had that on
 * idem_guard could attach any table of his as any entity and write another
 * one's history.  So nobody has it, and the triggers of a table whose owner
 * asks for them are created as the extension's owner, from a parse tree: there
 * is no text into which anything could be slipped.  An owner who is no
 * superuser needs TRIGGER on the table.
 *-------------------------------------------------------------------------
 */
#include "attach.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* The triggers of a table */
typedef struct TriggerForm
{
	const char *name;
	int			kind;			/* its bits in tgtype */
	bool		of_partitions;	/* each needs its own: PostgreSQL clones none */
} TriggerForm;

enum
{
	GUARD, RECORD, TRUNCATE, FORMS
};

static const TriggerForm forms[FORMS] = {
	[GUARD] = {"zz_idem_guard", TRIGGER_TYPE_ROW | TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_UPDATE, false},
	[RECORD] = {"zz_idem_record", TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE, false},
	[TRUNCATE] = {"zz_idem_truncate", TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_TRUNCATE, true}
};

/* The arguments that stand for an option, and the option's name */
typedef struct OptionName
{
	const char *argument;
	const char *option;
} OptionName;

static const OptionName option_names[] = {
	{"machine", "machine"},
	{"state", "state_column"},
	{"tenant", "tenant_column"},
	{"active_key", "active_key"},
	{"version", "version_column"},
	{"frozen", "frozen"},
	{"history", "history"},
	{"outbox", "outbox"},
	{"forbid_delete", "forbid_delete"},
	{"payload", "payload"},
	{"entity", "entity"}
};


/* ---------- arguments ---------- */

static List *
add_argument(List *arguments, const char *name, const char *value)
{
	if (value == NULL)
		return arguments;
	return lappend(arguments, psprintf("%s=%s", name, value));
}

static List *
add_columns(List *arguments, const char *name, const List *columns)
{
	ListCell   *cell;

	foreach(cell, columns)
		arguments = add_argument(arguments, name, lfirst(cell));
	return arguments;
}

static const char *
on_or_off(bool on)
{
	return on ? "on" : "off";
}

/*
 * The arguments that the table's triggers shall have.
 */
List *
attach_arguments(const Attach *attach)
{
	List	   *list = NIL;

	list = add_argument(list, "machine", attach->machine_name);
	list = add_argument(list, "state", attach->state_column);
	list = add_argument(list, "entity", attach->entity);
	list = add_argument(list, "tenant", attach->tenant_column);
	list = add_columns(list, "key", attach->key);
	list = add_argument(list, "version", attach->version_column);
	list = add_columns(list, "frozen", attach->frozen);
	list = add_argument(list, "history", on_or_off(attach->history));
	list = add_argument(list, "outbox", on_or_off(attach->outbox));
	if (attach->outbox)
		list = add_columns(list, "payload",
						   attach->asked_payload != NIL ? attach->asked_payload : attach->key);
	list = add_argument(list, "forbid_delete", on_or_off(attach->forbid_delete));
	list = add_columns(list, "active_key", attach->active_key);
	list = add_argument(list, "active_index", attach->active_index);
	list = add_argument(list, "since", attach->since);
	return list;
}

/*
 * The arguments that a trigger has.
 */
List *
attach_options_of(const Trigger *trigger)
{
	List	   *list = NIL;

	for (int i = 0; i < trigger->tgnargs; i++)
		list = lappend(list, pstrdup(trigger->tgargs[i]));
	return list;
}

/*
 * The value of a name among arguments, several of them as a list; NULL: none.
 */
const char *
attach_option(const List *arguments, const char *name)
{
	size_t		len = strlen(name);
	char	   *values = NULL;
	ListCell   *cell;

	foreach(cell, arguments)
	{
		const char *argument = lfirst(cell);

		if (strncmp(argument, name, len) != 0 || argument[len] != '=')
			continue;
		values = values == NULL ? pstrdup(argument + len + 1) :
			psprintf("%s, %s", values, argument + len + 1);
	}
	return values;
}

/*
 * Let a trigger that does not exist yet say what it is going to say.
 */
void
attach_fill_trigger(const Attach *attach, Trigger *trigger)
{
	List	   *arguments = attach_arguments(attach);
	ListCell   *cell;

	trigger->tgname = pstrdup(forms[GUARD].name);
	trigger->tgargs = palloc(sizeof(char *) * list_length(arguments));
	foreach(cell, arguments)
		trigger->tgargs[trigger->tgnargs++] = lfirst(cell);
}

/*
 * Raise ID001 unless a table's trigger says what is asked for.  What is not
 * asked for stays as it is: the entity, the key, and who made the index.
 */
void
attach_compare(Attach *attach, const Trigger *trigger)
{
	List	   *there = attach_options_of(trigger);
	List	   *asked;

	attach->entity = attach->asked_entity != NULL ? attach->asked_entity :
		attach_option(there, "entity");
	attach->active_index = attach_option(there, "active_index");
	asked = attach_arguments(attach);
	for (int i = 0; i < (int) lengthof(option_names); i++)
	{
		const char *a = attach_option(there, option_names[i].argument);
		const char *b = attach_option(asked, option_names[i].argument);

		if (a == NULL ? b == NULL : b != NULL && strcmp(a, b) == 0)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_KEY_CONFLICT),
				 errmsg("table \"%s\" is already attached otherwise", get_rel_name(attach->target)),
				 errdetail("Its %s is %s, not %s.", option_names[i].option,
						   a != NULL ? a : "none", b != NULL ? b : "none"),
				 errhint("Detach it with idem_detach_machine() first.")));
	}
	attach->arguments = there;
}


/* ---------- triggers ---------- */

/* Which triggers a table needs; a partition has its row triggers from its root */
static bool
is_needed(const Attach *attach, const TriggerForm *form, Relation member)
{
	if (form == &forms[TRUNCATE] && !attach->forbid_delete)
		return false;
	return form->of_partitions || !member->rd_rel->relispartition;
}

static Trigger *
find_trigger(Relation member, Oid guard, const char *name)
{
	TriggerDesc *triggers = member->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (trigger->tgfoid == guard && strcmp(trigger->tgname, name) == 0)
			return trigger;
	}
	return NULL;
}

/*
 * Has a table every trigger that it needs?
 */
bool
attach_is_complete(const Attach *attach, Oid member)
{
	Relation	table = table_open(member, NoLock);
	bool		complete = true;

	for (int i = 0; i < FORMS; i++)
	{
		if (is_needed(attach, &forms[i], table) &&
			find_trigger(table, attach->guard, forms[i].name) == NULL)
			complete = false;
	}
	table_close(table, NoLock);
	return complete;
}

/* What is wrong with one of the triggers that a table needs; NULL: nothing */
static const char *
trigger_fault(const Trigger *trigger, const Trigger *guard)
{
	if (trigger == NULL)
		return "is missing";
	if (trigger->tgenabled == TRIGGER_DISABLED)
		return "is disabled";
	if (trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
		return "is enabled on replicas only";
	if (trigger->tgqual != NULL || trigger->tgnattr != 0)
		return "does not fire for every UPDATE";
	if (!TRIGGER_FOR_ROW(trigger->tgtype))
		return NULL;
	if (trigger->tgnargs != guard->tgnargs)
		return "has arguments of its own";
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		if (strcmp(trigger->tgargs[i], guard->tgargs[i]) != 0)
			return "has arguments of its own";
	}
	return NULL;
}

/*
 * What is wrong with the triggers of an attached table, in words; NULL:
 * nothing.  A partition has row triggers from its root, if all is well.
 */
char *
attach_trigger_faults(Oid guard, Relation table, const Trigger *found, bool forbid_delete)
{
	StringInfoData words;

	initStringInfo(&words);
	for (int i = 0; i < FORMS; i++)
	{
		const char *fault;

		if (i == TRUNCATE && !forbid_delete)
			continue;
		fault = trigger_fault(find_trigger(table, guard, forms[i].name), found);
		if (fault != NULL)
			appendStringInfo(&words, "%strigger %s %s", words.len > 0 ? ", " : "",
							 forms[i].name, fault);
	}
	return words.len > 0 ? words.data : NULL;
}

/* CREATE TRIGGER, as a parse tree */
static void
create_trigger(const Attach *attach, Oid member, const TriggerForm *form)
{
	CreateTrigStmt *statement = makeNode(CreateTrigStmt);
	ListCell   *cell;
	int			kind = form->kind;

	if (form == &forms[GUARD] && attach->forbid_delete)
		kind |= TRIGGER_TYPE_DELETE;
	statement->trigname = pstrdup(form->name);
	statement->relation = makeRangeVar(get_namespace_name(get_rel_namespace(member)),
									   get_rel_name(member), -1);
	statement->funcname = list_make2(makeString(get_namespace_name(attach->call->house->nspoid)),
									 makeString("idem_guard"));
	statement->row = (kind & TRIGGER_TYPE_ROW) != 0;
	statement->timing = kind & TRIGGER_TYPE_TIMING_MASK;
	statement->events = kind & TRIGGER_TYPE_EVENT_MASK;
	if (statement->row)
	{
		foreach(cell, attach->arguments)
			statement->args = lappend(statement->args, makeString(lfirst(cell)));
	}
	(void) CreateTrigger(statement, NULL, member, InvalidOid, InvalidOid, InvalidOid,
						 attach->guard, InvalidOid, NULL, false, false);
	CommandCounterIncrement();
}

static void
create_missing(const Attach *attach, Oid member)
{
	Relation	table = table_open(member, NoLock);
	bool		missing[FORMS];

	for (int i = 0; i < FORMS; i++)
		missing[i] = is_needed(attach, &forms[i], table) &&
			find_trigger(table, attach->guard, forms[i].name) == NULL;
	table_close(table, NoLock);

	for (int i = 0; i < FORMS; i++)
	{
		if (missing[i])
			create_trigger(attach, member, &forms[i]);
	}
}

/*
 * Raise 42501 unless the extension's owner, who creates the triggers, may.
 */
void
attach_demand_right(const Attach *attach)
{
	Oid			owner = attach->call->house->owner;
	const char *name = GetUserNameFromId(owner, false);
	ListCell   *cell;

	foreach(cell, attach->members)
	{
		if (pg_class_aclcheck(lfirst_oid(cell), owner, ACL_TRIGGER) == ACLCHECK_OK)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s", get_rel_name(lfirst_oid(cell))),
				 errdetail("Role \"%s\", the extension's owner, creates the triggers of attached tables.", name),
				 errhint("GRANT TRIGGER on the table to %s.", quote_identifier(name))));
	}
}

/*
 * Create the triggers that are missing, on every member.
 */
void
attach_create_triggers(Attach *attach)
{
	ListCell   *cell;

	idem_become_owner(attach->call);
	foreach(cell, attach->members)
		create_missing(attach, lfirst_oid(cell));
	idem_become_caller(attach->call);
}

/*
 * Drop the guards of a table.  Those of a partition go with its root's, except
 * what the root did not give it.
 */
void
attach_drop_triggers(Oid guard, Oid member)
{
	Relation	table = table_open(member, NoLock);
	ObjectAddresses *doomed = new_object_addresses();
	TriggerDesc *triggers = table->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		ObjectAddress address;

		if (trigger->tgfoid != guard ||
			(table->rd_rel->relispartition && TRIGGER_FOR_ROW(trigger->tgtype)))
			continue;
		ObjectAddressSet(address, TriggerRelationId, trigger->tgoid);
		add_exact_object_address(&address, doomed);
	}
	table_close(table, NoLock);
	performMultipleDeletions(doomed, DROP_RESTRICT, 0);
	free_object_addresses(doomed);
}
