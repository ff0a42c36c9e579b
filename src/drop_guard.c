/*-------------------------------------------------------------------------
 * drop_guard.c
 *	  Keep the books from being thrown away by mistake.
 *
 * The tables belong to the extension, so DROP EXTENSION takes every order,
 * payment and receipt with it, and so do DROP SCHEMA ... CASCADE and DROP
 * OWNED ... CASCADE.  An event trigger refuses that while a table holds rows,
 * unless idem.allow_drop is on.  DROP DATABASE fires no event trigger.
 *
 * The trigger fires for everybody's drops, so it asks first whether the
 * statement names the extension, its schema or their owners, and touches no
 * table otherwise.  It answers for whatever state the extension is in: a table
 * that is gone holds no rows.
 *
 * A first row could be committed between the question and the drop.  So empty
 * tables are locked as the drop itself will lock them, and asked again.
 *-------------------------------------------------------------------------
 */
#include "call.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* The tables whose rows cannot be had again */
static const char *const guarded_tables[] = {
	"idem_order", "idem_payment", "idem_payment_key", "idem_receipt",
	"idem_refund", "idem_dispute", "idem_notification", "idem_anomaly", "idem_lease", "idem_request", "idem_token_used",
	"idem_history", "idem_outbox"
};

/* What a statement must name to concern us */
typedef struct Guarded
{
	Oid			nspoid;
	char	   *extension;		/* NULL: the function is no extension's */
	char	   *schema;
	Oid			owners[3];		/* of function, extension, schema */
} Guarded;

/* The owner of an extension; InvalidOid if it is gone */
static Oid
extension_owner(Oid extension_oid)
{
	Oid			owner = InvalidOid;
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension_oid));
	scan = systable_beginscan(catalog, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return owner;
}

static Oid
schema_owner(Oid nspoid)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(nspoid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* What this trigger function guards; false if it finds nothing to guard */
static bool
find_guarded(Oid function_oid, Guarded *guarded)
{
	Oid			extension_oid = getExtensionOfObject(ProcedureRelationId, function_oid);
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function_oid));

	if (!HeapTupleIsValid(tuple))
		return false;
	guarded->nspoid = ((Form_pg_proc) GETSTRUCT(tuple))->pronamespace;
	guarded->owners[0] = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);

	guarded->extension = OidIsValid(extension_oid) ? get_extension_name(extension_oid) : NULL;
	guarded->schema = get_namespace_name(guarded->nspoid);
	guarded->owners[1] = OidIsValid(extension_oid) ? extension_owner(extension_oid) : InvalidOid;
	guarded->owners[2] = schema_owner(guarded->nspoid);
	return true;
}

static bool
names_object(const DropStmt *drop, const char *name)
{
	ListCell   *cell;

	if (name == NULL)
		return false;
	foreach(cell, drop->objects)
	{
		if (strcmp(strVal(lfirst(cell)), name) == 0)
			return true;
	}
	return false;
}

static bool
names_owner(const DropOwnedStmt *drop, const Guarded *guarded)
{
	ListCell   *cell;

	foreach(cell, drop->roles)
	{
		Oid			role = get_rolespec_oid(lfirst_node(RoleSpec, cell), true);

		for (int i = 0; OidIsValid(role) && i < (int) lengthof(guarded->owners); i++)
		{
			if (role == guarded->owners[i])
				return true;
		}
	}
	return false;
}

/* Would the statement take the extension away? */
static bool
concerns_us(Node *statement, const Guarded *guarded)
{
	if (IsA(statement, DropOwnedStmt))
		return names_owner((DropOwnedStmt *) statement, guarded);
	if (!IsA(statement, DropStmt))
		return false;

	switch (((DropStmt *) statement)->removeType)
	{
		case OBJECT_EXTENSION:
			return names_object((DropStmt *) statement, guarded->extension);
		case OBJECT_SCHEMA:
			return names_object((DropStmt *) statement, guarded->schema);
		default:
			return false;
	}
}

/* Somebody else's statement fails for want of rights, without our help */
static bool
may_drop(const Guarded *guarded)
{
	for (int i = 0; i < (int) lengthof(guarded->owners); i++)
	{
		if (OidIsValid(guarded->owners[i]) &&
			has_privs_of_role(GetUserId(), guarded->owners[i]))
			return true;
	}
	return false;
}

/* Does a table hold a row that is committed now, or is our own? */
static bool
holds_rows(Oid relid, LOCKMODE mode)
{
	Relation	table = try_relation_open(relid, mode);
	Snapshot	snapshot;
	TableScanDesc scan;
	TupleTableSlot *slot;
	bool		found;

	if (table == NULL)
		return false;
	if (table->rd_rel->relkind != RELKIND_RELATION)
	{
		relation_close(table, NoLock);
		return false;
	}

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = table_beginscan(table, snapshot, 0, NULL);
	slot = table_slot_create(table, NULL);
	found = table_scan_getnextslot(scan, ForwardScanDirection, slot);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	relation_close(table, NoLock);
	return found;
}

/* Refuse the statement if a table holds rows */
static void
demand_empty(const Guarded *guarded, LOCKMODE mode)
{
	for (int i = 0; i < (int) lengthof(guarded_tables); i++)
	{
		Oid			relid = get_relname_relid(guarded_tables[i], guarded->nspoid);

		if (OidIsValid(relid) && holds_rows(relid, mode))
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_PROTECTED),
					 errmsg("extension \"%s\" is in use and cannot be dropped",
							guarded->extension ? guarded->extension : "idem"),
					 errdetail("Table \"%s.%s\" holds rows, which would be lost.",
							   guarded->schema, guarded_tables[i]),
					 errhint("To drop it with all its rows, SET idem.allow_drop = on first.")));
	}
}

/*
 * Event trigger on ddl_command_start of DROP EXTENSION, DROP SCHEMA and DROP
 * OWNED.
 */
PG_FUNCTION_INFO_V1(idem_drop_guard);
Datum
idem_drop_guard(PG_FUNCTION_ARGS)
{
	EventTriggerData *trigger = (EventTriggerData *) fcinfo->context;
	Guarded		guarded;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_drop_guard() must be called by an event trigger")));

	if (!idem_allow_drop &&
		find_guarded(fcinfo->flinfo->fn_oid, &guarded) &&
		concerns_us(trigger->parsetree, &guarded) &&
		may_drop(&guarded))
	{
		demand_empty(&guarded, AccessShareLock);
		demand_empty(&guarded, AccessExclusiveLock);
	}
	PG_RETURN_VOID();
}
