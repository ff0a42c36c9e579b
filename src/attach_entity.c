/*-------------------------------------------------------------------------
 * attach_entity.c
 *	  What history and events call an attached table: its entity.
 *
 * History knows a row by entity and key, and a consumer knows an event by
 * "entity.state".  Two tables of one entity would write each other's history,
 * so that the owner of any table could forge that of another.  Hence an entity
 * belongs to one table and to those that inherit from it.  It stands in the
 * triggers' arguments: a table keeps it when it is renamed, dumped and restored.
 *
 * The history outlives the triggers.  So idem_entity notes whose an entity is,
 * by the name of the role, and only who has that role's rights may attach a
 * table by that name again.
 *-------------------------------------------------------------------------
 */
#include "attach.h"
#include "look.h"
#include "machine_tables.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

/* Column numbers of idem_entity */
enum
{
	ENTITY = 1, OWNER, CLAIMED_AT, NATTS = CLAIMED_AT
};

static const IdemIndex entity_by_name = {"idem_entity", "idem_entity_pkey", NATTS};

static IdemQuery claim = IDEM_QUERY(
	"INSERT INTO @schema@.idem_entity AS e (entity, owner, claimed_at)"
	" VALUES ($1, $2, clock_timestamp())"
	" ON CONFLICT (entity) DO UPDATE SET owner = EXCLUDED.owner WHERE e.owner <> EXCLUDED.owner",
	TEXTOID, NAMEOID);

/* The entity that a row of pg_trigger names; by default the table's name */
static char *
entity_of(HeapTuple row, TupleDesc desc, bool *own)
{
	Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(row);
	bool		isnull;
	bytea	   *args = DatumGetByteaP(heap_getattr(row, Anum_pg_trigger_tgargs, desc, &isnull));
	const char *arg = VARDATA(args);
	char	   *entity = NULL;

	*own = false;
	for (int i = 0; i < trigger->tgnargs; i++)
	{
		if (strncmp(arg, "entity=", 7) == 0)
			entity = pstrdup(arg + 7);
		else if (strcmp(arg, "own=on") == 0)
			*own = true;
		arg += strlen(arg) + 1;
	}
	return entity != NULL ? entity : get_rel_name(trigger->tgrelid);
}

/* The search for the table that has an entity */
typedef struct EntitySearch
{
	const char *entity;
	const List *except;
	Oid			table;
	bool		own;
} EntitySearch;

static void
visit_entity(HeapTuple row, TupleDesc desc, void *arg)
{
	EntitySearch *search = arg;
	Oid			table = ((Form_pg_trigger) GETSTRUCT(row))->tgrelid;
	bool		own;
	char	   *name = entity_of(row, desc, &own);

	if (name == NULL || strcmp(name, search->entity) != 0 ||
		list_member_oid(search->except, table) ||
		(OidIsValid(search->table) && search->table < table))
		return;
	search->table = table;
	search->own = own;
}

/*
 * The table that has an entity, InvalidOid if none has but those excepted.  Of
 * a table and its partitions it is the one that was made first.  *own: it is
 * one of the extension's.
 */
Oid
attach_entity_table(Oid guard, const char *entity, const List *except, bool *own)
{
	EntitySearch search = {entity, except, InvalidOid, false};

	machine_visit_triggers(guard, visit_entity, &search);
	*own = search.own;
	return search.table;
}

/* Is an entity free for the table, and will it be when we commit? */
typedef enum EntityState
{
	ENTITY_FREE,
	ENTITY_TAKEN,
	ENTITY_OWN,					/* by the extension */
	ENTITY_BUSY					/* another transaction may be taking it */
} EntityState;

/* Has the caller the rights of whose the entity was? */
static bool
may_take(const Attach *attach, const char *entity)
{
	Datum		keys[] = {CStringGetTextDatum(entity)};
	IdemRow    *row = idem_look(attach->call, &entity_by_name, keys, lengthof(keys),
								IDEM_SIGHT_LATEST);
	Oid			owner;

	if (row == NULL || has_privs_of_role(GetUserId(), attach->call->house->owner))
		return true;
	owner = get_role_oid(NameStr(*DatumGetName(IDEM_COLUMN(row, OWNER))), true);
	return OidIsValid(owner) && has_privs_of_role(GetUserId(), owner);
}

static EntityState
claim_entity(Attach *attach, const char *entity)
{
	IdemCall   *call = attach->call;
	uint64		epoch;
	const Machine *machine = machine_find(call->house, entity, &epoch);
	bool		own;

	if (!idem_await_name(call, IDEM_NAME_ENTITY, CStringGetTextDatum(""),
						 CStringGetTextDatum(entity), ExclusiveLock))
		return ENTITY_BUSY;
	if (machine != NULL && machine->builtin)
		return ENTITY_OWN;
	if (!OidIsValid(attach_entity_table(attach->guard, entity, attach->members, &own)))
		return may_take(attach, entity) ? ENTITY_FREE : ENTITY_TAKEN;
	return own ? ENTITY_OWN : ENTITY_TAKEN;
}

pg_noreturn static void
raise_taken(const Attach *attach, const char *entity, EntityState state)
{
	if (state == ENTITY_OWN)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("entity \"%s\" is one of the extension's own", entity),
				 errdetail("Its history and events cannot come from table \"%s\".",
						   get_rel_name(attach->target)),
				 errhint("Choose another entity.")));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_KEY_CONFLICT),
			 errmsg("entity \"%s\" is already that of another table, or was", entity),
			 errdetail("History and events of table \"%s\" would be taken for the other's.",
					   get_rel_name(attach->target)),
			 errhint("Choose another entity.")));
}

/*
 * Choose the entity: what was asked for, else the table's name, else that with
 * its schema.  false: another transaction stands in the way.
 */
bool
attach_choose_entity(Attach *attach)
{
	const char *name = get_rel_name(attach->target);
	const char *schema = get_namespace_name(get_rel_namespace(attach->target));
	const char *choices[] = {
		attach->asked_entity != NULL ? attach->asked_entity : name,
		attach->asked_entity != NULL ? NULL : psprintf("%s.%s", schema, name)
	};
	EntityState state = ENTITY_FREE;

	for (int i = 0; i < (int) lengthof(choices) && choices[i] != NULL; i++)
	{
		attach->entity = choices[i];
		state = claim_entity(attach, choices[i]);
		if (state == ENTITY_FREE || state == ENTITY_BUSY)
			return state == ENTITY_FREE;
	}
	raise_taken(attach, attach->entity, state);
}

/*
 * Note whose the entity is now.
 */
void
attach_record_entity(Attach *attach)
{
	Relation	table = table_open(attach->target, NoLock);
	Name		owner = palloc(sizeof(NameData));
	NullableDatum args[] = {IDEM_TEXT(attach->entity), IDEM_VALUE(NameGetDatum(owner))};

	namestrcpy(owner, GetUserNameFromId(table->rd_rel->relowner, false));
	table_close(table, NoLock);
	idem_become_owner(attach->call);
	(void) idem_run(attach->call, &claim, args);
	idem_become_caller(attach->call);
}
