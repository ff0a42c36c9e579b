/*-------------------------------------------------------------------------
 * request_attempt.c
 *	  What the one who does a request's work may say of it, and what a human
 *	  may who finds it left behind.
 *
 * An attempt speaks for its request until another one takes over, even after
 * its lease ran out.  The danger is the attempt that does not know that it was
 * overtaken: what it says must not reach the row.  So each function here looks
 * at the row, locks it where there is something to write, and compares the
 * attempt with the one that is locked.  A takeover locks the same row: whoever
 * comes second sees what the first has done, and it is ID005 for the old
 * attempt or a replay for the new one.
 *
 * A repetition finds its words in the row already, and writes nothing.
 *-------------------------------------------------------------------------
 */
#include "request.h"

#include "utils/fmgrprotos.h"


/* ---------- who speaks ---------- */

/* Arguments by position, after the keys */
enum
{
	ARG_ATTEMPT = REQUEST_KEYS,
	ARG_DECISION = REQUEST_KEYS,
	ARG_RECOVERY_POINT, ARG_RECOVERY_STATE,
	ARG_LEASE = ARG_ATTEMPT + 1,
	ARG_RESPONSE = ARG_ATTEMPT + 1,
	ARG_STATUS, ARG_RETRYABLE
};

pg_noreturn static void
raise_not_found(const Datum *keys)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("key \"%s\" of scope \"%s\" does not exist",
					TextDatumGetCString(keys[2]), TextDatumGetCString(keys[1])),
			 errdetail("It was never begun, its transaction was rolled back, or it was swept after its ttl."),
			 errhint("Begin it with idem_begin_request().")));
}

pg_noreturn static void
raise_fenced(const Datum *keys)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_FENCED),
			 errmsg("this attempt at key \"%s\" of scope \"%s\" is not the current one",
					TextDatumGetCString(keys[2]), TextDatumGetCString(keys[1])),
			 errdetail("The request was taken over, released or begun anew since the attempt was handed out."),
			 errhint("Stop, and roll back what the attempt has not committed.")));
}

/*
 * The request of a call that an attempt makes, locked while it is in work.  An
 * attempt that released its key has nothing more to say, but that once more
 * (releases).  NULL: the row was busy.  Errors: ID005, ID006.
 */
static Request *
find_own(IdemCall *call, const Datum *keys, bool releases)
{
	int64		attempt = DatumGetInt64(idem_arg_required(call, ARG_ATTEMPT).value);
	Request    *request = request_look(call, keys, IDEM_SIGHT_LATEST);

	if (request != NULL && request->attempt == attempt && request->status == REQUEST_STARTED)
		request = request_lock(call, keys, request);
	if (request == NULL)
	{
		if (call->busy)
			return NULL;
		raise_not_found(keys);
	}
	if (request->attempt != attempt || (request->status == REQUEST_RELEASED && !releases))
		raise_fenced(keys);
	return request;
}

/* Leave; request NULL: the row was busy */
static Datum
leave(IdemCall *call, const Request *request, const char *outcome)
{
	if (request == NULL)
		return idem_leave(call, "in_progress");
	if (request->status == REQUEST_STARTED)
		idem_put(call, 1, TimestampTzGetDatum(request->lease_until));
	return idem_leave(call, outcome);
}


/* ---------- in work ---------- */

static bool
same_jsonb(NullableDatum a, NullableDatum b)
{
	if (a.isnull || b.isnull)
		return a.isnull == b.isnull;
	return DatumGetBool(DirectFunctionCall2(jsonb_eq, a.value, b.value));
}

/* Write a recovery point to a locked request in work; returns the outcome */
static const char *
checkpoint(IdemCall *call, Request *request, NullableDatum point, NullableDatum state)
{
	if (request->status != REQUEST_STARTED)
		return "refused";
	if (idem_same_nullable(request->recovery_point, point) &&
		same_jsonb(request->recovery_state, state))
		return "duplicate";
	request->recovery_point = point;
	request->recovery_state = state;
	request_store(call, request);
	return "checkpointed";
}

/*
 * idem_checkpoint_request(tenant_id, scope, key, attempt, recovery_point,
 *						   state)
 *		-> (outcome, lease_until)
 *
 * Outcomes: checkpointed, duplicate, refused.  Errors: ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_checkpoint_request);
Datum
idem_checkpoint_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[REQUEST_KEYS];
	NullableDatum point;
	Request    *request;

	request_arg_keys(call, keys);
	point = IDEM_VALUE(idem_arg_key(call, ARG_RECOVERY_POINT));
	request = find_own(call, keys, false);
	if (request == NULL)
		return leave(call, NULL, NULL);
	return leave(call, request,
				 checkpoint(call, request, point, idem_arg(call, ARG_RECOVERY_STATE)));
}

/* Let the lease of a locked request in work end as the argument says */
static const char *
renew(IdemCall *call, Request *request)
{
	if (request->status != REQUEST_STARTED)
		return "refused";
	call->now = GetCurrentTimestamp();
	request->lease_until = DatumGetTimestampTz(request_arg_span(call, ARG_LEASE));
	request_store(call, request);
	return "renewed";
}

/*
 * idem_renew_request(tenant_id, scope, key, attempt, lease)
 *		-> (outcome, lease_until)
 *
 * Outcomes: renewed, refused.  Errors: ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_renew_request);
Datum
idem_renew_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[REQUEST_KEYS];
	Request    *request;

	request_arg_keys(call, keys);
	(void) request_arg_span(call, ARG_LEASE);
	request = find_own(call, keys, false);
	if (request == NULL)
		return leave(call, NULL, NULL);
	return leave(call, request, renew(call, request));
}


/* ---------- finished ---------- */

/* How a request ended, and what is replayed */
typedef struct Ending
{
	RequestStatus status;
	NullableDatum response;
	NullableDatum response_status;
} Ending;

/* Write the end of a locked request in work; who will only be replayed needs no recovery point */
static void
finish(IdemCall *call, Request *request, const Ending *ending)
{
	request->status = ending->status;
	request->response = ending->response;
	request->response_status = ending->response_status;
	request->recovery_point = IDEM_NULL;
	request->recovery_state = IDEM_NULL;
	request_store(call, request);
}

/* Raise ID001 unless a request that ended so is ended in the same words */
static void
demand_same_ending(const Datum *keys, const Request *request, const Ending *ending)
{
	bool		same_response = idem_same_nullable(request->response, ending->response);
	bool		same_status = request->response_status.isnull == ending->response_status.isnull &&
		(ending->response_status.isnull ||
		 DatumGetInt32(request->response_status.value) == DatumGetInt32(ending->response_status.value));

	if (same_response && same_status)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_KEY_CONFLICT),
			 errmsg("key \"%s\" of scope \"%s\" is %s with another response",
					TextDatumGetCString(keys[2]), TextDatumGetCString(keys[1]),
					request_status_names[request->status]),
			 errdetail("The first field that differs is %s.",
					   same_response ? "status" : "response"),
			 errhint("Begin the request again to learn the response that is replayed.")));
}

/* Let an attempt end its request */
static Datum
end_request(IdemCall *call, const Ending *ending, const char *outcome)
{
	Datum		keys[REQUEST_KEYS];
	Request    *request;

	request_arg_keys(call, keys);
	request = find_own(call, keys, ending->status == REQUEST_RELEASED);
	if (request == NULL)
		return leave(call, NULL, NULL);
	if (request->status == REQUEST_STARTED)
		finish(call, request, ending);
	else if (request->status == ending->status)
	{
		demand_same_ending(keys, request, ending);
		outcome = "duplicate";
	}
	else
		outcome = "refused";
	return leave(call, request, outcome);
}

/*
 * idem_complete_request(tenant_id, scope, key, attempt, response, status)
 *		-> (outcome, lease_until)
 *
 * Outcomes: completed, duplicate, refused.  Errors: ID001, ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_complete_request);
Datum
idem_complete_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Ending		ending = {
		REQUEST_COMPLETED,
		idem_arg(call, ARG_RESPONSE),
		idem_arg_required(call, ARG_STATUS)
	};

	return end_request(call, &ending, "completed");
}

/*
 * idem_fail_request(tenant_id, scope, key, attempt, response, status,
 *					 retryable)
 *		-> (outcome, lease_until)
 *
 * Outcomes: released, failed, duplicate, refused.  Errors: ID001, ID005, ID006.
 */
PG_FUNCTION_INFO_V1(idem_fail_request);
Datum
idem_fail_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	bool		retryable = DatumGetBool(idem_arg_required(call, ARG_RETRYABLE).value);
	Ending		released = {REQUEST_RELEASED, IDEM_NULL, IDEM_NULL};
	Ending		failed = {
		REQUEST_FAILED,
		idem_arg(call, ARG_RESPONSE),
		idem_arg_required(call, ARG_STATUS)
	};

	return retryable ?
		end_request(call, &released, "released") :
		end_request(call, &failed, "failed");
}


/* ---------- left behind ---------- */

/* A human's decision, in the words of the argument */
static void
read_decision(IdemCall *call, Ending *ending)
{
	const char *decision = idem_arg_word(call, ARG_DECISION);

	if (strcmp(decision, "released") == 0)
	{
		ending->status = REQUEST_RELEASED;
		ending->response = IDEM_NULL;
		ending->response_status = IDEM_NULL;
	}
	else if (strcmp(decision, "completed") == 0)
	{
		ending->status = REQUEST_COMPLETED;
		ending->response = idem_arg(call, ARG_RESPONSE);
		ending->response_status = idem_arg(call, ARG_STATUS);
		if (ending->response_status.isnull)
			ending->response_status = IDEM_VALUE(Int32GetDatum(200));
	}
	else
		idem_bad_argument(call, ARG_DECISION, "It is one of completed, released.");
}

/*
 * What may be said without locking a request: that it was decided already, or
 * that somebody still has the time to finish it.  NULL: lock it and judge.
 */
static const char *
judge_unlocked(const IdemCall *call, const Request *request)
{
	if (request->status != REQUEST_STARTED)
		return "already_resolved";
	return request_lease_is_over(call, request) ? NULL : "refused";
}

/*
 * idem_resolve_request(tenant_id, scope, key, decision, response, status)
 *		-> (outcome, lease_until)
 *
 * Outcomes: resolved, already_resolved, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_resolve_request);
Datum
idem_resolve_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[REQUEST_KEYS];
	Ending		ending;
	Request    *request;
	const char *outcome;

	request_arg_keys(call, keys);
	read_decision(call, &ending);
	request = request_look(call, keys, IDEM_SIGHT_LATEST);
	if (request != NULL && judge_unlocked(call, request) == NULL)
		request = request_lock(call, keys, request);
	if (request == NULL)
	{
		if (call->busy)
			return leave(call, NULL, NULL);
		raise_not_found(keys);
	}

	outcome = judge_unlocked(call, request);
	if (outcome == NULL)
	{
		finish(call, request, &ending);
		outcome = "resolved";
	}
	return leave(call, request, outcome);
}
