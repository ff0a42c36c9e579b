/*-------------------------------------------------------------------------
 * request.c
 *	  idem_begin_request: who may do the work of a request, and who hears
 *	  what came of it.
 *
 * A request arrives again because its answer was lost, while its first call is
 * still at work, or after that died.  Only one may do the work, and all must
 * hear one answer.  Two shapes of use:
 *
 * Everything in one transaction: begin, work, complete, commit.  A second begin
 * meets the open row by its dirty look and waits for it.  A rollback frees the
 * key, as nothing was ever there.
 *
 * Begin, commit, call out, complete in another transaction.  Now the row
 * outlives its worker, who may die or sleep.  So it carries a lease, and when
 * that is over the next begin takes the request over, from the last recovery
 * point on.  The old worker may wake up and believe that he still has it:
 * each takeover draws a new attempt, and what an old one wants to write is
 * refused (request_attempt.c).  Attempts come from a sequence, so that they do
 * not repeat when a row is swept and its key used again.
 *
 * The order of things: look free, which answers a replay; where there is a row,
 * look at what is committed, and lock it only to write; where there is none,
 * lock the name, look dirty, insert (see look.c).  That another request was
 * sent under the same key is said first, wherever a row can be seen.
 *-------------------------------------------------------------------------
 */
#include "request.h"

#include "direct.h"
#include "key.h"
#include "relation.h"

#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Column numbers of idem_request */
enum
{
	TENANT_ID = 1, SCOPE, KEY, STATUS, ATTEMPT, FINGERPRINT, FINGERPRINT_VERSION, WORKER,
	ON_EXPIRY, FIRST_AT, LEASE_UNTIL, EXPIRES_AT, RECOVERY_POINT, RECOVERY_STATE,
	RESPONSE_STATUS, RESPONSE, NATTS = RESPONSE
};

#define ATTEMPT_SEQUENCE "idem_attempt"

static const IdemIndex request_by_key = {"idem_request", "idem_request_pkey", NATTS};

const char *const request_status_names[] = {
	"started", "completed", "failed", "released"
};

static IdemTable requests = {
	"idem_request", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_request (tenant_id, scope, key, status, attempt,"
			   " fingerprint, fingerprint_version, worker, on_expiry, first_at, lease_until,"
			   " expires_at, recovery_point, recovery_state, response_status, response)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
			   " ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, BYTEAOID, INT4OID, TEXTOID, TEXTOID,
			   TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, JSONBOID, INT4OID, JSONOID)
};

/* All but the key; TID scan: nothing can lead it astray */
static IdemChange store_request = {
	&requests, {STATUS, ATTEMPT, FINGERPRINT, FINGERPRINT_VERSION, WORKER, ON_EXPIRY, FIRST_AT,
	LEASE_UNTIL, EXPIRES_AT, RECOVERY_POINT, RECOVERY_STATE, RESPONSE_STATUS, RESPONSE},
	IDEM_QUERY("UPDATE @schema@.idem_request SET status = $2, attempt = $3, fingerprint = $4,"
			   " fingerprint_version = $5, worker = $6, on_expiry = $7, first_at = $8,"
			   " lease_until = $9, expires_at = $10, recovery_point = $11, recovery_state = $12,"
			   " response_status = $13, response = $14 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, INT8OID, BYTEAOID, INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID,
			   TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, JSONBOID, INT4OID, JSONOID)
};


/* ---------- rows ---------- */

static Request *
request_of_row(IdemRow *row)
{
	Request    *request;

	if (row == NULL)
		return NULL;
	request = palloc(sizeof(Request));
	request->row = row;
	request->tid = row->tid;
	request->status = (RequestStatus)
		idem_word_index(IDEM_COLUMN(row, STATUS), request_status_names, REQUEST_RELEASED + 1);
	request->attempt = DatumGetInt64(IDEM_COLUMN(row, ATTEMPT));
	request->fingerprint = IDEM_NULLABLE(row, FINGERPRINT);
	request->fingerprint_version = DatumGetInt32(IDEM_COLUMN(row, FINGERPRINT_VERSION));
	request->worker = IDEM_NULLABLE(row, WORKER);
	request->on_expiry = IDEM_COLUMN(row, ON_EXPIRY);
	request->first_at = DatumGetTimestampTz(IDEM_COLUMN(row, FIRST_AT));
	request->lease_until = DatumGetTimestampTz(IDEM_COLUMN(row, LEASE_UNTIL));
	request->expires_at = DatumGetTimestampTz(IDEM_COLUMN(row, EXPIRES_AT));
	request->recovery_point = IDEM_NULLABLE(row, RECOVERY_POINT);
	request->recovery_state = IDEM_NULLABLE(row, RECOVERY_STATE);
	request->response_status = IDEM_NULLABLE(row, RESPONSE_STATUS);
	request->response = IDEM_NULLABLE(row, RESPONSE);
	return request;
}

Request *
request_look(IdemCall *call, const Datum *keys, IdemSight sight)
{
	return request_of_row(idem_look(call, &request_by_key, keys, REQUEST_KEYS, sight));
}

Request *
request_lock(IdemCall *call, const Datum *keys, const Request *seen)
{
	return request_of_row(idem_lock_seen(call, &request_by_key, keys, REQUEST_KEYS, seen->row));
}

/* The columns after the key, in their order */
static void
fill_values(const Request *request, NullableDatum *values)
{
	NullableDatum of_request[] = {
		IDEM_TEXT(request_status_names[request->status]),
		IDEM_VALUE(Int64GetDatum(request->attempt)),
		request->fingerprint,
		IDEM_VALUE(Int32GetDatum(request->fingerprint_version)),
		request->worker,
		IDEM_VALUE(request->on_expiry),
		IDEM_VALUE(TimestampTzGetDatum(request->first_at)),
		IDEM_VALUE(TimestampTzGetDatum(request->lease_until)),
		IDEM_VALUE(TimestampTzGetDatum(request->expires_at)),
		request->recovery_point,
		request->recovery_state,
		request->response_status,
		request->response
	};

	StaticAssertStmt(lengthof(of_request) == NATTS - REQUEST_KEYS, "a column has no value");
	memcpy(values, of_request, sizeof(of_request));
}

void
request_store(IdemCall *call, Request *request)
{
	NullableDatum values[NATTS - REQUEST_KEYS];

	fill_values(request, values);
	if (!idem_change(call, &store_request, &request->tid, values))
		elog(ERROR, "a locked request is gone");
}

void
request_arg_keys(IdemCall *call, Datum *keys)
{
	for (int n = 0; n < REQUEST_KEYS; n++)
		keys[n] = idem_arg_key(call, n);
}

Datum
request_arg_span(IdemCall *call, int n)
{
	(void) idem_arg_required(call, n);
	return idem_arg_expiry(call, n).value;
}

bool
request_lease_is_over(const IdemCall *call, const Request *request)
{
	return request->lease_until <= call->now;
}


/* ---------- begin: the decision ---------- */

/* What the caller asks for, arguments already checked */
typedef struct Begin
{
	Datum		keys[REQUEST_KEYS];
	NullableDatum payload;		/* jsonb */
	NullableDatum fingerprint;	/* of the payload */
	NullableDatum worker;
	Datum		on_expiry;		/* text */
} Begin;

/* In the order of begin_outcome_names */
typedef enum BeginOutcome
{
	BEGIN_STARTED,
	BEGIN_RESUMED,
	BEGIN_REPLAYED,
	BEGIN_IN_PROGRESS,
	BEGIN_UNKNOWN
} BeginOutcome;

static const char *const begin_outcome_names[] = {
	"started", "resumed", "replayed", "in_progress", "unknown"
};

/* May the key be used as if it had never been?  Work that goes on does not expire. */
static bool
key_is_free(const IdemCall *call, const Request *request)
{
	switch (request->status)
	{
		case REQUEST_STARTED:
			return false;
		case REQUEST_COMPLETED:
		case REQUEST_FAILED:
			return request->expires_at <= call->now;
		case REQUEST_RELEASED:
			break;
	}
	return true;
}

/* Raise ID001 unless the row was begun for the very same request */
static void
demand_same_request(const Begin *begin, const Request *request)
{
	NullableDatum fingerprint = begin->fingerprint;

	if (!begin->payload.isnull && request->fingerprint_version != IDEM_FINGERPRINT_VERSION)
		fingerprint = IDEM_VALUE(idem_fingerprint(begin->payload.value,
												  request->fingerprint_version));
	if (idem_same_nullable(fingerprint, request->fingerprint))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_KEY_CONFLICT),
			 errmsg("key \"%s\" of scope \"%s\" was used for another request",
					TextDatumGetCString(begin->keys[2]), TextDatumGetCString(begin->keys[1])),
			 errdetail("The first field that differs is request."),
			 errhint("Repeat the call with the request that the key was begun with, or use a new key.")));
}

static bool
is_same_worker(const Begin *begin, const Request *request)
{
	return !begin->worker.isnull && idem_same_nullable(begin->worker, request->worker);
}

/*
 * What to answer, the row being as it was seen (NULL: there is none).
 * Errors: ID001.
 */
static BeginOutcome
decide(const IdemCall *call, const Begin *begin, const Request *request)
{
	if (request == NULL || key_is_free(call, request))
		return BEGIN_STARTED;
	demand_same_request(begin, request);
	if (request->status != REQUEST_STARTED)
		return BEGIN_REPLAYED;
	if (idem_text_is(request->on_expiry, "resume") &&
		(request_lease_is_over(call, request) || is_same_worker(begin, request)))
		return BEGIN_RESUMED;
	return request_lease_is_over(call, request) ? BEGIN_UNKNOWN : BEGIN_IN_PROGRESS;
}


/* ---------- begin: what is written ---------- */

/* The arguments of idem_begin_request, by position, after the keys */
enum
{
	ARG_REQUEST = REQUEST_KEYS, ARG_LEASE, ARG_TTL, ARG_WAIT, ARG_WORKER, ARG_ON_EXPIRY
};

static int64
draw_attempt(IdemCall *call)
{
	return nextval_internal(relation_demand(call->house, "sequence", ATTEMPT_SEQUENCE), false);
}

/*
 * A request that nobody has begun, as it is begun now; its spans count from
 * here, not from before a wait.
 */
static Request *
new_request(IdemCall *call, const Begin *begin)
{
	Request    *request = palloc0(sizeof(Request));

	request->status = REQUEST_STARTED;
	request->attempt = draw_attempt(call);
	request->fingerprint = begin->fingerprint;
	request->fingerprint_version = IDEM_FINGERPRINT_VERSION;
	request->worker = begin->worker;
	request->on_expiry = begin->on_expiry;
	request->first_at = call->now;
	request->lease_until = DatumGetTimestampTz(request_arg_span(call, ARG_LEASE));
	request->expires_at = DatumGetTimestampTz(request_arg_span(call, ARG_TTL));
	request->recovery_point = IDEM_NULL;
	request->recovery_state = IDEM_NULL;
	request->response_status = IDEM_NULL;
	request->response = IDEM_NULL;
	return request;
}

/* Insert a row; false: it met a raw INSERT */
static bool
insert(IdemCall *call, const Begin *begin, const Request *request)
{
	NullableDatum row[NATTS];

	for (int i = 0; i < REQUEST_KEYS; i++)
		row[i] = IDEM_VALUE(begin->keys[i]);
	fill_values(request, row + REQUEST_KEYS);
	return idem_insert(call, &requests, row);
}

/* Use a locked row, whose key is free, for a new request, which is returned */
static Request *
restart(IdemCall *call, const Begin *begin, const Request *former)
{
	Request    *request = new_request(call, begin);

	request->tid = former->tid;
	request_store(call, request);
	return request;
}

/* Take a locked request over */
static void
resume(IdemCall *call, const Begin *begin, Request *request)
{
	request->attempt = draw_attempt(call);
	request->worker = begin->worker;
	request->lease_until = DatumGetTimestampTz(request_arg_span(call, ARG_LEASE));
	request_store(call, request);
}


/* ---------- begin: the two ways ---------- */

/* The name that is locked: one text for scope and key */
static Datum
lock_key(const Begin *begin)
{
	text	   *scope = DatumGetTextPP(begin->keys[1]);
	text	   *key = DatumGetTextPP(begin->keys[2]);
	StringInfoData name;

	initStringInfo(&name);
	appendStringInfo(&name, "%d:", (int) VARSIZE_ANY_EXHDR(scope));
	appendBinaryStringInfo(&name, VARDATA_ANY(scope), VARSIZE_ANY_EXHDR(scope));
	appendBinaryStringInfo(&name, VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
	return PointerGetDatum(cstring_to_text_with_len(name.data, name.len));
}

/*
 * Where no row was seen.  Returns true with *request as it was inserted; false
 * if a row has come up or its rival has ended, or with call->busy.
 */
static bool
create(IdemCall *call, const Begin *begin, Request **request)
{
	bool		inserted = false;
	bool		collided = false;
	int			pause_ms = 1;

	idem_lock_name(call, IDEM_NAME_REQUEST, call->tenant_id, lock_key(begin));
	call->now = GetCurrentTimestamp();
	*request = request_look(call, begin->keys, IDEM_SIGHT_DIRTY);
	if (*request == NULL && !TransactionIdIsValid(call->rival))
	{
		*request = new_request(call, begin);
		inserted = insert(call, begin, *request);
		collided = !inserted;
	}
	idem_unlock_names(call);
	if (TransactionIdIsValid(call->rival) ? !idem_await_rival(call) :
		collided && !idem_pause(call, &pause_ms))
		call->busy = true;
	return inserted;
}

/*
 * Where a row was seen.  Returns true with the outcome, and *request as it
 * is then; false: the row is gone.
 */
static bool
take(IdemCall *call, const Begin *begin, Request **request, BeginOutcome *outcome)
{
	*request = request_look(call, begin->keys, IDEM_SIGHT_LATEST);
	if (*request == NULL)
		return false;
	*outcome = decide(call, begin, *request);
	if (*outcome != BEGIN_STARTED && *outcome != BEGIN_RESUMED)
		return true;

	*request = request_lock(call, begin->keys, *request);
	*outcome = BEGIN_IN_PROGRESS;
	if (*request == NULL)
		return call->busy;
	call->now = GetCurrentTimestamp();
	*outcome = decide(call, begin, *request);
	if (*outcome == BEGIN_STARTED)
		*request = restart(call, begin, *request);
	else if (*outcome == BEGIN_RESUMED)
		resume(call, begin, *request);
	return true;
}

/*
 * Begin, or find out why not.  *request is what the answer shows; NULL: an
 * open transaction's, of which nothing is known.
 */
static BeginOutcome
begin_request(IdemCall *call, const Begin *begin, Request **request)
{
	BeginOutcome outcome;

	*request = request_look(call, begin->keys, IDEM_SIGHT_FIRST);
	outcome = decide(call, begin, *request);
	if (outcome == BEGIN_REPLAYED)
		return outcome;

	for (;;)
	{
		if (*request != NULL)
		{
			if (take(call, begin, request, &outcome))
				return outcome;
		}
		else if (create(call, begin, request))
			return BEGIN_STARTED;
		if (call->busy)
		{
			*request = NULL;
			return BEGIN_IN_PROGRESS;
		}
		CHECK_FOR_INTERRUPTS();
	}
}


/* ---------- begin: the answer ---------- */

/*
 * An attempt that was given out must not come again after a crash, and where
 * commits do not wait for the disk its sequence may be lost with them.  A
 * sequence logs some thirty numbers ahead of those it gives out; so one call in
 * thirty waits for that record here, and the others find it flushed.
 */
static void
keep_attempt(IdemCall *call)
{
	Relation	sequence;
	Buffer		buffer;
	XLogRecPtr	logged;

	if (synchronous_commit != SYNCHRONOUS_COMMIT_OFF)
		return;
	/* locked since the attempt was drawn from it */
	sequence = relation_open(relation_demand(call->house, "sequence", ATTEMPT_SEQUENCE), NoLock);
	buffer = ReadBuffer(sequence, 0);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	logged = PageGetLSN(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	relation_close(sequence, NoLock);
	XLogFlush(logged);
}

/* Columns of the answer */
enum
{
	OUT_OUTCOME, OUT_ATTEMPT, OUT_RECOVERY_POINT, OUT_RECOVERY_STATE, OUT_RESPONSE_STATUS,
	OUT_RESPONSE, OUT_LEASE_UNTIL, OUT_FIRST_AT
};

/* Put the answer together: what may be acted on only where it may be */
static void
show(IdemCall *call, BeginOutcome outcome, const Request *request)
{
	if (request == NULL)
		return;
	idem_put(call, OUT_FIRST_AT, TimestampTzGetDatum(request->first_at));
	switch (outcome)
	{
		case BEGIN_STARTED:
		case BEGIN_RESUMED:
			idem_put(call, OUT_ATTEMPT, Int64GetDatum(request->attempt));
			idem_put_nullable(call, OUT_RECOVERY_POINT, request->recovery_point);
			idem_put_nullable(call, OUT_RECOVERY_STATE, request->recovery_state);
			break;
		case BEGIN_REPLAYED:
			idem_put_nullable(call, OUT_RESPONSE_STATUS, request->response_status);
			idem_put_nullable(call, OUT_RESPONSE, request->response);
			return;
		case BEGIN_IN_PROGRESS:
		case BEGIN_UNKNOWN:
			break;
	}
	idem_put(call, OUT_LEASE_UNTIL, TimestampTzGetDatum(request->lease_until));
}

static void
read_begin(IdemCall *call, Begin *begin)
{
	const char *on_expiry;

	request_arg_keys(call, begin->keys);
	begin->payload = idem_arg(call, ARG_REQUEST);
	begin->fingerprint = begin->payload.isnull ? IDEM_NULL :
		IDEM_VALUE(idem_fingerprint(begin->payload.value, IDEM_FINGERPRINT_VERSION));
	(void) request_arg_span(call, ARG_LEASE);
	(void) request_arg_span(call, ARG_TTL);
	idem_arg_wait(call, ARG_WAIT);
	begin->worker = idem_arg_optional_key(call, ARG_WORKER);
	on_expiry = idem_arg_word(call, ARG_ON_EXPIRY);
	if (strcmp(on_expiry, "resume") != 0 && strcmp(on_expiry, "unknown") != 0)
		idem_bad_argument(call, ARG_ON_EXPIRY, "It is one of resume, unknown.");
	begin->on_expiry = CStringGetTextDatum(on_expiry);
}

/*
 * idem_begin_request(tenant_id, scope, key, request, lease, ttl, wait, worker,
 *					  on_expiry)
 *		-> (outcome, attempt, recovery_point, recovery_state, response_status,
 *			response, lease_until, first_at)
 *
 * Begins the work of a request, or tells what became of it.
 * Errors: 22004, 22023, ID001.
 */
PG_FUNCTION_INFO_V1(idem_begin_request);
Datum
idem_begin_request(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Begin		begin;
	Request    *request;
	BeginOutcome outcome;

	read_begin(call, &begin);
	outcome = begin_request(call, &begin, &request);
	if (outcome == BEGIN_STARTED || outcome == BEGIN_RESUMED)
		keep_attempt(call);
	show(call, outcome, request);
	return idem_leave(call, begin_outcome_names[outcome]);
}
