/*-------------------------------------------------------------------------
 * hook_call.c
 *	  Call a hook, and make of its failure what was asked for.
 *
 * A hook that records may fail as it likes: it runs behind a savepoint, and
 * the fact that set it off stays.  Whose rights it has, and what it may not
 * do, is told in deputy.c.
 *-------------------------------------------------------------------------
 */
#include "deputy.h"
#include "hook.h"
#include "try.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

/* Does it take one jsonb, and return at most one value? */
static bool
has_right_shape(Oid function)
{
	Oid		   *argtypes;
	int			nargs;

	if (!deputy_fits(function, InvalidOid))
		return false;
	(void) get_func_signature(function, &argtypes, &nargs);
	return nargs == 1 && argtypes[0] == JSONBOID;
}

void
hook_check_function(Oid function, Oid role)
{
	if (!has_right_shape(function))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function %s cannot be a hook", format_procedure(function)),
				 errdetail("A hook is an existing function of one argument of type jsonb that returns no set.")));
	deputy_check_right(function, format_procedure(function), role);
}

/* Error context callback */
static void
name_hook(void *arg)
{
	const Hook *hook = arg;

	errcontext("hook of %s.%s", hook->entity, hook->to_state);
}

void
hook_call(const Hook *hook, const HookNote *note)
{
	ErrorContextCallback where = {error_context_stack, name_hook, unconstify(Hook *, hook)};
	Deputy		deputy = {hook->role, hook->function, InvalidOid, false};

	error_context_stack = &where;
	idem_step_outside();
	CommandCounterIncrement();
	(void) deputy_call(&deputy, 1, &note->row);
	idem_step_inside();
	error_context_stack = where.previous;
}


/* ---------- behind a savepoint ---------- */

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

typedef struct Trial
{
	const Hook *hook;
	const HookNote *note;
} Trial;

static void
call_on_trial(void *arg)
{
	const Trial *trial = arg;

	hook_call(trial->hook, trial->note);
}

ErrorData *
hook_try(const Hook *hook, const HookNote *note)
{
	Trial		trial = {hook, note};
	ErrorData  *error = idem_catch(call_on_trial, &trial);

	if (error != NULL && must_be_raised(error))
		ReThrowError(error);
	return error;
}
