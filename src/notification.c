/*-------------------------------------------------------------------------
 * notification.c
 *	  Notifications: each is recorded once, under its id, and answered.
 *
 * A channel repeats a notification until it is acknowledged, to several servers
 * at once if need be; and it tells one fact under several ids.  So there are
 * two memories:
 *
 * 1. By id.  The row of a notification is inserted before anything is done;
 *	  whoever brings the same at the same time meets it and waits for its end.
 *	  What was done once is not done again: a repetition adds to its hits.  This
 *	  is what keeps a refund that names no number from being counted twice, and
 *	  an old failure from hitting a refund that was sent again since.
 * 2. By fact.  The index of facts is a memory and no gate, since a channel uses
 *	  one trade number for several facts and one refund number for several
 *	  attempts.  The fact is told again, and judged against what became of the
 *	  payment or refund (notification_judge.c).
 *
 * What belonged to nobody, was refused, or had no meaning is judged anew each
 * time it comes: payments are created, accounts and meanings entered meanwhile.
 * The channel is told to come again while a fact that belongs to nobody is
 * young; it may have been faster than our own commit.
 *
 * The same id with other contents is no repetition.  What was said first holds.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "direct.h"
#include "key.h"
#include "notification.h"
#include "receipt.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

/* Column numbers of idem_notification */
enum
{
	TENANT_ID = 1, CHANNEL, ACCOUNT, NOTIFY_ID, PAYMENT_NO, TRADE_NO, KIND, BIZ_NO, EVENT,
	AMOUNT, CURRENCY, REFUND_AMOUNT, REFUND_CURRENCY, CHANNEL_REFUND_NO, OCCURRED_AT,
	PAYLOAD, DIGEST, PROBLEM, OUTCOME, ACK, HITS, ROUTED_TO, RECEIVED_AT, LAST_HIT_AT,
	NATTS = LAST_HIT_AT
};

/* tenant_id, channel, account, notify_id */
#define ID_KEYS 4
static const IdemIndex notification_by_id = {
	"idem_notification", "idem_notification_pkey", NATTS
};

/* tenant_id, channel, account, trade_no, kind, biz_no */
static const IdemIndex notification_by_fact = {
	"idem_notification", "idem_notification_fact", NATTS
};

static IdemTable notifications = {
	"idem_notification", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_notification (tenant_id, channel, account, notify_id,"
			   " payment_no, trade_no, kind, biz_no, event, amount, currency, refund_amount,"
			   " refund_currency, channel_refund_no, occurred_at, payload, digest, problem, outcome,"
			   " ack, hits, routed_to, received_at, last_hit_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
			   " $18, $19, $20, $21, $22, $23, $24)"
			   " ON CONFLICT DO NOTHING RETURNING ctid",
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
			   INT8OID, TEXTOID, INT8OID, TEXTOID, TEXTOID, TIMESTAMPTZOID, JSONBOID, BYTEAOID,
			   TEXTOID, TEXTOID, BOOLOID, INT8OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID)
};

/* TID scans: nothing can lead them astray */
static IdemChange store_notification = {
	&notifications, {KIND, OUTCOME, ACK, HITS, LAST_HIT_AT},
	IDEM_QUERY("UPDATE @schema@.idem_notification SET kind = $2, outcome = $3, ack = $4, hits = $5,"
			   " last_hit_at = $6 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, TEXTOID, BOOLOID, INT8OID, TIMESTAMPTZOID)
};

static IdemChange count_hit = {
	&notifications, {IDEM_ADDS(HITS), LAST_HIT_AT},
	IDEM_QUERY("UPDATE @schema@.idem_notification SET hits = hits + $2, last_hit_at = $3"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID, TIMESTAMPTZOID)
};

static IdemQuery route_notification = IDEM_QUERY(
	"UPDATE @schema@.idem_notification SET routed_to = $2 WHERE ctid = $1",
	TIDOID, TEXTOID);

/* What is known of a notification's row */
typedef struct Record
{
	ItemPointerData tid;
	const char *kind;
	const char *outcome;
	bool		ack;
	int64		hits;
} Record;


/* ---------- digests and keys ---------- */

static void
push_text(JsonbParseState **state, NullableDatum value)
{
	JsonbValue	element;

	element.type = jbvNull;
	if (!value.isnull)
	{
		element.type = jbvString;
		element.val.string.val = TextDatumGetCString(value.value);
		element.val.string.len = strlen(element.val.string.val);
	}
	(void) pushJsonbValue(state, WJB_ELEM, &element);
}

static void
push_amount(JsonbParseState **state, NullableDatum value)
{
	JsonbValue	element;

	element.type = jbvNull;
	if (!value.isnull)
	{
		element.type = jbvNumeric;
		element.val.numeric = DatumGetNumeric(DirectFunctionCall1(int8_numeric, value.value));
	}
	(void) pushJsonbValue(state, WJB_ELEM, &element);
}

/* The fingerprint of the array that was pushed */
static Datum
fingerprint(JsonbParseState **state)
{
	JsonbValue *array = pushJsonbValue(state, WJB_END_ARRAY, NULL);

	return idem_fingerprint(JsonbPGetDatum(JsonbValueToJsonb(array)), IDEM_FINGERPRINT_VERSION);
}

/* A key that stands for what cannot be one */
static NullableDatum
key_of_digest(Datum digest)
{
	bytea	   *bytes = DatumGetByteaPP(digest);
	char		key[sizeof("sha256:") + 64] = "sha256:";

	Assert(VARSIZE_ANY_EXHDR(bytes) == 32);
	(void) hex_encode(VARDATA_ANY(bytes), 32, key + strlen(key));
	key[sizeof(key) - 1] = '\0';
	return IDEM_TEXT(key);
}

/* What is too long for a key is stood for by its digest, not lost */
static void
fit_key(NullableDatum *key)
{
	JsonbParseState *state = NULL;

	if (key->isnull || VARSIZE_ANY_EXHDR(DatumGetTextPP(key->value)) <= IDEM_KEY_BYTES)
		return;
	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	push_text(&state, *key);
	*key = key_of_digest(fingerprint(&state));
}

/*
 * The payload without what tells of its delivery instead of the event: that
 * changes each time it comes.
 */
static NullableDatum
without_delivery(NullableDatum payload)
{
	static const char *const fields[] = {"notify_time", "sign", "sign_type", "pending_webhooks"};

	if (payload.isnull || !JB_ROOT_IS_OBJECT(DatumGetJsonbP(payload.value)))
		return payload;
	for (size_t i = 0; i < lengthof(fields); i++)
		payload.value = DirectFunctionCall2(jsonb_delete, payload.value,
											CStringGetTextDatum(fields[i]));
	return payload;
}

/* What it says, whenever it is said */
static Datum
digest_of(const Notification *said)
{
	NullableDatum payload = without_delivery(said->payload);
	JsonbParseState *state = NULL;

	if (!payload.isnull)
		payload = key_of_digest(idem_fingerprint(payload.value, IDEM_FINGERPRINT_VERSION));

	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	push_text(&state, said->payment_no);
	push_text(&state, said->trade_no);
	push_text(&state, said->event);
	push_amount(&state, said->amount);
	push_text(&state, said->currency);
	push_text(&state, said->biz_no);
	push_amount(&state, said->refund_amount);
	push_text(&state, payload);
	push_text(&state, said->channel_refund_no);
	push_text(&state, said->refund_currency);
	return fingerprint(&state);
}

/* The id of what came without one: all that was said, and of when */
static NullableDatum
id_of(const Notification *said, Datum digest)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	push_text(&state, key_of_digest(digest));
	push_text(&state, said->account);
	push_amount(&state, said->occurred_at);
	return key_of_digest(fingerprint(&state));
}

static NullableDatum
null_if_empty(NullableDatum value)
{
	return !value.isnull && VARSIZE_ANY_EXHDR(DatumGetTextPP(value.value)) == 0 ?
		IDEM_NULL : value;
}

/* Make its keys such that they can be stored; returns its digest */
static Datum
normalize(Notification *said)
{
	NullableDatum *keys[] = {
		&said->notify_id, &said->payment_no, &said->trade_no, &said->event, &said->account,
		&said->biz_no, &said->channel_refund_no
	};
	Datum		digest;

	for (size_t i = 0; i < lengthof(keys); i++)
		fit_key(keys[i]);
	digest = digest_of(said);
	said->notify_id = null_if_empty(said->notify_id);
	if (said->notify_id.isnull)
		said->notify_id = id_of(said, digest);
	return digest;
}


/* ---------- rows ---------- */

static NullableDatum
not_null(NullableDatum value)
{
	return value.isnull ? IDEM_TEXT("") : value;
}

static const char *
kind_name(FactKind kind)
{
	return kind == FACT_UNMAPPED ? "" : fact_kind_names[kind];
}

/* Insert it with the outcome that is expected; false: it is there */
static bool
insert(IdemCall *call, const Notification *said, Datum digest, Record *record)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(said->channel),
		not_null(said->account),
		said->notify_id,
		said->payment_no,
		not_null(said->trade_no),
		IDEM_TEXT(record->kind),
		not_null(said->biz_no),
		said->event,
		said->amount,
		said->currency,
		said->refund_amount,
		said->refund_currency,
		said->channel_refund_no,
		said->occurred_at,
		said->payload,
		IDEM_VALUE(digest),
		said->problem == NULL ? IDEM_NULL : IDEM_TEXT(said->problem),
		IDEM_TEXT(record->outcome),
		IDEM_VALUE(BoolGetDatum(record->ack)),
		IDEM_VALUE(Int64GetDatum(record->hits)),
		IDEM_NULL,				/* routed_to */
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	return idem_insert_at(call, &notifications, row, &record->tid);
}

pg_noreturn static void
lost_row(void)
{
	elog(ERROR, "locked notification could not be updated");
}

static void
store(IdemCall *call, Record *record)
{
	NullableDatum values[] = {
		IDEM_TEXT(record->kind),
		IDEM_TEXT(record->outcome),
		IDEM_VALUE(BoolGetDatum(record->ack)),
		IDEM_VALUE(Int64GetDatum(record->hits)),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	if (!idem_change(call, &store_notification, &record->tid, values))
		lost_row();
}

static FactKind
kind_of_row(const IdemRow *row)
{
	Datum		kind = IDEM_COLUMN(row, KIND);

	return receipt_is_empty(kind) ? FACT_UNMAPPED :
		(FactKind) idem_word_index(kind, fact_kind_names, FACT_UNMAPPED);
}

static Record
record_of_row(const IdemRow *row)
{
	return (Record) {
		row->tid,
		TextDatumGetCString(IDEM_COLUMN(row, KIND)),
		TextDatumGetCString(IDEM_COLUMN(row, OUTCOME)),
		DatumGetBool(IDEM_COLUMN(row, ACK)),
		DatumGetInt64(IDEM_COLUMN(row, HITS))
	};
}

/* The key that its row is found by */
static void
key_of(IdemCall *call, const Notification *said, Datum *keys)
{
	keys[0] = call->tenant_id;
	keys[1] = said->channel;
	keys[2] = not_null(said->account).value;
	keys[3] = said->notify_id.value;
}

static IdemRow *
look(IdemCall *call, const Notification *said)
{
	Datum		keys[ID_KEYS];

	key_of(call, said, keys);
	return idem_look(call, &notification_by_id, keys, lengthof(keys), IDEM_SIGHT_LATEST);
}

/*
 * The row of a notification that came before, locked; NULL: it is new, and
 * its row is inserted.  Waits for whoever brings the same at this moment, or
 * is at work on what it says.
 */
static IdemRow *
claim(IdemCall *call, const Notification *said, Datum digest, bool is_known, Record *record)
{
	Datum		keys[ID_KEYS];

	key_of(call, said, keys);
	for (;;)
	{
		IdemRow    *row;

		if (!is_known && insert(call, said, digest, record))
			return NULL;
		row = idem_lock_row(call, &notification_by_id, keys, lengthof(keys));
		if (row != NULL)
			return row;
		is_known = false;
		(void) idem_look(call, &notification_by_id, keys, lengthof(keys), IDEM_SIGHT_DIRTY);
		if (TransactionIdIsValid(call->rival))
			(void) idem_await_rival(call);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Add to the hits of a row; false: somebody else has changed it since it was seen */
static bool
count(IdemCall *call, IdemRow *row)
{
	return idem_change(call, &count_hit, &row->tid, (NullableDatum[]) {
		IDEM_VALUE(Int64GetDatum(1)),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
}


/* ---------- answers ---------- */

/* Is this to be judged anew each time it comes?  What was routed is settled elsewhere. */
static bool
is_open_question(const IdemRow *row)
{
	Datum		outcome = IDEM_COLUMN(row, OUTCOME);

	return IDEM_NULLABLE(row, ROUTED_TO).isnull &&
		(idem_text_is(outcome, "orphan") || idem_text_is(outcome, "rejected") ||
		 idem_text_is(outcome, "ignored"));
}

/* Does a row say the same? */
static bool
says_the_same(const IdemRow *row, Datum digest)
{
	return DatumGetBool(DirectFunctionCall2(byteaeq, IDEM_COLUMN(row, DIGEST), digest));
}

/* Has this fact belonged to nobody for so long that it need not come again? */
static bool
is_grace_over(IdemCall *call, const Notification *said, const char *kind)
{
	Datum		keys[] = {
		call->tenant_id, said->channel, not_null(said->account).value,
		not_null(said->trade_no).value, CStringGetTextDatum(kind), not_null(said->biz_no).value
	};
	TimestampTz first = call->now;
	ListCell   *cell;

	foreach(cell, idem_look_all(call, &notification_by_fact, keys, lengthof(keys),
								IDEM_SIGHT_LATEST))
	{
		IdemRow    *row = (IdemRow *) lfirst(cell);

		if (idem_same_nullable(IDEM_NULLABLE(row, PAYMENT_NO), said->payment_no))
			first = Min(first, DatumGetTimestampTz(IDEM_COLUMN(row, RECEIVED_AT)));
	}
	return call->now - first >= (int64) idem_orphan_grace_s * USECS_PER_SEC;
}

/* Judge it, and note what came of it where that is not what the row says */
static void
judge(IdemCall *call, const Notification *said, const ChannelEvent *event, Record *record,
	  bool is_new, NotificationAnswer *answer)
{
	const char *kind = kind_name(event->kind);

	notification_judge(call, said, event, answer);
	answer->ack = strcmp(answer->outcome, "orphan") != 0 || is_grace_over(call, said, kind);

	if (is_new && strcmp(answer->outcome, record->outcome) == 0 && answer->ack == record->ack)
		return;
	record->kind = kind;
	record->outcome = answer->outcome;
	record->ack = answer->ack;
	store(call, record);
}

/* A repetition says what it said the first time, whatever that means by now */
static void
answer_repeated(IdemCall *call, const Notification *said, const IdemRow *row,
				NotificationAnswer *answer)
{
	ChannelEvent event = {kind_of_row(row), false, false};

	notification_recall(call, said, &event, answer);
	answer->outcome = "duplicate";
	answer->ack = true;
}

/*
 * One that came before and is settled is counted and answered without a lock:
 * what makes it a repetition does not change any more.  false: it is not, or
 * somebody else was faster.
 */
static bool
recognize(IdemCall *call, const Notification *said, Datum digest, IdemRow *row,
		  NotificationAnswer *answer)
{
	if (row == NULL || !says_the_same(row, digest) || is_open_question(row) || !count(call, row))
		return false;
	answer_repeated(call, said, row, answer);
	return true;
}

static void
answer_tampered(IdemCall *call, const Notification *said, NotificationAnswer *answer)
{
	notification_open_anomaly(call, "tampered", said, IDEM_NULL);
	answer->outcome = "tampered";
	answer->ack = true;
}

Notification
notification_of_nothing(void)
{
	return (Notification) {
		.notify_id = IDEM_NULL,
		.payment_no = IDEM_NULL,
		.trade_no = IDEM_NULL,
		.event = IDEM_NULL,
		.amount = IDEM_NULL,
		.currency = IDEM_NULL,
		.account = IDEM_NULL,
		.biz_no = IDEM_NULL,
		.refund_amount = IDEM_NULL,
		.occurred_at = IDEM_NULL,
		.payload = IDEM_NULL,
		.channel_refund_no = IDEM_NULL,
		.refund_currency = IDEM_NULL,
		.problem = NULL
	};
}

/* What its event means */
static ChannelEvent
event_of(IdemCall *call, const Notification *said)
{
	bool		has_refund = !said->refund_amount.isnull &&
		DatumGetInt64(said->refund_amount.value) != 0;

	if (said->event.isnull)
		return (ChannelEvent) {FACT_UNMAPPED, false, false};
	return channel_event(call, said->channel, said->event.value, has_refund);
}

static void
receive(IdemCall *call, Notification *said, NotificationAnswer *answer)
{
	Datum		digest = normalize(said);
	IdemRow    *row = look(call, said);
	ChannelEvent event;
	Record		record;

	memset(answer, 0, sizeof(NotificationAnswer));
	answer->payment_no = answer->receipt_no = answer->refund_no = IDEM_NULL;
	if (recognize(call, said, digest, row, answer))
		return;

	event = event_of(call, said);
	record.kind = kind_name(event.kind);
	record.outcome = notification_expected(said, event.kind);
	record.ack = true;
	record.hits = 1;
	row = claim(call, said, digest, row != NULL, &record);
	if (row == NULL)
	{
		judge(call, said, &event, &record, true, answer);
		return;
	}

	record = record_of_row(row);
	record.hits++;
	if (!says_the_same(row, digest))
		answer_tampered(call, said, answer);
	else if (is_open_question(row))
		judge(call, said, &event, &record, false, answer);
	else if (count(call, row))
		answer_repeated(call, said, row, answer);
	else
		lost_row();
}


/* ---------- idem_receive_notification ---------- */

enum
{
	ARG_TENANT_ID, ARG_CHANNEL, ARG_NOTIFY_ID, ARG_PAYMENT_NO, ARG_TRADE_NO, ARG_EVENT,
	ARG_AMOUNT, ARG_CURRENCY, ARG_ACCOUNT, ARG_BIZ_NO, ARG_REFUND_AMOUNT, ARG_OCCURRED_AT,
	ARG_PAYLOAD, ARG_CHANNEL_REFUND_NO, ARG_REFUND_CURRENCY
};

/* Columns of the row */
enum
{
	OUT_ACK = 1, OUT_STATUS, OUT_PAYMENT_NO, OUT_RECEIPT_NO, OUT_REFUND_NO
};

Datum
notification_leave(IdemCall *call, Notification *said)
{
	NotificationAnswer answer;

	receive(call, said, &answer);
	idem_put(call, OUT_ACK, BoolGetDatum(answer.ack));
	if (answer.status != NULL)
		idem_put_text(call, OUT_STATUS, answer.status);
	idem_put_nullable(call, OUT_PAYMENT_NO, answer.payment_no);
	idem_put_nullable(call, OUT_RECEIPT_NO, answer.receipt_no);
	idem_put_nullable(call, OUT_REFUND_NO, answer.refund_no);
	return idem_leave(call, answer.outcome);
}

/*
 * idem_receive_notification(tenant_id, channel, notify_id, payment_no, trade_no,
 *	 event, amount, currency, account, biz_no, refund_amount, occurred_at,
 *	 payload, channel_refund_no, refund_currency)
 *	 -> (outcome, ack, status, payment_no, receipt_no, refund_no)
 *
 * A fact.  Outcomes: those of confirm, fail, settle and dispute, closed,
 * ignored, tampered, rejected, orphan.
 */
PG_FUNCTION_INFO_V1(idem_receive_notification);
Datum
idem_receive_notification(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	Notification said = {
		.channel = idem_arg_fact_key(call, ARG_CHANNEL),
		.notify_id = idem_arg(call, ARG_NOTIFY_ID),
		.payment_no = idem_arg(call, ARG_PAYMENT_NO),
		.trade_no = idem_arg(call, ARG_TRADE_NO),
		.event = idem_arg(call, ARG_EVENT),
		.amount = idem_arg(call, ARG_AMOUNT),
		.currency = idem_arg(call, ARG_CURRENCY),
		.account = idem_arg(call, ARG_ACCOUNT),
		.biz_no = idem_arg(call, ARG_BIZ_NO),
		.refund_amount = idem_arg(call, ARG_REFUND_AMOUNT),
		.occurred_at = idem_arg(call, ARG_OCCURRED_AT),
		.payload = idem_arg(call, ARG_PAYLOAD),
		.channel_refund_no = idem_arg(call, ARG_CHANNEL_REFUND_NO),
		.refund_currency = idem_arg(call, ARG_REFUND_CURRENCY)
	};

	return notification_leave(call, &said);
}


/* ---------- routes ---------- */

/* The row of what could not be routed, locked; NULL: there is none */
static IdemRow *
lock_unrouted(IdemCall *call, const Notification *said)
{
	Datum		keys[] = {
		CStringGetTextDatum(UNROUTED_TENANT), said->channel, not_null(said->account).value,
		said->notify_id.value
	};

	if (idem_look(call, &notification_by_id, keys, lengthof(keys), IDEM_SIGHT_LATEST) == NULL)
		return NULL;
	return idem_lock_row(call, &notification_by_id, keys, lengthof(keys));
}

/* Note where a locked row has gone */
static void
note_route(IdemCall *call, const Notification *said, IdemRow *row, Datum tenant_id)
{
	Datum		whole = call->tenant_id;
	NullableDatum args[] = {
		IDEM_VALUE(PointerGetDatum(&row->tid)),
		IDEM_VALUE(tenant_id)
	};

	if (idem_run(call, &route_notification, args) != 1)
		lost_row();
	call->tenant_id = CStringGetTextDatum(UNROUTED_TENANT);
	anomaly_resolve(call, "unrouted", "notification", notification_key(said), "reroute",
					IDEM_NULL);
	call->tenant_id = whole;
}

void
notification_note_route(IdemCall *call, Notification *said, Datum tenant_id)
{
	Notification stray = *said;
	IdemRow    *row;

	fit_key(&stray.account);
	fit_key(&stray.notify_id);
	if (null_if_empty(stray.notify_id).isnull)
	{
		/* its id is the one that it was recorded under, wherever it goes */
		(void) normalize(&stray);
		said->notify_id = stray.notify_id;
	}
	row = lock_unrouted(call, &stray);
	if (row != NULL && IDEM_NULLABLE(row, ROUTED_TO).isnull)
		note_route(call, &stray, row, tenant_id);
}

/* What was said, as it was recorded */
static Notification
notification_of_row(const IdemRow *row)
{
	NullableDatum problem = IDEM_NULLABLE(row, PROBLEM);

	return (Notification) {
		.channel = IDEM_COLUMN(row, CHANNEL),
		.notify_id = IDEM_NULLABLE(row, NOTIFY_ID),
		.payment_no = IDEM_NULLABLE(row, PAYMENT_NO),
		.trade_no = null_if_empty(IDEM_NULLABLE(row, TRADE_NO)),
		.event = IDEM_NULLABLE(row, EVENT),
		.amount = IDEM_NULLABLE(row, AMOUNT),
		.currency = IDEM_NULLABLE(row, CURRENCY),
		.account = null_if_empty(IDEM_NULLABLE(row, ACCOUNT)),
		.biz_no = null_if_empty(IDEM_NULLABLE(row, BIZ_NO)),
		.refund_amount = IDEM_NULLABLE(row, REFUND_AMOUNT),
		.occurred_at = IDEM_NULLABLE(row, OCCURRED_AT),
		.payload = IDEM_NULLABLE(row, PAYLOAD),
		.channel_refund_no = IDEM_NULLABLE(row, CHANNEL_REFUND_NO),
		.refund_currency = IDEM_NULLABLE(row, REFUND_CURRENCY),
		.problem = problem.isnull ? NULL : TextDatumGetCString(problem.value)
	};
}

static void
notification_not_found(const Notification *asked)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("notification \"%s\" of channel \"%s\" is not waiting for a tenant",
					TextDatumGetCString(asked->notify_id.value),
					TextDatumGetCString(asked->channel)),
			 errdetail("Tenant \"%s\" has no notification of this id on account \"%s\".",
					   UNROUTED_TENANT, TextDatumGetCString(asked->account.value))));
}

/*
 * idem_reroute_notification(channel, account, notify_id, tenant_id)
 *	 -> the row of idem_receive_notification
 *
 * Outcomes: as there, and refused: another tenant has it.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_reroute_notification);
Datum
idem_reroute_notification(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	Notification asked = notification_of_nothing();
	Datum		tenant_id = idem_arg_key(call, 3);
	Notification said;
	NullableDatum routed_to;
	IdemRow    *row;

	asked.channel = idem_arg_key(call, 0);
	asked.account = IDEM_VALUE(idem_arg_fact_key(call, 1));
	asked.notify_id = IDEM_VALUE(idem_arg_key(call, 2));
	if (idem_text_is(tenant_id, UNROUTED_TENANT))
		idem_bad_argument(call, 3, "It must be the tenant that the notification belongs to.");
	row = lock_unrouted(call, &asked);
	if (row == NULL)
		notification_not_found(&asked);
	routed_to = IDEM_NULLABLE(row, ROUTED_TO);
	if (!routed_to.isnull && !idem_same_text(routed_to.value, tenant_id))
		return idem_leave(call, "refused");

	said = notification_of_row(row);
	if (routed_to.isnull)
		note_route(call, &said, row, tenant_id);
	call->tenant_id = tenant_id;
	return notification_leave(call, &said);
}
