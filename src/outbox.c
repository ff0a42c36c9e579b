/*-------------------------------------------------------------------------
 * outbox.c
 *	  Events: what the world is told of a move.
 *
 * An event is a row in the transaction that moved: it is there if and only if
 * the move is, whatever happens to the process, the network or the broker.
 * It carries what a consumer needs to act, so that nobody has to read a table
 * that has moved on since.
 *
 * Ids are UUIDs of version 7: new rows go to the right end of the index.  The
 * time in them orders nothing; order is a reader's affair.
 *-------------------------------------------------------------------------
 */
#include "log.h"

#include "key.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/uuid.h"

/* Debezium's Event Router and idem_outbox know no longer words */
#define EVENT_WORD_CHARS 255


/* ---------- ids ---------- */

/*
 * Fill with strong random bytes.  They are fetched a page at a time: a system
 * call an event would be dearer than the event.
 */
static void
random_bytes(uint8 *bytes, int n)
{
	static uint8 pool[512];
	static int	used = sizeof(pool);

	if (used + n > (int) sizeof(pool))
	{
		idem_make_random(pool, sizeof(pool));
		used = 0;
	}
	memcpy(bytes, pool + used, n);
	memset(pool + used, 0, n);
	used += n;
}

/*
 * A UUID of version 7 (RFC 9562): 48 bits of milliseconds, 12 bits of their
 * fraction, 62 random bits.
 */
static Datum
make_event_id(TimestampTz at)
{
	pg_uuid_t  *uuid = palloc(sizeof(pg_uuid_t));
	uint64		us = (uint64) (at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
	uint64		ms = us / 1000;
	uint32		fraction = (uint32) ((us % 1000) * 4096 / 1000);

	for (int i = 0; i < 6; i++)
		uuid->data[i] = (uint8) (ms >> (40 - 8 * i));
	uuid->data[6] = 0x70 | (fraction >> 8);
	uuid->data[7] = (uint8) fraction;
	random_bytes(uuid->data + 8, 8);
	uuid->data[8] = 0x80 | (uuid->data[8] & 0x3f);
	return UUIDPGetDatum(uuid);
}


/* ---------- payload ---------- */

/* Add a member to an object; value NULL stands for null */
static void
put_value(JsonbParseState **object, const char *name, JsonbValue *value)
{
	JsonbValue	key;
	JsonbValue	null;

	key.type = jbvString;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	(void) pushJsonbValue(object, WJB_KEY, &key);

	null.type = jbvNull;
	(void) pushJsonbValue(object, WJB_VALUE, value ? value : &null);
}

static void
put_chars(JsonbParseState **object, const char *name, const char *chars, int len)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, chars);
	value.val.string.len = len;
	put_value(object, name, &value);
}

static void
put_word(JsonbParseState **object, const char *name, const char *word)
{
	put_chars(object, name, word, strlen(word));
}

static void
put_text(JsonbParseState **object, const char *name, Datum value)
{
	put_chars(object, name, VARDATA_ANY(DatumGetPointer(value)),
			  VARSIZE_ANY_EXHDR(DatumGetPointer(value)));
}

static void
put_numeric(JsonbParseState **object, const char *name, Datum numeric)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	value.val.numeric = DatumGetNumeric(numeric);
	put_value(object, name, &value);
}

static void
put_int64(JsonbParseState **object, const char *name, int64 n)
{
	put_numeric(object, name, DirectFunctionCall1(int8_numeric, Int64GetDatum(n)));
}

static void
put_bool(JsonbParseState **object, const char *name, bool truth)
{
	JsonbValue	value;

	value.type = jbvBool;
	value.val.boolean = truth;
	put_value(object, name, &value);
}

/* A point in time in ISO 8601 and UTC, whatever the session's time zone is */
static void
put_time(JsonbParseState **object, const char *name, TimestampTz at)
{
	char		buf[MAXDATELEN + 1];
	int			utc = 0;

	(void) JsonEncodeDateTime(buf, TimestampTzGetDatum(at), TIMESTAMPTZOID, &utc);
	put_word(object, name, pstrdup(buf));
}

/* Add a column of the row; one without a value is left out */
static void
put_column(JsonbParseState **object, Attachment *attachment, AttachedColumn *column,
		   TupleTableSlot *row)
{
	bool		isnull;
	Datum		value = slot_getattr(row, column->attnum, &isnull);

	if (isnull)
		return;
	switch (column->type)
	{
		case BOOLOID:
			put_bool(object, column->name, DatumGetBool(value));
			break;
		case INT2OID:
			put_int64(object, column->name, DatumGetInt16(value));
			break;
		case INT4OID:
			put_int64(object, column->name, DatumGetInt32(value));
			break;
		case INT8OID:
			put_int64(object, column->name, DatumGetInt64(value));
			break;
		case TIMESTAMPTZOID:
			put_time(object, column->name, DatumGetTimestampTz(value));
			break;
		default:
			value = attached_text(column, row).value;
			/* the extension's tables hold '' for what is not known */
			if (attachment->own && VARSIZE_ANY_EXHDR(DatumGetPointer(value)) == 0)
				break;
			put_text(object, column->name, value);
			break;
	}
}

/* Members of every event, in jsonb's order */
enum
{
	MEMBER_V, MEMBER_AT, MEMBER_TO, MEMBER_FROM, MEMBER_EVENT, MEMBER_VERSION, MEMBER_TENANT_ID
};

static const char *const members[] = {"v", "at", "to", "from", "event", "version", "tenant_id"};

/* Add one of them by its place */
static void
put_member(JsonbParseState **object, const Attachment *attachment, const Move *move, int n)
{
	const char *name = members[n];

	switch (n)
	{
		case MEMBER_V:
			put_int64(object, name, 1);
			break;
		case MEMBER_AT:
			put_time(object, name, move->at);
			break;
		case MEMBER_TO:
			put_chars(object, name, move->to->name, move->to->len);
			break;
		case MEMBER_FROM:
			if (move->from != NULL)
				put_chars(object, name, move->from->name, move->from->len);
			else
				put_value(object, name, NULL);
			break;
		case MEMBER_EVENT:
			put_word(object, name, move->event);
			break;
		case MEMBER_VERSION:
			if (!move->version.isnull)
				put_int64(object, name, DatumGetInt32(move->version.value));
			break;
		case MEMBER_TENANT_ID:
			if (attachment->tenant.attnum != 0)
				put_text(object, name, move->tenant_id.value);
			break;
	}
}

/*
 * Members are added in the order that jsonb keeps them in, since it would
 * otherwise sort them, which costs as much as all the rest.
 */
static Datum
make_payload(Attachment *attachment, const Move *move)
{
	JsonbParseState *object = NULL;
	ListCell   *cell = list_head(attachment->payload);

	(void) pushJsonbValue(&object, WJB_BEGIN_OBJECT, NULL);
	for (int n = 0; n < (int) lengthof(members); n++)
	{
		for (; cell != NULL; cell = lnext(attachment->payload, cell))
		{
			AttachedColumn *column = lfirst(cell);

			if (jsonb_order(column->name, members[n]) > 0)
				break;
			put_column(&object, attachment, column, move->row);
		}
		put_member(&object, attachment, move, n);
	}
	for (; cell != NULL; cell = lnext(attachment->payload, cell))
		put_column(&object, attachment, lfirst(cell), move->row);
	return PointerGetDatum(JsonbValueToJsonb(pushJsonbValue(&object, WJB_END_OBJECT, NULL)));
}


/* ---------- events ---------- */

/* A word of an event may not be longer than consumers' columns */
static Datum
event_word(Datum value)
{
	text	   *word = DatumGetTextPP(value);
	int			len = VARSIZE_ANY_EXHDR(word);

	if (len > EVENT_WORD_CHARS &&
		pg_mbstrlen_with_len(VARDATA_ANY(word), len) > EVENT_WORD_CHARS)
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				 errmsg("event type or aggregate of an event is too long"),
				 errdetail("It has more than %d characters.", EVENT_WORD_CHARS)));
	return PointerGetDatum(word);
}

/* "entity.state" */
static Datum
event_type(const Attachment *attachment, const Move *move)
{
	return event_word(CStringGetTextDatum(psprintf("%s.%s", attachment->entity, move->to->name)));
}

Datum
outbox_announce(FunctionCallInfo fcinfo, Attachment *attachment, const Move *move)
{
	NullableDatum aggregate_id = attached_text(&attachment->aggregate_id, move->row);
	bool		alone = aggregate_id.isnull;
	const char *aggregate = alone ? attachment->entity : attachment->aggregate;
	NullableDatum row[EVENT_NATTS] = {
		IDEM_VALUE(make_event_id(move->at)),
		move->tenant_id,
		IDEM_VALUE(event_word(CStringGetTextDatum(aggregate))),
		IDEM_VALUE(event_word(alone ? move->key.value : aggregate_id.value)),
		IDEM_VALUE(event_type(attachment, move)),
		IDEM_VALUE(make_payload(attachment, move)),
		IDEM_NULL,				/* headers */
		IDEM_VALUE(TimestampTzGetDatum(move->at))
	};

	log_append(fcinfo, row);
	return row[0].value;
}


/* ---------- the application's own ---------- */

/* The arguments of idem_publish, by position */
enum
{
	ARG_TENANT_ID, ARG_AGGREGATETYPE, ARG_AGGREGATEID, ARG_TYPE, ARG_PAYLOAD, ARG_HEADERS
};

/* A word of an event, of 1 to 255 characters */
static Datum
arg_event_word(IdemCall *call, int n)
{
	text	   *word = DatumGetTextPP(idem_arg_required(call, n).value);
	int			len = VARSIZE_ANY_EXHDR(word);

	if (len == 0)
		idem_bad_argument(call, n, "It has at least one character.");
	if (pg_mbstrlen_with_len(VARDATA_ANY(word), len) > EVENT_WORD_CHARS)
		idem_bad_argument(call, n, "It has at most 255 characters.");
	return PointerGetDatum(word);
}

/* Nobody may forge what the extension itself tells: types of its own entities */
static void
refuse_builtin_type(IdemCall *call, Datum type)
{
	char	   *word = TextDatumGetCString(type);
	char	   *dot = strchr(word, '.');
	uint64		epoch;
	const Machine *machine;

	if (dot == NULL)
		return;
	*dot = '\0';
	machine = machine_find(call->house, word, &epoch);
	if (machine != NULL && machine->builtin)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("events of type \"%s\" belong to idem", TextDatumGetCString(type)),
				 errdetail("They tell of the moves of its own rows, and are written by these alone."),
				 errhint("Begin the type with a word of your own.")));
}

/*
 * idem_publish(tenant_id, aggregatetype, aggregateid, type, payload, headers) -> uuid
 *
 * Errors: ID007 a built-in entity's type, 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_publish);
Datum
idem_publish(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	NullableDatum row[EVENT_NATTS] = {
		IDEM_VALUE(make_event_id(call->now)),
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(arg_event_word(call, ARG_AGGREGATETYPE)),
		IDEM_VALUE(arg_event_word(call, ARG_AGGREGATEID)),
		IDEM_VALUE(arg_event_word(call, ARG_TYPE)),
		idem_arg_required(call, ARG_PAYLOAD),
		idem_arg(call, ARG_HEADERS),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	refuse_builtin_type(call, row[EVENT_TYPE - 1].value);
	log_append(fcinfo, row);
	return idem_leave_value(call, row[EVENT_ID - 1].value);
}
