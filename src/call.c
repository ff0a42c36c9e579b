/*-------------------------------------------------------------------------
 * call.c
 *	  The door: how a call enters, what it may do inside, how it leaves.
 *
 * The functions of the API are ordinary ones: not SECURITY DEFINER, no SET
 * clause.  The caller needs EXECUTE; here at the door his rights for the
 * tenant are checked, then the call becomes the extension's owner, as
 * ri_triggers.c becomes a table's.  Before the first statement search_path is
 * pinned in a GUC nest level of its own: a role that may create a schema could
 * otherwise plant an operator there and have it run with the owner's rights.
 * An error undoes all of it: (sub)transaction abort restores the user, the
 * settings and the depth below.
 *
 * Schema and owner come from the called function's pg_proc row and are kept
 * per function and per schema (a "house") until an invalidation says that the
 * function or the schema changed or went; the plans of a house go with it.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "call.h"
#include "hook.h"
#include "look.h"
#include "open_call.h"

#include "access/htup_details.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "jit/jit.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "optimizer/cost.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

static HTAB *houses = NULL;
static HTAB *functions = NULL;
static bool stale = false;		/* something in them is to be read again */
static int	nqueries = 0;		/* numbers given to IdemQuery.slot */


/* ---------- what is known of functions and houses ---------- */

/* Syscache callback: a pg_proc row changed (0: any) */
static void
forget_functions(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
				 uint32 hashvalue)
{
	HASH_SEQ_STATUS scan;
	IdemFunction *function;

	hash_seq_init(&scan, functions);
	while ((function = hash_seq_search(&scan)) != NULL)
	{
		if (hashvalue != 0 && hashvalue != function->hashvalue)
			continue;
		function->valid = false;
		function->changed = true;
		stale = true;
	}
}

/* Syscache callback: a schema was renamed or dropped, or may have been */
static void
doubt_houses(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
				 uint32 hashvalue)
{
	HASH_SEQ_STATUS scan;
	IdemHouse  *house;

	hash_seq_init(&scan, houses);
	while ((house = hash_seq_search(&scan)) != NULL)
	{
		if (hashvalue != 0 && hashvalue != house->hashvalue)
			continue;
		house->checked = false;
		stale = true;
	}
}

/* Free the plans and the name of a house */
static void
empty_house(IdemHouse *house)
{
	for (int i = 0; i < house->nplans; i++)
	{
		if (house->plans[i] != NULL)
			SPI_freeplan(house->plans[i]);
	}
	if (house->plans != NULL)
		pfree(house->plans);
	house->plans = NULL;
	house->nplans = 0;
	if (house->schema != NULL)
		pfree(house->schema);
	house->schema = NULL;
}

/* Free what a function's entry points to */
static void
empty_function(IdemFunction *function)
{
	for (int i = 0; i < function->nargs; i++)
		pfree(function->argnames[i]);
	if (function->argnames != NULL)
		pfree(function->argnames);
	if (function->result != NULL)
		FreeTupleDesc(function->result);
}

/* Is any function of this house known? */
static bool
house_is_used(const IdemHouse *house)
{
	HASH_SEQ_STATUS scan;
	IdemFunction *function;

	hash_seq_init(&scan, functions);
	while ((function = hash_seq_search(&scan)) != NULL)
	{
		if (function->house == house)
		{
			hash_seq_term(&scan);
			return true;
		}
	}
	return false;
}

/* Drop what is stale.  Only while no call is open: it may stand on it. */
static void
sweep_caches(void)
{
	HASH_SEQ_STATUS scan;
	IdemFunction *function;
	IdemHouse  *house;

	stale = false;

	hash_seq_init(&scan, functions);
	while ((function = hash_seq_search(&scan)) != NULL)
	{
		if (function->valid)
			continue;
		empty_function(function);
		hash_search(functions, &function->oid, HASH_REMOVE, NULL);
	}

	hash_seq_init(&scan, houses);
	while ((house = hash_seq_search(&scan)) != NULL)
	{
		if (!house_is_used(house))
		{
			empty_house(house);
			hash_search(houses, &house->nspoid, HASH_REMOVE, NULL);
		}
		else if (!house->checked)
			empty_house(house);
	}
}

/* Read the name of a house's schema */
static void
name_house(IdemHouse *house)
{
	char	   *name = get_namespace_name(house->nspoid);

	if (name == NULL)
		elog(ERROR, "cache lookup failed for namespace %u", house->nspoid);
	house->checked = true;
	house->schema = MemoryContextStrdup(TopMemoryContext, quote_identifier(name));
}

static IdemHouse *
find_house(Oid nspoid, Oid owner)
{
	uint32		hashvalue = GetSysCacheHashValue1(NAMESPACEOID, ObjectIdGetDatum(nspoid));
	bool		found;
	IdemHouse  *house = hash_search(houses, &nspoid, HASH_ENTER, &found);

	if (!found)
	{
		house->hashvalue = hashvalue;
		house->checked = false;
		house->schema = NULL;
		house->plans = NULL;
		house->nplans = 0;
	}
	house->owner = owner;
	if (house->schema == NULL)
		name_house(house);
	return house;
}

/* The row type that a function returns; NULL if it returns no row */
static TupleDesc
read_result(HeapTuple proc)
{
	Oid			rettype = ((Form_pg_proc) GETSTRUCT(proc))->prorettype;
	TupleDesc	desc;

	if (rettype == RECORDOID)
	{
		desc = build_function_result_tupdesc_t(proc);
		return desc ? BlessTupleDesc(desc) : NULL;
	}
	if (get_typtype(rettype) == TYPTYPE_COMPOSITE)
		return lookup_rowtype_tupdesc_copy(rettype, -1);
	return NULL;
}

/* Read the names of a function's input arguments */
static void
read_arguments(IdemFunction *function, HeapTuple proc)
{
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			nall = get_func_arg_info(proc, &types, &names, &modes);
	int			nargs = ((Form_pg_proc) GETSTRUCT(proc))->pronargs;
	char	  **argnames = palloc(sizeof(char *) * Max(nargs, 1));

	for (int i = 0; i < nargs; i++)
		argnames[i] = pstrdup(names != NULL && i < nall ? names[i] : "?");
	function->nargs = nargs;
	function->argnames = argnames;
	function->takes_tenant = nargs > 0 && strcmp(argnames[0], "tenant_id") == 0;
}

/*
 * What is known of a function of ours, by its OID.
 */
IdemFunction *
idem_function(Oid function_oid)
{
	IdemFunction *function;
	HeapTuple	proc;
	Form_pg_proc form;
	MemoryContext old;
	bool		found;

	if (stale && idem_calls_open() == 0)
		sweep_caches();

	function = hash_search(functions, &function_oid, HASH_FIND, NULL);
	if (function != NULL && function->valid)
	{
		if (function->house->schema == NULL)
			name_house(function->house);
		return function;
	}

	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(function_oid));
	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for function %u", function_oid);
	form = (Form_pg_proc) GETSTRUCT(proc);

	/* an invalid entry is left standing for the calls that are still in it */
	function = hash_search(functions, &function_oid, HASH_ENTER, &found);
	function->valid = false;
	function->changed = false;	/* what is read below may bring changes in */
	function->nargs = 0;
	function->argnames = NULL;
	function->result = NULL;
	function->hashvalue = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function_oid));
	function->name = form->proname;
	function->house = find_house(form->pronamespace, form->proowner);

	old = MemoryContextSwitchTo(TopMemoryContext);
	read_arguments(function, proc);
	function->result = read_result(proc);
	MemoryContextSwitchTo(old);

	function->valid = !function->changed;
	ReleaseSysCache(proc);
	return function;
}

/* The house that a function of ours stands in */
IdemHouse *
idem_house(Oid function_oid)
{
	return idem_function(function_oid)->house;
}


/* ---------- enter ---------- */

static IdemCall *
make_call(FunctionCallInfo fcinfo)
{
	IdemCall   *call = palloc0(sizeof(IdemCall));

	call->fcinfo = fcinfo;
	call->function = idem_function(fcinfo->flinfo->fn_oid);
	call->house = call->function->house;
	call->context = CurrentMemoryContext;
	call->now = GetCurrentTimestamp();
	call->deadline = TimestampTzPlusMilliseconds(call->now, idem_wait_ms);
	return call;
}

/*
 * Become the owner of the extension, until idem_leave or an error.
 */
void
idem_become_owner(IdemCall *call)
{
	SetUserIdAndSecContext(call->house->owner,
						   call->caller_context |
						   SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
}

/*
 * Become whoever called again, in a function that acts with his rights.
 */
void
idem_become_caller(IdemCall *call)
{
	SetUserIdAndSecContext(call->caller, call->caller_context);
}

/* Make the result row, if the function returns one */
static void
make_result(IdemCall *call)
{
	TupleDesc	result = call->function->result;

	if (result == NULL)
		return;
	call->values = palloc0(sizeof(Datum) * result->natts);
	call->nulls = palloc(sizeof(bool) * result->natts);
	idem_clear(call);
}

static IdemCall *
enter(FunctionCallInfo fcinfo, bool fact)
{
	IdemCall   *call = make_call(fcinfo);

	call->fact = fact;
	if (call->function->takes_tenant)
		call->tenant_id = fact ? idem_arg_fact_key(call, 0) : idem_arg_key(call, 0);

	GetUserIdAndSecContext(&call->caller, &call->caller_context);
	access_check(call);
	idem_become_owner(call);
	open_call_push(true, NULL);
	make_result(call);
	return call;
}

/*
 * Enter a call that may be refused: it waits for others no longer than `wait`.
 */
IdemCall *
idem_enter(FunctionCallInfo fcinfo)
{
	return enter(fcinfo, false);
}

/*
 * Enter a call that tells what already happened: it waits until it can be
 * recorded.
 */
IdemCall *
idem_enter_fact(FunctionCallInfo fcinfo)
{
	return enter(fcinfo, true);
}

/*
 * Enter a request that acts on a table of the caller's with the caller's own
 * rights: EXECUTE opens it, and whatever it does he could have done himself.
 * So it is no call of the API to the extension's own tables.
 */
IdemCall *
idem_enter_as_caller(FunctionCallInfo fcinfo)
{
	IdemCall   *call = make_call(fcinfo);

	GetUserIdAndSecContext(&call->caller, &call->caller_context);
	open_call_push(false, NULL);
	make_result(call);
	return call;
}

/*
 * For a trigger that needs a statement of ours: no rights to check, since the
 * statement that fired it was allowed.  It counts as open, so that nothing it
 * stands on is swept away, but is inside the API only if it was fired there.
 */
IdemCall *
idem_enter_trigger(FunctionCallInfo fcinfo)
{
	IdemCall   *call = make_call(fcinfo);

	call->fact = true;
	GetUserIdAndSecContext(&call->caller, &call->caller_context);
	idem_become_owner(call);
	open_call_push(idem_inside_call(), idem_current_reason());
	return call;
}

/*
 * Enter once more for what a call still has to write after it has left: as the
 * owner, inside the API.  idem_leave_trigger leaves.
 */
IdemCall *
idem_reenter(FunctionCallInfo fcinfo, Datum tenant_id)
{
	IdemCall   *call = make_call(fcinfo);

	call->fact = true;
	call->tenant_id = tenant_id;
	GetUserIdAndSecContext(&call->caller, &call->caller_context);
	idem_become_owner(call);
	open_call_push(true, NULL);
	return call;
}

/*
 * While a user's function runs, no call is open: what it does with SQL of its
 * own is not the API's.  An error comes back in by itself.
 */
void
idem_step_outside(void)
{
	open_call_push(false, NULL);
}

void
idem_step_inside(void)
{
	Assert(!idem_inside_call());
	open_call_pop();
}

/* Change a setting until the nest level of settings that is open ends */
void
idem_pin(const char *setting, const char *value)
{
	(void) set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
}

/*
 * Open SPI and pin what plans depend on.  seqscan is off because our kept plans
 * address rows by ctid or by their key, and a plan made while a table had one
 * page would otherwise read that table from end to end ever after; for the same
 * reason tidscan is on.  JIT is off, since where a sequential scan is all there
 * is, its being off makes the plan look so dear that it is compiled at each call.
 */
void
idem_connect_as_caller(IdemCall *call)
{
	if (call->connected)
		return;

	call->guc_level = NewGUCNestLevel();
	idem_pin("enable_seqscan", "off");
	if (!enable_tidscan)
		idem_pin("enable_tidscan", "on");
	if (jit_enabled)
		idem_pin("jit", "off");
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	MemoryContextSwitchTo(call->context);
	call->connected = true;
}

/*
 * Give the caller his settings back, for a statement that is planned: its
 * triggers find what they would find if he had run it.
 */
void
idem_unpin_plans(IdemCall *call)
{
	AtEOXact_GUC(true, call->guc_level);
	call->guc_level = NewGUCNestLevel();
}

/*
 * Open SPI for statements that run as the owner: with search_path pinned, too.
 */
void
idem_connect(IdemCall *call)
{
	if (call->pinned)
		return;

	idem_connect_as_caller(call);
	idem_pin("search_path", "pg_catalog, pg_temp");
	call->pinned = true;
}


/* ---------- statements ---------- */

/* The statement's text with the house's schema in it */
char *
idem_statement_text(const IdemHouse *house, const char *sql)
{
	static const char mark[] = "@schema@";
	StringInfoData text;
	const char *next;

	initStringInfo(&text);
	while ((next = strstr(sql, mark)) != NULL)
	{
		appendBinaryStringInfo(&text, sql, next - sql);
		appendStringInfoString(&text, house->schema);
		sql = next + strlen(mark);
	}
	appendStringInfoString(&text, sql);
	return text.data;
}

/* Make room for a plan in the house */
static void
reserve_slot(IdemHouse *house, IdemQuery *query)
{
	int			nplans;

	if (query->slot == 0)
		query->slot = ++nqueries;
	if (query->slot < house->nplans)
		return;

	nplans = query->slot + 16;
	if (house->plans == NULL)
		house->plans = MemoryContextAllocZero(TopMemoryContext, sizeof(SPIPlanPtr) * nplans);
	else
	{
		house->plans = repalloc(house->plans, sizeof(SPIPlanPtr) * nplans);
		memset(house->plans + house->nplans, 0,
			   sizeof(SPIPlanPtr) * (nplans - house->nplans));
	}
	house->nplans = nplans;
}

/*
 * The kept plan of a statement in this house.  It is generic from the start:
 * none of ours gets better by knowing its parameters.
 */
static SPIPlanPtr
find_plan(IdemHouse *house, IdemQuery *query)
{
	SPIPlanPtr	plan;

	reserve_slot(house, query);
	plan = house->plans[query->slot];
	if (plan != NULL)
		return plan;

	plan = SPI_prepare_cursor(idem_statement_text(house, query->sql), query->nargs,
							  query->argtypes, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", query->sql,
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep the plan of \"%s\"", query->sql);
	house->plans[query->slot] = plan;
	return plan;
}

/*
 * Run a statement as the owner; returns the number of rows processed, whose
 * values idem_result gets.
 */
uint64
idem_run(IdemCall *call, IdemQuery *query, const NullableDatum *args)
{
	Datum		values[IDEM_MAX_ARGS];
	char		nulls[IDEM_MAX_ARGS];
	int			rc;

	idem_connect(call);
	for (int i = 0; i < query->nargs; i++)
	{
		values[i] = args[i].value;
		nulls[i] = args[i].isnull ? 'n' : ' ';
	}

	rc = SPI_execute_plan(find_plan(call->house, query), values, nulls, false, 0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", query->sql, SPI_result_code_string(rc));

	/* SPI leaves us in its own memory, which lives as long as the connection */
	MemoryContextSwitchTo(call->context);
	return SPI_processed;
}

/*
 * A column (from 1) of a row (from 0) that the last statement returned.  It
 * lives until the call leaves or, without idem_put, until SPI is closed.
 */
NullableDatum
idem_result(IdemCall *call, uint64 row, int column)
{
	NullableDatum result;

	if (!call->connected || SPI_tuptable == NULL || row >= SPI_processed)
		elog(ERROR, "statement returned no row " UINT64_FORMAT, row);
	result.value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
								 column, &result.isnull);
	return result;
}


/* ---------- leave ---------- */

/* Set a column (from 0) of the result row */
void
idem_put(IdemCall *call, int column, Datum value)
{
	Assert(column < call->function->result->natts);
	call->values[column] = value;
	call->nulls[column] = false;
}

void
idem_put_nullable(IdemCall *call, int column, NullableDatum value)
{
	Assert(column < call->function->result->natts);
	call->values[column] = value.value;
	call->nulls[column] = value.isnull;
}

void
idem_put_text(IdemCall *call, int column, const char *value)
{
	idem_put(call, column, CStringGetTextDatum(value));
}

/* Make the whole result row NULL again */
void
idem_clear(IdemCall *call)
{
	memset(call->nulls, true, sizeof(bool) * call->function->result->natts);
}

static void
disconnect(IdemCall *call)
{
	if (!call->connected)
		return;
	SPI_finish();
	MemoryContextSwitchTo(call->context);
	AtEOXact_GUC(true, call->guc_level);
	call->connected = false;
	call->pinned = false;
}

/* Give back whatever entering took, then run the hooks of what was done */
static void
leave(IdemCall *call)
{
	idem_unlock_names(call);
	disconnect(call);
	SetUserIdAndSecContext(call->caller, call->caller_context);
	open_call_pop();
	hook_run_noted(call->fcinfo);
}

void
idem_leave_trigger(IdemCall *call)
{
	disconnect(call);
	SetUserIdAndSecContext(call->caller, call->caller_context);
	open_call_pop();
}

/*
 * Leave with the result row as it was put together, its first column being
 * the outcome.
 */
Datum
idem_leave(IdemCall *call, const char *outcome)
{
	HeapTuple	tuple;

	MemoryContextSwitchTo(call->context);
	idem_put_text(call, 0, outcome);

	/* formed before SPI is closed: a column may point into its memory */
	tuple = heap_form_tuple(call->function->result, call->values, call->nulls);
	leave(call);
	return HeapTupleGetDatum(tuple);
}

/* Leave a function that returns one value, which lives in call->context */
Datum
idem_leave_value(IdemCall *call, Datum value)
{
	leave(call);
	return value;
}

Datum
idem_leave_void(IdemCall *call)
{
	leave(call);
	PG_RETURN_VOID();
}

/*
 * Prepare to return a set: rows are put together like single ones and sent
 * off by idem_emit.
 */
void
idem_begin_rows(IdemCall *call)
{
	ReturnSetInfo *info = (ReturnSetInfo *) call->fcinfo->resultinfo;
	MemoryContext old;

	if (info == NULL || !IsA(info, ReturnSetInfo) ||
		(info->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));

	old = MemoryContextSwitchTo(info->econtext->ecxt_per_query_memory);
	call->rows = tuplestore_begin_heap((info->allowedModes & SFRM_Materialize_Random) != 0,
									   false, work_mem);
	info->returnMode = SFRM_Materialize;
	info->setResult = call->rows;
	info->setDesc = CreateTupleDescCopy(call->function->result);
	MemoryContextSwitchTo(old);
}

/* Send off one row of a set and start the next */
void
idem_emit(IdemCall *call)
{
	tuplestore_putvalues(call->rows, call->function->result, call->values, call->nulls);
	idem_clear(call);
}

Datum
idem_leave_rows(IdemCall *call)
{
	leave(call);
	return (Datum) 0;
}


/*
 * Called once, when the library is loaded.
 */
void
idem_init_call(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(IdemHouse);
	houses = hash_create("idem houses", 4, &info, HASH_ELEM | HASH_BLOBS);
	info.entrysize = sizeof(IdemFunction);
	functions = hash_create("idem functions", 64, &info, HASH_ELEM | HASH_BLOBS);

	CacheRegisterSyscacheCallback(PROCOID, forget_functions, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, doubt_houses, (Datum) 0);
	idem_init_open_call();
}
