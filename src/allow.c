/*-------------------------------------------------------------------------
 * allow.c
 *	  idem_allow and idem_disallow: change who may do what.
 *
 * A right is two things that must agree: a row of idem_access, which the door
 * asks, and EXECUTE on the functions, which the server asks; to which belongs
 * SELECT on the views that show what a function returns.  Several rows may
 * need the same EXECUTE (a client and a cashier both cancel orders), so what
 * one call takes away depends on what the others have given; they take turns,
 * each until its transaction ends.
 *
 * A role that is dropped loses EXECUTE and leaves its rows behind.  A new role
 * of the same name would wake them with the first EXECUTE that it gets.  So
 * before that, rows go whose functions the role may not execute.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "look.h"
#include "relation.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Our own function of this name, p, of capability c */
#define FUNCTIONS_OF_CAPABILITY \
	" @schema@.idem_capability c JOIN pg_catalog.pg_proc p" \
	" ON p.proname = c.function_name AND p.pronamespace = $2" \
	" AND EXISTS (SELECT FROM pg_catalog.pg_depend d" \
	" WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e')"

/* The role itself, not a group of it, may execute p */
#define ROLE_MAY_EXECUTE \
	" EXISTS (SELECT FROM pg_catalog.aclexplode(p.proacl) g" \
	" WHERE g.grantee = $3 AND g.privilege_type = 'EXECUTE')"

/* Our own view v that shows what p returns */
#define VIEW_OF_FUNCTION \
	" JOIN pg_catalog.pg_depend u ON u.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass" \
	" AND u.refobjid = p.oid AND u.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass" \
	" JOIN pg_catalog.pg_rewrite r ON r.oid = u.objid" \
	" JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'" \
	" AND EXISTS (SELECT FROM pg_catalog.pg_depend d" \
	" WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = v.oid AND d.deptype = 'e')"

/* The role itself, not a group of it, may read v */
#define ROLE_MAY_SELECT \
	" EXISTS (SELECT FROM pg_catalog.aclexplode(v.relacl) g" \
	" WHERE g.grantee = $3 AND g.privilege_type = 'SELECT')"

/* Nothing else that is allowed to the role needs the function */
#define NOTHING_ELSE_NEEDS_IT \
	" NOT EXISTS (SELECT FROM @schema@.idem_access a JOIN @schema@.idem_capability o" \
	" ON o.capability = a.capability AND o.function_name = c.function_name WHERE a.role = $4)"

static IdemQuery delete_left_behind = IDEM_QUERY(
	"DELETE FROM @schema@.idem_access a WHERE a.role = $1 AND NOT EXISTS"
	" (SELECT FROM" FUNCTIONS_OF_CAPABILITY
	" WHERE c.capability = a.capability AND" ROLE_MAY_EXECUTE ")",
	NAMEOID, OIDOID, OIDOID);

static IdemQuery insert_access = IDEM_QUERY(
	"INSERT INTO @schema@.idem_access (role, capability, tenant_id) VALUES ($1, $2, $3)"
	" ON CONFLICT DO NOTHING",
	NAMEOID, TEXTOID, TEXTOID);

static IdemQuery delete_access = IDEM_QUERY(
	"DELETE FROM @schema@.idem_access WHERE role = $1 AND capability = $2 AND tenant_id = $3",
	NAMEOID, TEXTOID, TEXTOID);

static IdemQuery select_missing_functions = IDEM_QUERY(
	"SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', ' ORDER BY p.oid)"
	" FROM" FUNCTIONS_OF_CAPABILITY
	" WHERE c.capability = $1 AND NOT" ROLE_MAY_EXECUTE,
	TEXTOID, OIDOID, OIDOID);

static IdemQuery select_needless_functions = IDEM_QUERY(
	"SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ', ' ORDER BY p.oid)"
	" FROM" FUNCTIONS_OF_CAPABILITY
	" WHERE c.capability = $1 AND" ROLE_MAY_EXECUTE
	" AND" NOTHING_ELSE_NEEDS_IT,
	TEXTOID, OIDOID, OIDOID, NAMEOID);

static IdemQuery select_missing_views = IDEM_QUERY(
	"SELECT pg_catalog.string_agg(v.oid::pg_catalog.regclass::pg_catalog.text, ', ' ORDER BY v.oid)"
	" FROM" FUNCTIONS_OF_CAPABILITY VIEW_OF_FUNCTION
	" WHERE c.capability = $1 AND NOT" ROLE_MAY_SELECT,
	TEXTOID, OIDOID, OIDOID);

static IdemQuery select_needless_views = IDEM_QUERY(
	"SELECT pg_catalog.string_agg(v.oid::pg_catalog.regclass::pg_catalog.text, ', ' ORDER BY v.oid)"
	" FROM" FUNCTIONS_OF_CAPABILITY VIEW_OF_FUNCTION
	" WHERE c.capability = $1 AND" ROLE_MAY_SELECT
	" AND" NOTHING_ELSE_NEEDS_IT,
	TEXTOID, OIDOID, OIDOID, NAMEOID);

static IdemQuery select_missing_usage = IDEM_QUERY(
	"SELECT FROM pg_catalog.pg_namespace n WHERE n.oid = $1 AND NOT EXISTS"
	" (SELECT FROM pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) g"
	" WHERE g.grantee IN (0, $2) AND g.privilege_type = 'USAGE')",
	OIDOID, OIDOID);


/* The arguments of both functions */
typedef struct AccessRequest
{
	Oid			role;
	char	   *role_name;
	Datum		role_name_datum;	/* name */
	Datum		capability;		/* text */
	Datum		tenant_id;		/* text */
} AccessRequest;

static AccessRequest
take_arguments(IdemCall *call)
{
	AccessRequest request;
	Name		name = palloc0(sizeof(NameData));

	request.role = idem_arg_role(call, 0);
	request.role_name = GetUserNameFromId(request.role, false);
	namestrcpy(name, request.role_name);
	request.role_name_datum = NameGetDatum(name);

	request.capability = idem_arg_key(call, 1);
	if (!access_knows(call, TextDatumGetCString(request.capability)))
		idem_bad_argument(call, 1, psprintf("The capabilities are %s.",
											access_capabilities(call)));
	request.tenant_id = idem_arg_key(call, 2);
	return request;
}

/* Raise 40001 if the transaction's snapshot misses a row of idem_access */
static void
demand_current(Oid relid)
{
	Relation	table = table_open(relid, NoLock);
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(table, latest, 0, NULL);
	TupleTableSlot *slot = table_slot_create(table, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
		idem_demand_visible(table, slot);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(latest);
	table_close(table, NoLock);
}

/*
 * Let nobody else change access until this transaction ends: what one takes
 * away depends on what the others have given.  False: somebody else is at it,
 * and the wait is over.
 */
static bool
lock_access(IdemCall *call)
{
	Oid			relid = relation_demand(call->house, "table", "idem_access");
	int			pause_ms = 1;

	while (!ConditionalLockRelationOid(relid, ShareRowExclusiveLock))
	{
		if (!idem_pause(call, &pause_ms))
			return false;
	}
	if (IsolationUsesXactSnapshot())
		demand_current(relid);
	return true;
}

/* Run a GRANT or REVOKE */
static void
run_utility(const char *sql)
{
	int			rc = SPI_execute(sql, false, 0);

	if (rc != SPI_OK_UTILITY)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
}

/* The list of functions or views that a statement found; NULL if it is empty */
static char *
objects_found(IdemCall *call, IdemQuery *query, const NullableDatum *args)
{
	NullableDatum list;

	(void) idem_run(call, query, args);
	list = idem_result(call, 0, 1);
	return list.isnull ? NULL : TextDatumGetCString(list.value);
}

/* Grant what the role lacks for a capability; false: nothing */
static bool
grant_missing(IdemCall *call, const AccessRequest *request)
{
	NullableDatum nsp = IDEM_VALUE(ObjectIdGetDatum(call->house->nspoid));
	NullableDatum role = IDEM_VALUE(ObjectIdGetDatum(request->role));
	char	   *grantee = pstrdup(quote_identifier(request->role_name));
	NullableDatum args[] = {IDEM_VALUE(request->capability), nsp, role};
	char	   *functions;
	char	   *views;
	bool		usage;

	functions = objects_found(call, &select_missing_functions, args);
	if (functions != NULL)
		run_utility(psprintf("GRANT EXECUTE ON ROUTINE %s TO %s", functions, grantee));

	views = objects_found(call, &select_missing_views, args);
	if (views != NULL)
		run_utility(psprintf("GRANT SELECT ON %s TO %s", views, grantee));

	usage = idem_run(call, &select_missing_usage, (NullableDatum[]) {nsp, role}) > 0;
	if (usage)
		run_utility(psprintf("GRANT USAGE ON SCHEMA %s TO %s", call->house->schema, grantee));

	return functions != NULL || views != NULL || usage;
}

/*
 * idem_allow(role, capability, tenant_id) -> outcome
 *
 * Note that a role has a capability for a tenant, and grant what it needs.
 */
PG_FUNCTION_INFO_V1(idem_allow);
Datum
idem_allow(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	AccessRequest request = take_arguments(call);
	bool		inserted;
	bool		granted;

	if (!lock_access(call))
		return idem_leave(call, "in_progress");

	idem_run(call, &delete_left_behind, (NullableDatum[]) {
		IDEM_VALUE(request.role_name_datum),
		IDEM_VALUE(ObjectIdGetDatum(call->house->nspoid)),
		IDEM_VALUE(ObjectIdGetDatum(request.role))
	});
	inserted = idem_run(call, &insert_access, (NullableDatum[]) {
		IDEM_VALUE(request.role_name_datum),
		IDEM_VALUE(request.capability),
		IDEM_VALUE(request.tenant_id)
	}) > 0;
	granted = grant_missing(call, &request);

	return idem_leave(call, inserted || granted ? "allowed" : "duplicate");
}

/* Revoke what nothing needs any more that the role is allowed */
static void
revoke_needless(IdemCall *call, const AccessRequest *request)
{
	NullableDatum args[] = {
		IDEM_VALUE(request->capability),
		IDEM_VALUE(ObjectIdGetDatum(call->house->nspoid)),
		IDEM_VALUE(ObjectIdGetDatum(request->role)),
		IDEM_VALUE(request->role_name_datum)
	};
	char	   *grantee = pstrdup(quote_identifier(request->role_name));
	char	   *views = objects_found(call, &select_needless_views, args);
	char	   *functions = objects_found(call, &select_needless_functions, args);

	if (views != NULL)
		run_utility(psprintf("REVOKE SELECT ON %s FROM %s", views, grantee));
	if (functions != NULL)
		run_utility(psprintf("REVOKE EXECUTE ON ROUTINE %s FROM %s", functions, grantee));
}

/*
 * idem_disallow(role, capability, tenant_id) -> outcome
 *
 * Take back what idem_allow gave.
 */
PG_FUNCTION_INFO_V1(idem_disallow);
Datum
idem_disallow(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	AccessRequest request = take_arguments(call);

	if (!lock_access(call))
		return idem_leave(call, "in_progress");

	if (idem_run(call, &delete_access, (NullableDatum[]) {
		IDEM_VALUE(request.role_name_datum),
		IDEM_VALUE(request.capability),
		IDEM_VALUE(request.tenant_id)
	}) == 0)
		return idem_leave(call, "duplicate");

	revoke_needless(call, &request);
	return idem_leave(call, "removed");
}
