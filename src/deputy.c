/*-------------------------------------------------------------------------
 * deputy.c
 *	  A user's function, called as the role that registered it.
 *
 * Guards of moves and hooks are functions that somebody named once and that
 * run whenever anybody moves a row.  They must not run with the rights of
 * whoever happens to move it, who never agreed to them, nor with the
 * extension's.  So they run with the rights of their own role alone, with
 * search_path pinned (a caller could plant what they name), and what they
 * change of the session's settings is undone.
 *
 * Rights can also be stolen later: a deferred trigger that is queued now runs
 * at commit, as the session's user.  So they run as a security-restricted
 * operation, which refuses to queue one; temporary tables, prepared
 * statements, cursors that outlive the transaction and LISTEN are refused too.
 * Only where the role has the session's rights anyway, and the function is there
 * to write, may it do without.  It is what logical replication does when it
 * applies changes as the owners of tables.
 *
 * Role and function stand by name and are looked up at each call: what was
 * dropped and made anew since by somebody else must not run, and a right taken
 * away is gone.
 *-------------------------------------------------------------------------
 */
#include "deputy.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/fmgrprotos.h"
#include "utils/syscache.h"


/* ---------- role and function ---------- */

bool
deputy_fits(Oid function, Oid result)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		fits;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	fits = form->prokind == PROKIND_FUNCTION && !form->proretset &&
		(!OidIsValid(result) || form->prorettype == result);
	ReleaseSysCache(tuple);
	return fits;
}

void
deputy_check_right(Oid function, const char *name, Oid role)
{
	if (idem_function_aclcheck(function, role, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", name),
				 errdetail("It runs as role \"%s\", which registers it and needs EXECUTE on it.",
						   GetUserNameFromId(role, false))));
}

static Oid
deputy_role(const Deputy *deputy)
{
	Oid			role = deputy->role == NULL ? InvalidOid : get_role_oid(deputy->role, true);

	if (!OidIsValid(role))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 deputy->role == NULL ?
				 errmsg("function %s has no role to run as", deputy->function) :
				 errmsg("role \"%s\" does not exist", deputy->role),
				 errdetail("Function %s runs as the role that registered it.", deputy->function),
				 errhint("Register it again.")));
	return role;
}

/* Find the function with the rights of its role, and check that it may be called */
static Oid
deputy_function(const Deputy *deputy, Oid role)
{
	Datum		name = CStringGetDatum(deputy->function);
	Oid			function = DatumGetObjectId(DirectFunctionCall1(regprocedurein, name));

	if (!deputy_fits(function, deputy->result))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("function %s is no longer the one that was registered", deputy->function),
				 OidIsValid(deputy->result) ?
				 errdetail("It must be a function that returns %s.", format_type_be(deputy->result)) :
				 errdetail("It must be a function that returns no set.")));
	deputy_check_right(function, deputy->function, role);
	return function;
}


/* ---------- the call ---------- */

/* Would the role gain anything by what it leaves to be done later? */
static bool
has_session_rights(Oid role, Oid caller)
{
	return has_privs_of_role(role, caller) &&
		has_privs_of_role(role, GetOuterUserId()) &&
		has_privs_of_role(role, GetSessionUserId());
}

/* What must not be done on behalf of this role */
static int
security_context(const Deputy *deputy, Oid role, Oid caller, int outer_context)
{
	int			context = (outer_context & SECURITY_RESTRICTED_OPERATION) |
		SECURITY_LOCAL_USERID_CHANGE;

	if (deputy->restricted || !has_session_rights(role, caller))
		context |= SECURITY_RESTRICTED_OPERATION;
	return context;
}

static NullableDatum
invoke(Oid function, int nargs, const Datum *args)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	info;
	NullableDatum result;

	InvokeFunctionExecuteHook(function);
	fmgr_info(function, &info);
	InitFunctionCallInfoData(*fcinfo, &info, nargs, InvalidOid, NULL, NULL);
	for (int i = 0; i < nargs; i++)
		fcinfo->args[i] = IDEM_VALUE(args[i]);
	result.value = FunctionCallInvoke(fcinfo);
	result.isnull = fcinfo->isnull;
	return result;
}

/* Error context callback */
static void
say_who_is_called(void *arg)
{
	const Deputy *deputy = arg;

	errcontext("function %s called as role \"%s\"", deputy->function,
			   deputy->role == NULL ? "" : deputy->role);
}

NullableDatum
deputy_call(const Deputy *deputy, int nargs, const Datum *args)
{
	ErrorContextCallback context = {
		error_context_stack, say_who_is_called, unconstify(Deputy *, deputy)
	};
	NullableDatum answer;
	Oid			role;
	Oid			caller;
	int			outer_context;
	int			guc_level;

	error_context_stack = &context;
	role = deputy_role(deputy);
	GetUserIdAndSecContext(&caller, &outer_context);
	SetUserIdAndSecContext(role, security_context(deputy, role, caller, outer_context));
	guc_level = NewGUCNestLevel();
	idem_pin("search_path", "pg_catalog, pg_temp");

	answer = invoke(deputy_function(deputy, role), nargs, args);

	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(caller, outer_context);
	error_context_stack = context.previous;
	return answer;
}
