/*-------------------------------------------------------------------------
 * deputy.c
 *	  A user's function, called as the role that registered it.
 *
 * A machine's guards are functions that somebody named once and that run
 * whenever anybody moves a row.  They must not run with the rights of whoever
 * happens to move it, who never agreed to them, nor with the extension's.  So
 * they run as the role that registered them, in a security-restricted
 * operation, which keeps them from leaving anything behind that would run
 * later as somebody else; with a pinned search_path, lest that somebody choose
 * what they call.
 *
 * Role and function stand as names and are looked up anew each time: a dropped
 * role's rights pass to nobody, and a right taken away is gone.
 *-------------------------------------------------------------------------
 */
#include "deputy.h"

#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

typedef struct Deputy
{
	const char *role;
	const char *function;
} Deputy;

static Oid
deputy_role(const Deputy *deputy)
{
	Oid			role = deputy->role == NULL ? InvalidOid : get_role_oid(deputy->role, true);

	if (!OidIsValid(role))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("function %s has no role to run as", deputy->function),
				 deputy->role == NULL ?
				 errdetail("Nobody is known to have registered it.") :
				 errdetail("Role \"%s\", which registered it, does not exist.", deputy->role),
				 errhint("Register it again.")));
	return role;
}

/* Find the function with the rights of its role, and check that he may call it */
static Oid
deputy_function(const Deputy *deputy, Oid role, Oid result, int nargs, const Oid *argtypes)
{
	List	   *names = textToQualifiedNameList(cstring_to_text(deputy->function));
	Oid			function = LookupFuncName(names, nargs, argtypes, false);

	if (idem_function_aclcheck(function, role, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", deputy->function),
				 errdetail("Role \"%s\", which registered it, may not execute it any more.",
						   deputy->role)));
	if (get_func_rettype(function) != result)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("function %s must return %s", deputy->function, format_type_be(result)),
				 errdetail("It is no longer the function that was registered.")));
	return function;
}

static NullableDatum
call_function(Oid function, int nargs, const Datum *args)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	FmgrInfo	info;
	NullableDatum result;

	fmgr_info(function, &info);
	InitFunctionCallInfoData(*fcinfo, &info, nargs, InvalidOid, NULL, NULL);
	for (int i = 0; i < nargs; i++)
		fcinfo->args[i] = IDEM_VALUE(args[i]);
	result.value = FunctionCallInvoke(fcinfo);
	result.isnull = fcinfo->isnull;
	return result;
}

static void
say_who_is_called(void *arg)
{
	const Deputy *deputy = arg;

	errcontext("function %s called as role \"%s\"", deputy->function,
			   deputy->role == NULL ? "" : deputy->role);
}

/*
 * Call a function as the role that registered it; no argument is NULL.
 */
NullableDatum
deputy_call(const char *role, const char *function, Oid result,
			int nargs, const Oid *argtypes, const Datum *args)
{
	Deputy		deputy = {role, function};
	ErrorContextCallback context = {error_context_stack, say_who_is_called, &deputy};
	NullableDatum answer;
	Oid			role_oid;
	Oid			user;
	int			user_context;
	int			guc_level;

	error_context_stack = &context;
	role_oid = deputy_role(&deputy);
	GetUserIdAndSecContext(&user, &user_context);
	SetUserIdAndSecContext(role_oid,
						   (user_context & ~SECURITY_NOFORCE_RLS) |
						   SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);

	answer = call_function(deputy_function(&deputy, role_oid, result, nargs, argtypes), nargs, args);

	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(user, user_context);
	error_context_stack = context.previous;
	return answer;
}
