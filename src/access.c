/*-------------------------------------------------------------------------
 * access.c
 *	  Who may call what for which tenant.
 *
 * Every call passes here, so the rows of idem_access and idem_capability are
 * kept in this backend's memory.  Kept rights are dangerous when they outlive
 * a change, so: a trigger on both tables sends an invalidation, which every
 * backend gets when the change is committed; the mark "stale" is wiped before
 * the tables are read, so that a change during the reading is not lost; they
 * are read with the latest snapshot, since an old one (REPEATABLE READ) would
 * keep old rights for good.
 *
 * Roles are stored by name and resolved at use.  A stored number would lend a
 * dropped role's rights to whoever gets the number after a restore; a name can
 * come back too.  So a row counts only if its own role was granted EXECUTE on
 * the called function, which no new role was; and idem_allow (allow.c) throws
 * out what the former bearer of a name left behind before it grants any.
 *-------------------------------------------------------------------------
 */
#include "access.h"

#include "relation.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/acl.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#define ALL_TENANTS "*"

/* Capabilities are bits of a set */
typedef uint32 CapabilitySet;
#define MAX_CAPABILITIES 32

/* A role as idem_access names it */
typedef struct AccessRole
{
	NameData	name;			/* hash key */
	CapabilitySet capabilities; /* for whatever tenant */
	Oid			oid;			/* invalid: there is no such role now */
	uint32		resolved;		/* the role_changes at which oid was found */
} AccessRole;

/* A row of idem_access */
typedef struct AccessGrant
{
	AccessRole *role;
	CapabilitySet capability;
} AccessGrant;

/* What is allowed for one tenant, or for "*" */
typedef struct AccessTenant
{
	char		tenant_id[IDEM_KEY_BYTES + 1];	/* hash key */
	List	   *grants;			/* of AccessGrant */
} AccessTenant;

/* What opens one function, and to whom */
typedef struct AccessFunction
{
	NameData	name;			/* hash key */
	CapabilitySet capabilities;
	bool		any_tenant;
	Oid			oid;			/* of the pg_proc row below; invalid: not read */
	uint32		hashvalue;		/* of that row in the syscache */
	uint32		changes;		/* counts changes of that row */
	uint32		known_at;		/* the changes at which grantees was read */
	List	   *grantees;		/* roles that EXECUTE was granted to, by OID */
} AccessFunction;

/* The access tables of one house, as last read */
typedef struct AccessCache
{
	Oid			nspoid;
	Oid			access_relid;
	Oid			capability_relid;
	bool		loaded;			/* false: never read, or the reading failed */
	bool		stale;			/* changed since the last reading began */
	MemoryContext context;		/* holds everything below */
	int			ncapabilities;
	char	   *capabilities[MAX_CAPABILITIES];
	HTAB	   *functions;		/* AccessFunction by name */
	HTAB	   *tenants;		/* AccessTenant by tenant_id */
	HTAB	   *roles;			/* AccessRole by name */
} AccessCache;

static List *caches = NIL;		/* of AccessCache, one a house */
static uint32 role_changes = 1; /* counts changes of pg_authid */

/* Columns of the two tables */
enum
{
	CAPABILITY_CAPABILITY = 1, CAPABILITY_FUNCTION_NAME, CAPABILITY_ANY_TENANT
};
enum
{
	ACCESS_ROLE = 1, ACCESS_CAPABILITY, ACCESS_TENANT_ID
};


/* ---------- the cache ---------- */

/* Relcache callback: a table changed (0: any may have) */
static void
doubt_caches(Datum arg pg_attribute_unused(), Oid relid)
{
	ListCell   *cell;

	foreach(cell, caches)
	{
		AccessCache *cache = lfirst(cell);

		if (relid == InvalidOid || relid == cache->access_relid ||
			relid == cache->capability_relid)
			cache->stale = true;
	}
}

/* Syscache callback: a role was created, renamed or dropped */
static void
doubt_roles(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
			uint32 hashvalue pg_attribute_unused())
{
	role_changes++;
}

/* Syscache callback: a function's row changed (0: any) */
static void
doubt_grantees(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
			   uint32 hashvalue)
{
	ListCell   *cell;

	foreach(cell, caches)
	{
		AccessCache *cache = lfirst(cell);
		HASH_SEQ_STATUS scan;
		AccessFunction *function;

		if (!cache->loaded)
			continue;
		hash_seq_init(&scan, cache->functions);
		while ((function = hash_seq_search(&scan)) != NULL)
		{
			if (hashvalue == 0 || hashvalue == function->hashvalue)
				function->changes++;
		}
	}
}

/* The number of a capability; -1: there is none of this name */
static int
capability_number(const AccessCache *cache, const char *name)
{
	for (int i = 0; i < cache->ncapabilities; i++)
	{
		if (strcmp(cache->capabilities[i], name) == 0)
			return i;
	}
	return -1;
}

/* The set of this one capability; empty if there is none of this name */
static CapabilitySet
capability_set(const AccessCache *cache, const char *name)
{
	int			number = capability_number(cache, name);

	return number < 0 ? 0 : (CapabilitySet) 1 << number;
}

/* Keep a row of idem_capability */
static void
keep_capability(void *into, TupleTableSlot *slot)
{
	AccessCache *cache = into;
	bool		isnull;
	char	   *name = TextDatumGetCString(slot_getattr(slot, CAPABILITY_CAPABILITY, &isnull));
	Name		function_name = DatumGetName(slot_getattr(slot, CAPABILITY_FUNCTION_NAME, &isnull));
	AccessFunction *function;
	bool		found;

	if (capability_number(cache, name) < 0)
	{
		if (cache->ncapabilities == MAX_CAPABILITIES)
			elog(ERROR, "more than %d capabilities", MAX_CAPABILITIES);
		cache->capabilities[cache->ncapabilities++] = MemoryContextStrdup(cache->context, name);
	}

	function = hash_search(cache->functions, NameStr(*function_name), HASH_ENTER, &found);
	if (!found)
	{
		function->capabilities = 0;
		function->any_tenant = false;
		function->oid = InvalidOid;
		function->hashvalue = 0;
		function->changes = 1;
		function->known_at = 0;
		function->grantees = NIL;
	}
	function->capabilities |= capability_set(cache, name);
	if (DatumGetBool(slot_getattr(slot, CAPABILITY_ANY_TENANT, &isnull)))
		function->any_tenant = true;
}

/* Keep a row of idem_access; one of an unknown capability allows nothing */
static void
keep_access(void *into, TupleTableSlot *slot)
{
	AccessCache *cache = into;
	bool		isnull;
	Name		role_name = DatumGetName(slot_getattr(slot, ACCESS_ROLE, &isnull));
	char	   *capability = TextDatumGetCString(slot_getattr(slot, ACCESS_CAPABILITY, &isnull));
	char	   *tenant_id = TextDatumGetCString(slot_getattr(slot, ACCESS_TENANT_ID, &isnull));
	AccessGrant *grant;
	AccessTenant *tenant;
	MemoryContext old;
	bool		found;

	old = MemoryContextSwitchTo(cache->context);
	grant = palloc(sizeof(AccessGrant));
	grant->capability = capability_set(cache, capability);
	grant->role = hash_search(cache->roles, NameStr(*role_name), HASH_ENTER, &found);
	if (!found)
	{
		grant->role->capabilities = 0;
		grant->role->resolved = 0;
	}
	grant->role->capabilities |= grant->capability;

	tenant = hash_search(cache->tenants, tenant_id, HASH_ENTER, &found);
	if (!found)
		tenant->grants = NIL;
	tenant->grants = lappend(tenant->grants, grant);
	MemoryContextSwitchTo(old);
}

void
access_read_table(Oid relid, AccessKeep keep, void *into)
{
	Relation	table = table_open(relid, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(table, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(table, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
		keep(into, slot);

	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(table, AccessShareLock);
}

static HTAB *
make_hash(AccessCache *cache, const char *name, Size keysize, Size entrysize)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = keysize;
	info.entrysize = entrysize;
	info.hcxt = cache->context;
	return hash_create(name, 32, &info, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Read the access tables anew */
static void
load_cache(AccessCache *cache, const IdemHouse *house)
{
	cache->loaded = false;
	MemoryContextReset(cache->context);
	cache->ncapabilities = 0;
	cache->functions = make_hash(cache, "idem access functions",
								 NAMEDATALEN, sizeof(AccessFunction));
	cache->tenants = make_hash(cache, "idem access tenants",
							   IDEM_KEY_BYTES + 1, sizeof(AccessTenant));
	cache->roles = make_hash(cache, "idem access roles",
							 NAMEDATALEN, sizeof(AccessRole));
	cache->capability_relid = relation_demand(house, "table", "idem_capability");
	cache->access_relid = relation_demand(house, "table", "idem_access");

	cache->stale = false;		/* before the reading, not after */
	access_read_table(cache->capability_relid, keep_capability, cache);
	access_read_table(cache->access_relid, keep_access, cache);
	cache->loaded = true;
}

/* Forget the caches of houses that are gone, or are about to be read again */
static void
drop_stale_caches(void)
{
	List	   *kept = NIL;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ListCell   *cell;

	foreach(cell, caches)
	{
		AccessCache *cache = lfirst(cell);

		if (cache->loaded && !cache->stale)
			kept = lappend(kept, cache);
		else
		{
			MemoryContextDelete(cache->context);
			pfree(cache);
		}
	}
	list_free(caches);
	caches = kept;
	MemoryContextSwitchTo(old);
}

static AccessCache *
make_cache(Oid nspoid)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	AccessCache *cache = palloc0(sizeof(AccessCache));

	cache->nspoid = nspoid;
	cache->context = AllocSetContextCreate(TopMemoryContext, "idem access",
										   ALLOCSET_SMALL_SIZES);
	caches = lappend(caches, cache);
	MemoryContextSwitchTo(old);
	return cache;
}

/*
 * The access tables of a house as they are now.  Invalidations are asked for,
 * since a transaction that holds all its locks would hear of none.  One that
 * comes while the tables are read leaves them stale for the next call.
 */
static AccessCache *
access_of(const IdemHouse *house)
{
	AccessCache *cache = NULL;
	ListCell   *cell;

	AcceptInvalidationMessages();
	foreach(cell, caches)
	{
		if (((AccessCache *) lfirst(cell))->nspoid == house->nspoid)
			cache = lfirst(cell);
	}
	if (cache != NULL && cache->loaded && !cache->stale)
		return cache;

	if (cache == NULL)
	{
		drop_stale_caches();
		cache = make_cache(house->nspoid);
	}
	load_cache(cache, house);
	return cache;
}


/* ---------- the check ---------- */

static bool
is_member_of_owner(const IdemCall *call)
{
	return call->caller == call->house->owner ||
		has_privs_of_role(call->caller, call->house->owner);
}

/* Read to whom EXECUTE on a function was granted */
static void
read_grantees(AccessCache *cache, AccessFunction *function, Oid oid)
{
	uint32		at = function->changes; /* the lookup may bring changes in */
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	MemoryContext old = MemoryContextSwitchTo(cache->context);
	Datum		value;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", oid);
	list_free(function->grantees);
	function->grantees = NIL;
	value = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proacl, &isnull);
	if (!isnull)
	{
		Acl		   *acl = DatumGetAclP(value);

		for (int i = 0; i < ACL_NUM(acl); i++)
		{
			if ((ACLITEM_GET_PRIVS(ACL_DAT(acl)[i]) & ACL_EXECUTE) != 0)
				function->grantees = lappend_oid(function->grantees, ACL_DAT(acl)[i].ai_grantee);
		}
	}
	MemoryContextSwitchTo(old);
	ReleaseSysCache(tuple);

	function->oid = oid;
	function->hashvalue = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(oid));
	function->known_at = at;
}

/*
 * Was EXECUTE on the called function granted to this very role?  That the
 * caller could call it proves nothing: he may have it from a group, and the
 * row from a dropped role of his name.
 */
static bool
was_granted(const IdemCall *call, AccessCache *cache, AccessFunction *function, Oid role)
{
	if (function->known_at != function->changes || function->oid != call->function->oid)
		read_grantees(cache, function, call->function->oid);
	return list_member_oid(function->grantees, role);
}

/*
 * Has the caller the rights of this role, by whatever inherited membership,
 * and has the role those of its row?
 */
static bool
has_rights_of(const IdemCall *call, AccessCache *cache, AccessFunction *function,
			  AccessRole *role)
{
	if (role->resolved != role_changes)
	{
		uint32		at = role_changes;	/* the lookup may bring changes in */

		role->oid = get_role_oid(NameStr(role->name), true);
		role->resolved = at;
	}
	return OidIsValid(role->oid) &&
		has_privs_of_role(call->caller, role->oid) &&
		was_granted(call, cache, function, role->oid);
}

/* Does a row for exactly this tenant give the caller one of the capabilities? */
static bool
is_allowed_for(const IdemCall *call, AccessCache *cache, AccessFunction *function,
			   const char *tenant_id, CapabilitySet capabilities)
{
	AccessTenant *tenant = hash_search(cache->tenants, tenant_id, HASH_FIND, NULL);
	ListCell   *cell;

	if (tenant == NULL)
		return false;
	foreach(cell, tenant->grants)
	{
		AccessGrant *grant = lfirst(cell);

		if ((grant->capability & capabilities) != 0 &&
			has_rights_of(call, cache, function, grant->role))
			return true;
	}
	return false;
}

/* Does a row for whatever tenant? */
static bool
is_allowed_for_any(const IdemCall *call, AccessCache *cache, AccessFunction *function)
{
	HASH_SEQ_STATUS scan;
	AccessRole *role;

	hash_seq_init(&scan, cache->roles);
	while ((role = hash_seq_search(&scan)) != NULL)
	{
		if ((role->capabilities & function->capabilities) != 0 &&
			has_rights_of(call, cache, function, role))
		{
			hash_seq_term(&scan);
			return true;
		}
	}
	return false;
}

/* Do the rows for the call's tenant, or for all, give one of the capabilities? */
static bool
is_allowed(const IdemCall *call, AccessCache *cache, AccessFunction *function,
		   CapabilitySet capabilities)
{
	if (call->tenant_id != (Datum) 0)
	{
		char		tenant_id[IDEM_KEY_BYTES + 1];

		text_to_cstring_buffer(DatumGetTextPP(call->tenant_id), tenant_id, sizeof(tenant_id));
		if (is_allowed_for(call, cache, function, tenant_id, capabilities))
			return true;
	}
	return is_allowed_for(call, cache, function, ALL_TENANTS, capabilities);
}

/* "client", "client or auditor", ... */
static char *
name_capabilities(const AccessCache *cache, CapabilitySet capabilities, const char *between)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < cache->ncapabilities; i++)
	{
		if ((capabilities & ((CapabilitySet) 1 << i)) != 0)
			appendStringInfo(&names, "%s%s", names.len > 0 ? between : "",
							 cache->capabilities[i]);
	}
	return names.data;
}

/* Raise ID008 */
static void
raise_denied(const IdemCall *call, const AccessCache *cache, CapabilitySet capabilities)
{
	char	   *role = GetUserNameFromId(call->caller, false);
	char	   *tenant_id = call->tenant_id != (Datum) 0 ?
		TextDatumGetCString(call->tenant_id) : ALL_TENANTS;

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_TENANT_DENIED),
			 errmsg("role \"%s\" may not act for tenant \"%s\"", role, tenant_id),
			 errdetail("Role \"%s\" lacks the capability %s for tenant \"%s\", which %s needs here.",
					   role, name_capabilities(cache, capabilities, " or "),
					   tenant_id, NameStr(call->function->name)),
			 errhint("A superuser or a member of the extension's owner can allow it with %s.idem_allow().",
					 call->house->schema)));
}

/* What opens the called function; raises 42501 if it is the owner's alone */
static AccessFunction *
called_function(const IdemCall *call, AccessCache *cache)
{
	AccessFunction *function = hash_search(cache->functions, NameStr(call->function->name),
										   HASH_FIND, NULL);

	if (function == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", NameStr(call->function->name)),
				 errdetail("Only superusers and members of the extension's owner may call it.")));
	return function;
}

/*
 * Raise ID008 unless the caller may call this function for this tenant, 42501
 * if it is the owner's alone.
 */
void
access_check(const IdemCall *call)
{
	AccessCache *cache;
	AccessFunction *function;
	bool		allowed;

	if (is_member_of_owner(call))
		return;

	cache = access_of(call->house);
	function = called_function(call, cache);
	allowed = function->any_tenant ?
		is_allowed_for_any(call, cache, function) :
		is_allowed(call, cache, function, function->capabilities);
	if (!allowed)
		raise_denied(call, cache, function->capabilities);
}

/*
 * Raise ID008 unless the caller has this very capability for the tenant.
 */
void
access_require(const IdemCall *call, const char *capability)
{
	AccessCache *cache;
	CapabilitySet capabilities;

	if (is_member_of_owner(call))
		return;

	cache = access_of(call->house);
	capabilities = capability_set(cache, capability);
	if (capabilities == 0)
		elog(ERROR, "unknown capability \"%s\"", capability);
	if (!is_allowed(call, cache, called_function(call, cache), capabilities))
		raise_denied(call, cache, capabilities);
}

bool
access_has(const IdemCall *call, const char *capability)
{
	AccessCache *cache;

	if (is_member_of_owner(call))
		return true;
	cache = access_of(call->house);
	return is_allowed(call, cache, called_function(call, cache),
					  capability_set(cache, capability));
}

/* Is there a capability of this name? */
bool
access_knows(const IdemCall *call, const char *capability)
{
	return capability_set(access_of(call->house), capability) != 0;
}

/* The names of all capabilities */
char *
access_capabilities(const IdemCall *call)
{
	return name_capabilities(access_of(call->house), ~(CapabilitySet) 0, ", ");
}

/*
 * Trigger on the access tables: tell every backend to read them again.
 */
PG_FUNCTION_INFO_V1(idem_access_changed);
Datum
idem_access_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_access_changed() must be called by an AFTER trigger")));
	CacheInvalidateRelcache(trigger->tg_relation);
	return PointerGetDatum(NULL);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_access(void)
{
	CacheRegisterRelcacheCallback(doubt_caches, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, doubt_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, doubt_grantees, (Datum) 0);
}
