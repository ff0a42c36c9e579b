/*-------------------------------------------------------------------------
 * payment_batch_read.c
 *	  The array of requests that idem_create_payments is given.
 *
 * An element that makes no sense must not stop the others, and a
 * subtransaction for each would cost more than its payment.  So nothing here
 * raises for an element's contents: values are checked by hand, and the one
 * input function that can only raise, that of interval, is a pure function
 * whose error is caught and thrown away.
 *-------------------------------------------------------------------------
 */
#include "payment_batch.h"

#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

/* An element being read; sqlstate stays 0 while all is well */
typedef struct Reader
{
	IdemCall   *call;
	BatchElement *element;
	int			sqlstate;
	bool		has_expires_in;
	NullableDatum token;
} Reader;

static void
fail(Reader *reader, int sqlstate)
{
	if (reader->sqlstate == 0)
		reader->sqlstate = sqlstate;
}

static text *
text_of(const JsonbValue *value)
{
	return cstring_to_text_with_len(value->val.string.val, value->val.string.len);
}

/* A key: a string of 1 to 255 bytes */
static void
read_key(Reader *reader, const JsonbValue *value, NullableDatum *key)
{
	if (value->type == jbvNull)
		return;
	if (value->type != jbvString || value->val.string.len < 1 ||
		value->val.string.len > IDEM_KEY_BYTES)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
	else
		*key = IDEM_VALUE(PointerGetDatum(text_of(value)));
}

/* A string of whatever length: one that is no token is an unknown one */
static void
read_token(Reader *reader, const JsonbValue *value)
{
	if (value->type == jbvString)
		reader->token = IDEM_VALUE(PointerGetDatum(text_of(value)));
	else if (value->type != jbvNull)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

/* A whole number of minor units, greater than zero */
static void
read_amount(Reader *reader, const JsonbValue *value)
{
	char	   *digits;
	char	   *end;

	if (value->type == jbvNull)
		return;
	if (value->type != jbvNumeric)
	{
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
		return;
	}
	digits = DatumGetCString(DirectFunctionCall1(numeric_out,
												 NumericGetDatum(value->val.numeric)));
	errno = 0;
	reader->element->request.amount = strtoll(digits, &end, 10);
	if (*end == '.')
		end += 1 + strspn(end + 1, "0");
	if (errno != 0 || *end != '\0' || reader->element->request.amount <= 0)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

static void
read_currency(Reader *reader, const JsonbValue *value)
{
	if (value->type == jbvNull)
		return;
	if (value->type != jbvString ||
		!idem_is_currency(PointerGetDatum(text_of(value)), &reader->element->request.currency))
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

static void
read_repurchase(Reader *reader, const JsonbValue *value)
{
	if (value->type == jbvBool)
		reader->element->request.repurchase = value->val.boolean;
	else if (value->type != jbvNull)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

/* The moment that lies this span after now; false: no span of time, or none we take */
static bool
moment_after(IdemCall *call, const JsonbValue *value, bool zero_allowed, TimestampTz *moment)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool good = true;
	char	   *words;

	if (value->type != jbvString)
		return false;
	words = pnstrdup(value->val.string.val, value->val.string.len);
	PG_TRY();
	{
		Datum		span = DirectFunctionCall3(interval_in, CStringGetDatum(words),
											   ObjectIdGetDatum(InvalidOid),
											   Int32GetDatum(-1));

		good = idem_span_end(call, DatumGetIntervalP(span), zero_allowed, moment) == NULL;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		good = false;
	}
	PG_END_TRY();
	return good;
}

static void
read_expires_in(Reader *reader, const JsonbValue *value)
{
	TimestampTz moment;

	reader->has_expires_in = true;
	if (value->type == jbvNull)
		return;
	if (!moment_after(reader->call, value, false, &moment))
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
	else
		reader->element->request.lifetime_us = moment - reader->call->now;
}

static void
read_wait(Reader *reader, const JsonbValue *value)
{
	if (value->type != jbvNull &&
		!moment_after(reader->call, value, true, &reader->element->deadline))
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

/* jbvBinary and scalars alike */
static void
read_metadata(Reader *reader, JsonbValue *value)
{
	if (value->type != jbvNull)
		reader->element->request.metadata =
			IDEM_VALUE(JsonbPGetDatum(JsonbValueToJsonb(value)));
}

static bool
is_named(const JsonbValue *name, const char *word)
{
	return name->val.string.len == (int) strlen(word) &&
		memcmp(name->val.string.val, word, name->val.string.len) == 0;
}

/* One field of an element, by the names of idem_create_payment's arguments */
static void
read_field(Reader *reader, const JsonbValue *name, JsonbValue *value)
{
	CreateRequest *request = &reader->element->request;

	if (is_named(name, "order_id"))
	{
		NullableDatum key = IDEM_NULL;

		read_key(reader, value, &key);
		request->order_id = key.value;
	}
	else if (is_named(name, "amount"))
		read_amount(reader, value);
	else if (is_named(name, "currency"))
		read_currency(reader, value);
	else if (is_named(name, "request_key"))
		read_key(reader, value, &request->request_key);
	else if (is_named(name, "repurchase"))
		read_repurchase(reader, value);
	else if (is_named(name, "channel"))
		read_key(reader, value, &request->channel);
	else if (is_named(name, "account"))
		read_key(reader, value, &request->account);
	else if (is_named(name, "payment_no"))
		read_key(reader, value, &request->payment_no);
	else if (is_named(name, "expires_in"))
		read_expires_in(reader, value);
	else if (is_named(name, "metadata"))
		read_metadata(reader, value);
	else if (is_named(name, "wait"))
		read_wait(reader, value);
	else if (is_named(name, "token"))
		read_token(reader, value);
	else
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
}

/* What must be there, and what goes together */
static void
check_whole(Reader *reader)
{
	CreateRequest *request = &reader->element->request;

	if (request->order_id == (Datum) 0 || request->amount == 0 ||
		request->currency == (Datum) 0)
		fail(reader, ERRCODE_NULL_VALUE_NOT_ALLOWED);
	if (request->repurchase && request->request_key.isnull)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
	if (!request->payment_no.isnull && create_bad_number(request->payment_no.value) != NULL)
		fail(reader, ERRCODE_INVALID_PARAMETER_VALUE);
	if (!reader->has_expires_in)
		request->lifetime_us = 30 * USECS_PER_MINUTE;
}

static void
read_element(IdemCall *call, JsonbValue *value, BatchElement *element)
{
	Reader		reader = {call, element, 0, false, IDEM_NULL};
	CreateRequest *request = &element->request;

	memset(request, 0, sizeof(CreateRequest));
	request->request_key = request->channel = request->account = IDEM_NULL;
	request->payment_no = request->metadata = IDEM_NULL;

	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		fail(&reader, ERRCODE_INVALID_PARAMETER_VALUE);
	else
	{
		JsonbIterator *fields = JsonbIteratorInit(value->val.binary.data);
		JsonbValue	name;
		JsonbValue	field;

		(void) JsonbIteratorNext(&fields, &name, true);
		while (JsonbIteratorNext(&fields, &name, true) == WJB_KEY)
		{
			(void) JsonbIteratorNext(&fields, &field, true);
			read_field(&reader, &name, &field);
		}
		check_whole(&reader);
	}
	if (reader.sqlstate == 0 &&
		!create_read_token(call, reader.token, request, &element->decision))
		fail(&reader, element->decision.sqlstate);
	if (reader.sqlstate != 0)
	{
		element->done = true;
		element->decision.outcome = CREATE_ERROR;
		element->decision.sqlstate = reader.sqlstate;
	}
}

/* By order; elements without one, which are bad ones, first; stable by ord */
static int
compare_elements(const void *a, const void *b)
{
	const BatchElement *x = a;
	const BatchElement *y = b;
	int			cmp = 0;

	if (x->request.order_id != (Datum) 0 && y->request.order_id != (Datum) 0)
		cmp = idem_compare_text(x->request.order_id, y->request.order_id);
	else if (x->request.order_id != y->request.order_id)
		cmp = x->request.order_id == (Datum) 0 ? -1 : 1;
	return cmp != 0 ? cmp : x->ord - y->ord;
}

BatchElement *
batch_read(IdemCall *call, int n, int *count)
{
	NullableDatum arg = idem_arg_required(call, n);
	Jsonb	   *requests = DatumGetJsonbP(arg.value);
	BatchElement *elements;
	JsonbIterator *array;
	JsonbValue	value;
	int			i = 0;

	if (!JB_ROOT_IS_ARRAY(requests) || JB_ROOT_IS_SCALAR(requests))
		idem_bad_argument(call, n, "Requests are a JSON array of objects.");

	elements = palloc0(sizeof(BatchElement) * Max(JB_ROOT_COUNT(requests), 1));
	array = JsonbIteratorInit(&requests->root);
	(void) JsonbIteratorNext(&array, &value, true);
	while (JsonbIteratorNext(&array, &value, true) == WJB_ELEM)
	{
		elements[i].ord = i + 1;
		read_element(call, &value, &elements[i]);
		i++;
	}
	qsort(elements, i, sizeof(BatchElement), compare_elements);
	*count = i;
	return elements;
}
