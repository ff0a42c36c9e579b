/*-------------------------------------------------------------------------
 * hook_call.c
 *	  Call a user's function, as the role that registered it.
 *
 * Whoever calls the API runs what others have registered, and must lose
 * nothing by it.  So the function runs with the rights of its own role alone,
 * with search_path pinned (a caller could plant what it names), and what it
 * changes of the session's settings is undone.
 *
 * Rights can also be stolen later: a deferred trigger that is queued now runs
 * at commit, as the session's user.  So unless the hook's role has the
 * session's rights anyway, the function runs as a security-restricted
 * operation, which refuses to queue one; temporary tables, prepared
 * statements, cursors that outlive the transaction and LISTEN are refused too.
 * It is what logical replication does when it applies changes as the owners of
 * tables.
 *
 * Role and function stand by name and are looked up at each call: what was
 * dropped and made anew since by somebody else must not run.
 *-------------------------------------------------------------------------
 */
#include "hook.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/fmgrprotos.h"
#include "utils/regproc.h"
#include "utils/resowner.h"
#include "utils/syscache.h"


/* ---------- the function ---------- */

/* Does it take one jsonb, and return at most one value? */
static bool
has_right_shape(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		right;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	right = form->prokind == PROKIND_FUNCTION && !form->proretset &&
		form->pronargs == 1 && form->proargtypes.values[0] == JSONBOID;
	ReleaseSysCache(tuple);
	return right;
}

void
hook_check_function(Oid function, Oid role)
{
	if (!has_right_shape(function))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s cannot be a hook", format_procedure(function)),
				 errdetail("A hook is an existing function of one argument of type jsonb that returns no set.")));
	if (idem_function_aclcheck(function, role, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", format_procedure(function)),
				 errdetail("A hook runs as role \"%s\", which needs EXECUTE on it.",
						   GetUserNameFromId(role, false))));
}

/* Run it; what it returns is nobody's business */
static void
invoke(Oid function, Datum row)
{
	LOCAL_FCINFO(fcinfo, 1);
	FmgrInfo	flinfo;

	InvokeFunctionExecuteHook(function);
	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = row;
	fcinfo->args[0].isnull = false;
	(void) FunctionCallInvoke(fcinfo);
}


/* ---------- the call ---------- */

/* What must not be done on behalf of this role */
static int
security_context(Oid role, Oid caller, int outer_context)
{
	int			context = (outer_context & SECURITY_RESTRICTED_OPERATION) |
		SECURITY_LOCAL_USERID_CHANGE;

	if (!has_privs_of_role(role, caller) ||
		!has_privs_of_role(role, GetOuterUserId()) ||
		!has_privs_of_role(role, GetSessionUserId()))
		context |= SECURITY_RESTRICTED_OPERATION;
	return context;
}

/* Error context callback */
static void
name_hook(void *arg)
{
	const Hook *hook = arg;

	errcontext("hook %s of %s.%s", hook->function, hook->entity, hook->to_state);
}

void
hook_call(const Hook *hook, const HookNote *note, Oid caller)
{
	ErrorContextCallback where;
	Oid			outer;
	int			outer_context;
	int			guc_level;
	Oid			role;
	Oid			function;

	where.callback = name_hook;
	where.arg = unconstify(Hook *, hook);
	where.previous = error_context_stack;
	error_context_stack = &where;

	GetUserIdAndSecContext(&outer, &outer_context);
	idem_step_outside();
	guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	role = get_role_oid(hook->role, false);
	SetUserIdAndSecContext(role, security_context(role, caller, outer_context));
	function = DatumGetObjectId(DirectFunctionCall1(regprocedurein,
													CStringGetDatum(hook->function)));
	hook_check_function(function, role);
	CommandCounterIncrement();
	invoke(function, note->row);

	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(outer, outer_context);
	idem_step_inside();
	error_context_stack = where.previous;
}

/*
 * An error that says nothing of the hook: somebody wants the statement to
 * end, or the transaction to begin again.
 */
static bool
must_be_raised(const ErrorData *error)
{
	switch (error->sqlerrcode)
	{
		case ERRCODE_QUERY_CANCELED:
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
			return true;
		case ERRCODE_T_R_SERIALIZATION_FAILURE:
			return IsolationUsesXactSnapshot();
		default:
			return false;
	}
}

ErrorData *
hook_try(const Hook *hook, const HookNote *note, Oid caller)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		hook_call(hook, note, caller);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	if (error != NULL && must_be_raised(error))
		ReThrowError(error);
	return error;
}
