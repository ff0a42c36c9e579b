/*-------------------------------------------------------------------------
 * anomaly.c
 *	  Anomalies: facts that fit nothing, waiting for a human.
 *
 * A channel repeats itself for days, so what fits nothing is told again and
 * again.  One row is open per kind and thing; a recurrence adds to its hits,
 * and only the first one makes an event.  Once it is resolved, a recurrence
 * opens a new one: what the human did was not the end of it.
 *
 * The unique index decides between two who open the same anomaly at once.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "key.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"

/* Column numbers of idem_anomaly */
enum
{
	TENANT_ID = 1, ANOMALY_NO, KIND, ENTITY, KEY, STATUS, VERSION, HITS, ORDER_ID, DETAIL,
	ACTOR, OPENED_AT, LAST_HIT_AT, RESOLUTION, REASON, RESOLVED_BY, RESOLVED_ACTOR,
	RESOLVED_AT, NATTS = RESOLVED_AT
};

/* tenant_id, kind, entity, key */
static const IdemIndex open_anomalies = {"idem_anomaly", "idem_anomaly_open", NATTS};

/* tenant_id, anomaly_no */
static const IdemIndex anomaly_by_no = {"idem_anomaly", "idem_anomaly_pkey", NATTS};

static IdemQuery insert_anomaly = IDEM_QUERY(
	"INSERT INTO @schema@.idem_anomaly AS anomaly (tenant_id, anomaly_no, kind, entity,"
	" key, status, order_id, detail, actor, opened_at, last_hit_at)"
	" VALUES ($1, $2, $3, $4, $5, 'opened', $6, $7, $8, $9, $9)"
	" ON CONFLICT (tenant_id, kind, entity, key) WHERE status = 'opened'"
	" DO UPDATE SET hits = anomaly.hits + 1, last_hit_at = excluded.last_hit_at,"
	" version = anomaly.version + 1",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TEXTOID, TIMESTAMPTZOID);

/* TID scan: nothing can lead it astray */
static IdemQuery resolve_anomaly = IDEM_QUERY(
	"UPDATE @schema@.idem_anomaly SET status = 'resolved', resolution = $2, reason = $3,"
	" resolved_by = $4, resolved_actor = $5, resolved_at = $6, version = version + 1"
	" WHERE ctid = $1",
	TIDOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID);



/* ---------- details ---------- */

struct AnomalyDetail
{
	IdemCall   *call;
	StringInfoData json;
};

AnomalyDetail *
anomaly_detail(IdemCall *call)
{
	MemoryContext old = MemoryContextSwitchTo(call->context);
	AnomalyDetail *detail = palloc(sizeof(AnomalyDetail));

	detail->call = call;
	initStringInfo(&detail->json);
	appendStringInfoChar(&detail->json, '{');
	MemoryContextSwitchTo(old);
	return detail;
}

static void
append_name(AnomalyDetail *detail, const char *name)
{
	appendStringInfo(&detail->json, "%s\"%s\": ", detail->json.len > 1 ? ", " : "", name);
}

void
anomaly_detail_text(AnomalyDetail *detail, const char *name, NullableDatum value)
{
	append_name(detail, name);
	if (value.isnull)
		appendStringInfoString(&detail->json, "null");
	else
		escape_json(&detail->json, TextDatumGetCString(value.value));
}

/* An int8 */
void
anomaly_detail_amount(AnomalyDetail *detail, const char *name, NullableDatum value)
{
	append_name(detail, name);
	if (value.isnull)
		appendStringInfoString(&detail->json, "null");
	else
		appendStringInfo(&detail->json, INT64_FORMAT, DatumGetInt64(value.value));
}

NullableDatum
anomaly_detail_done(AnomalyDetail *detail)
{
	MemoryContext old = MemoryContextSwitchTo(detail->call->context);
	Datum		jsonb;

	appendStringInfoChar(&detail->json, '}');
	jsonb = DirectFunctionCall1(jsonb_in, CStringGetDatum(detail->json.data));
	MemoryContextSwitchTo(old);
	return IDEM_VALUE(jsonb);
}


/* ---------- open and resolve ---------- */

static NullableDatum
actor(void)
{
	return idem_actor == NULL || idem_actor[0] == '\0' ? IDEM_NULL : IDEM_TEXT(idem_actor);
}

void
anomaly_open(IdemCall *call, const char *kind, const char *entity, Datum key,
			 NullableDatum order_id, NullableDatum detail)
{
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(idem_make_no(call)),
		IDEM_TEXT(kind),
		IDEM_TEXT(entity),
		IDEM_VALUE(key),
		order_id,
		detail,
		actor(),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	(void) idem_run(call, &insert_anomaly, args);
}

static bool
is_resolved(const IdemRow *row)
{
	return row != NULL && idem_text_is(IDEM_COLUMN(row, STATUS), "resolved");
}

/*
 * The open anomaly of this kind and thing, seen or locked; NULL: none, or busy.
 * One that whoever held its lock has resolved is none any more.
 */
static IdemRow *
find_open(IdemCall *call, const char *kind, const char *entity, Datum key,
		  IdemSight sight, bool lock)
{
	Datum		keys[] = {
		call->tenant_id, CStringGetTextDatum(kind), CStringGetTextDatum(entity), key
	};
	IdemRow    *row;

	if (!lock)
		return idem_look(call, &open_anomalies, keys, lengthof(keys), sight);
	do
		row = idem_lock_row(call, &open_anomalies, keys, lengthof(keys));
	while (is_resolved(row));
	return row;
}

bool
anomaly_look(IdemCall *call, const char *kind, const char *entity, Datum key, IdemSight sight)
{
	return find_open(call, kind, entity, key, sight, false) != NULL;
}

bool
anomaly_try_lock(IdemCall *call, const char *kind, const char *entity, Datum key)
{
	IdemRow    *row = find_open(call, kind, entity, key, IDEM_SIGHT_DIRTY, false);

	if (TransactionIdIsValid(call->rival))
		return false;
	return row == NULL || idem_try_lock(call, &open_anomalies, &row->tid) != NULL;
}

bool
anomaly_lock(IdemCall *call, const char *kind, const char *entity, Datum key)
{
	(void) find_open(call, kind, entity, key, IDEM_SIGHT_LATEST, true);
	return !call->busy;
}

/* Write down what became of a locked one */
static void
resolve(IdemCall *call, IdemRow *row, Datum resolution, NullableDatum reason)
{
	NullableDatum args[] = {
		IDEM_VALUE(PointerGetDatum(&row->tid)),
		IDEM_VALUE(resolution),
		reason,
		IDEM_TEXT(GetUserNameFromId(GetSessionUserId(), false)),
		actor(),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	if (idem_run(call, &resolve_anomaly, args) != 1)
		elog(ERROR, "locked anomaly could not be updated");
}

void
anomaly_resolve(IdemCall *call, const char *kind, const char *entity, Datum key,
				const char *resolution, NullableDatum reason)
{
	bool		fact = call->fact;
	IdemRow    *row;

	/* whoever resolves has already written: too late to give up */
	call->fact = true;
	row = find_open(call, kind, entity, key, IDEM_SIGHT_LATEST, true);
	call->fact = fact;
	if (row != NULL)
		resolve(call, row, CStringGetTextDatum(resolution), reason);
}


/* ---------- by hand ---------- */

/* Columns of the row */
enum
{
	OUT_RESOLUTION = 1, OUT_REASON, OUT_RESOLVED_BY, OUT_RESOLVED_AT
};

static void
put_resolved(IdemCall *call, const IdemRow *row)
{
	idem_put_nullable(call, OUT_RESOLUTION, IDEM_NULLABLE(row, RESOLUTION));
	idem_put_nullable(call, OUT_REASON, IDEM_NULLABLE(row, REASON));
	idem_put_nullable(call, OUT_RESOLVED_BY, IDEM_NULLABLE(row, RESOLVED_BY));
	idem_put_nullable(call, OUT_RESOLVED_AT, IDEM_NULLABLE(row, RESOLVED_AT));
}

static void
anomaly_not_found(Datum anomaly_no)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("anomaly \"%s\" does not exist", TextDatumGetCString(anomaly_no)),
			 errdetail("The tenant has no anomaly of this number.")));
}

/* A word of the human's that is kept: not null, not empty */
static Datum
arg_words(IdemCall *call, int n)
{
	Datum		words = idem_arg_required(call, n).value;

	if (VARSIZE_ANY_EXHDR(DatumGetTextPP(words)) == 0)
		idem_bad_argument(call, n, "What was done and why is kept, and cannot be empty.");
	return words;
}

/*
 * idem_resolve_anomaly(tenant_id, anomaly_no, resolution, reason)
 *	 -> (outcome, resolution, reason, resolved_by, resolved_at)
 *
 * Outcomes: resolved, already_resolved, in_progress.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_resolve_anomaly);
Datum
idem_resolve_anomaly(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1)};
	Datum		resolution = arg_words(call, 2);
	NullableDatum reason = IDEM_VALUE(arg_words(call, 3));
	IdemRow    *row = idem_look(call, &anomaly_by_no, keys, lengthof(keys), IDEM_SIGHT_LATEST);

	if (row == NULL)
		anomaly_not_found(keys[1]);
	if (!is_resolved(row))
	{
		row = idem_lock_row(call, &anomaly_by_no, keys, lengthof(keys));
		if (row == NULL)
			return idem_leave(call, "in_progress");
	}
	if (is_resolved(row))
	{
		put_resolved(call, row);
		return idem_leave(call, "already_resolved");
	}
	idem_because(call, reason);
	resolve(call, row, resolution, reason);
	put_resolved(call, idem_look(call, &anomaly_by_no, keys, lengthof(keys), IDEM_SIGHT_LATEST));
	return idem_leave(call, "resolved");
}
