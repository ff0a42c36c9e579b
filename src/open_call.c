/*-------------------------------------------------------------------------
 * open_call.c
 *	  The calls of the API that are open in this backend, as a stack.
 *
 * A trigger asks it whether a row is written by a call or by somebody's own
 * SQL, and history takes the reason from it.  Calls nest, since a hook or a
 * user's trigger calls the API again; an error ends as many as (sub)transaction
 * abort says, without touching the memory that went with them.
 *-------------------------------------------------------------------------
 */
#include "open_call.h"

#include "access/xact.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

/* Calls may nest: a hook or a user's trigger calls the API again */
#define IDEM_MAX_DEPTH 64

/* An open call, known without touching memory that an abort has freed */
typedef struct OpenCall
{
	int			nest_level;		/* transaction nest level at entry */
	const char *reason;			/* for history; lives as long as the call */
	bool		by_api;			/* not by a trigger outside of any call */
	int			attempt;		/* the depth of triggers that it is made at; -1: none */
} OpenCall;

static OpenCall open_calls[IDEM_MAX_DEPTH];
static int	depth = 0;


/* Is a call of the API open, at whatever depth? */
bool
idem_inside_call(void)
{
	return depth > 0 && open_calls[depth - 1].by_api;
}

/* The reason that the innermost call gave, for history; NULL: none */
const char *
idem_current_reason(void)
{
	return depth > 0 ? open_calls[depth - 1].reason : NULL;
}

/*
 * Give the reason that history shall note for the moves of this call.
 */
void
idem_because(IdemCall *call, NullableDatum reason)
{
	open_calls[depth - 1].reason = reason.isnull ? NULL :
		MemoryContextStrdup(call->context, TextDatumGetCString(reason.value));
}

/*
 * Note that a call is entered.
 */
void
open_call_push(bool by_api, const char *reason)
{
	if (depth >= IDEM_MAX_DEPTH)
		ereport(ERROR,
				(errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
				 errmsg("calls of idem are nested too deeply"),
				 errdetail("No more than %d calls can be open at once.", IDEM_MAX_DEPTH)));
	open_calls[depth].nest_level = GetCurrentTransactionNestLevel();
	open_calls[depth].by_api = by_api;
	open_calls[depth].reason = reason;
	open_calls[depth].attempt = -1;
	depth++;
}

/*
 * Note that the innermost call has left.
 */
void
open_call_pop(void)
{
	Assert(depth > 0);
	depth--;
}

/* How many calls are open */
int
idem_calls_open(void)
{
	return depth;
}


/* ---------- attempts ---------- */

static int
trigger_depth(void)
{
	return DatumGetInt32(OidFunctionCall0(F_PG_TRIGGER_DEPTH));
}

void
idem_begin_attempt(void)
{
	open_calls[depth - 1].attempt = trigger_depth();
}

void
idem_end_attempt(void)
{
	open_calls[depth - 1].attempt = -1;
}

/*
 * Was the running trigger fired by an attempt itself, and not by something that
 * other triggers of it do?
 */
bool
idem_is_attempt(void)
{
	return depth > 0 && open_calls[depth - 1].attempt >= 0 &&
		trigger_depth() == open_calls[depth - 1].attempt + 1;
}


/* ---------- the end of transactions ---------- */

/* Transaction callback: no call outlives its transaction */
static void
close_calls(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			depth = 0;
			break;
		default:
			break;
	}
}

/* Subtransaction callback: calls entered inside it went with it */
static void
close_sub_calls(SubXactEvent event, SubTransactionId sub pg_attribute_unused(),
				SubTransactionId parent pg_attribute_unused(),
				void *arg pg_attribute_unused())
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (depth > 0 &&
		   open_calls[depth - 1].nest_level >= GetCurrentTransactionNestLevel())
		depth--;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_open_call(void)
{
	RegisterXactCallback(close_calls, NULL);
	RegisterSubXactCallback(close_sub_calls, NULL);
}
