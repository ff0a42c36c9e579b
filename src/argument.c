/*-------------------------------------------------------------------------
 * argument.c
 *	  Arguments of the API's functions, checked once and for all.
 *
 * A request with nonsense arguments raises 22004 or 22023 and names the
 * argument.  A fact raises only for a key of its own record that cannot be
 * stored, since an exception would undo the only proof that it happened.
 *-------------------------------------------------------------------------
 */
#include "call.h"

#include "miscadmin.h"
#include "utils/fmgrprotos.h"

/* No span of ours is longer: a date that far out is a mistake */
#define LONGEST_SPAN_YEARS 100

static const char *
argument_name(const IdemCall *call, int n)
{
	return call->function->argnames[n];
}

static bool
is_null(const IdemCall *call, int n)
{
	return call->fcinfo->nargs <= n || call->fcinfo->args[n].isnull;
}

/*
 * Raise 22023 for an argument; detail is a whole sentence.
 */
void
idem_bad_argument(IdemCall *call, int n, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for argument \"%s\" of %s",
					argument_name(call, n), NameStr(call->function->name)),
			 errdetail("%s", detail)));
	pg_unreachable();
}

static void
demand_value(IdemCall *call, int n)
{
	if (is_null(call, n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of %s must not be null",
						argument_name(call, n), NameStr(call->function->name)),
				 errdetail("The argument has no default and cannot be left out.")));
}

/* An argument as it came */
NullableDatum
idem_arg(IdemCall *call, int n)
{
	if (is_null(call, n))
		return IDEM_NULL;
	return IDEM_VALUE(call->fcinfo->args[n].value);
}

/* An argument that must not be null */
NullableDatum
idem_arg_required(IdemCall *call, int n)
{
	demand_value(call, n);
	return idem_arg(call, n);
}

/* A key of a fact: not null, not too long to be stored; empty is recorded */
Datum
idem_arg_fact_key(IdemCall *call, int n)
{
	text	   *key;

	demand_value(call, n);
	key = DatumGetTextPP(call->fcinfo->args[n].value);
	if (VARSIZE_ANY_EXHDR(key) > IDEM_KEY_BYTES)
		idem_bad_argument(call, n, "A key has at most 255 bytes.");
	return PointerGetDatum(key);
}

NullableDatum
idem_arg_optional_fact_key(IdemCall *call, int n)
{
	if (is_null(call, n))
		return IDEM_NULL;
	return IDEM_VALUE(idem_arg_fact_key(call, n));
}

/* A key: text of 1 to 255 bytes */
Datum
idem_arg_key(IdemCall *call, int n)
{
	Datum		key = idem_arg_fact_key(call, n);

	if (VARSIZE_ANY_EXHDR(DatumGetPointer(key)) == 0)
		idem_bad_argument(call, n, "A key has at least one byte.");
	return key;
}

NullableDatum
idem_arg_optional_key(IdemCall *call, int n)
{
	if (is_null(call, n))
		return IDEM_NULL;
	return IDEM_VALUE(idem_arg_key(call, n));
}

/* An amount in minor units, not less than `least` */
int64
idem_arg_amount(IdemCall *call, int n, int64 least)
{
	int64		amount;

	demand_value(call, n);
	amount = DatumGetInt64(call->fcinfo->args[n].value);
	if (amount < least)
		idem_bad_argument(call, n, least > 0 ?
						  "An amount of money is greater than zero, in minor units of its currency." :
						  "An amount of money is not negative, in minor units of its currency.");
	return amount;
}

/*
 * Is this a currency code, three letters?  upper_case gets it in upper case.
 */
bool
idem_is_currency(Datum value, Datum *upper_case)
{
	text	   *code = DatumGetTextPP(value);
	char		letters[3];

	if (VARSIZE_ANY_EXHDR(code) != 3)
		return false;
	for (int i = 0; i < 3; i++)
	{
		char		c = VARDATA_ANY(code)[i];

		if (c >= 'a' && c <= 'z')
			c = c - 'a' + 'A';
		if (c < 'A' || c > 'Z')
			return false;
		letters[i] = c;
	}
	*upper_case = PointerGetDatum(cstring_to_text_with_len(letters, 3));
	return true;
}

/* A currency code, in upper case */
Datum
idem_arg_currency(IdemCall *call, int n)
{
	Datum		currency;

	demand_value(call, n);
	if (!idem_is_currency(call->fcinfo->args[n].value, &currency))
		idem_bad_argument(call, n, "A currency is the three letters of ISO 4217.");
	return currency;
}

/* A role that exists; PUBLIC, which has the number 0 here, is none */
Oid
idem_arg_role(IdemCall *call, int n)
{
	Oid			role;

	demand_value(call, n);
	role = DatumGetObjectId(call->fcinfo->args[n].value);
	if (!OidIsValid(role) || GetUserNameFromId(role, true) == NULL)
		idem_bad_argument(call, n, "It must be an existing role, which PUBLIC is not.");
	return role;
}

/* A flag; NULL counts as false */
bool
idem_arg_bool(IdemCall *call, int n)
{
	return !is_null(call, n) && DatumGetBool(call->fcinfo->args[n].value);
}

/* A word such as a decision, as a C string */
char *
idem_arg_word(IdemCall *call, int n)
{
	demand_value(call, n);
	return text_to_cstring(DatumGetTextPP(call->fcinfo->args[n].value));
}

/*
 * The moment that lies a span after now, into *moment.  Returns what is wrong
 * with the span as a whole sentence, or NULL.
 */
const char *
idem_span_end(IdemCall *call, Interval *span, bool zero_allowed, TimestampTz *moment)
{
	Interval	longest = {0, 0, LONGEST_SPAN_YEARS * MONTHS_PER_YEAR};
	Interval	shortest = {0, 0, -LONGEST_SPAN_YEARS * MONTHS_PER_YEAR};

	/* bounds first, lest the sum overflow */
	if (DatumGetInt32(DirectFunctionCall2(interval_cmp, IntervalPGetDatum(span),
										  IntervalPGetDatum(&longest))) > 0)
		return "A span of time is at most 100 years.";
	if (DatumGetInt32(DirectFunctionCall2(interval_cmp, IntervalPGetDatum(span),
										  IntervalPGetDatum(&shortest))) >= 0)
	{
		*moment = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
														  TimestampTzGetDatum(call->now),
														  IntervalPGetDatum(span)));
		if (*moment > call->now || (zero_allowed && *moment == call->now))
			return NULL;
	}
	return zero_allowed ? "A span of time is not negative." :
		"A span of time is greater than zero.";
}

static TimestampTz
after_span(IdemCall *call, int n, bool zero_allowed)
{
	TimestampTz moment;
	const char *wrong = idem_span_end(call, DatumGetIntervalP(call->fcinfo->args[n].value),
									  zero_allowed, &moment);

	if (wrong != NULL)
		idem_bad_argument(call, n, wrong);
	return moment;
}

/* When something expires that lives for this span; NULL: never */
NullableDatum
idem_arg_expiry(IdemCall *call, int n)
{
	if (is_null(call, n))
		return IDEM_NULL;
	return IDEM_VALUE(TimestampTzGetDatum(after_span(call, n, false)));
}

/* How long the call may wait for others; NULL: idem.wait */
void
idem_arg_wait(IdemCall *call, int n)
{
	if (!is_null(call, n))
		call->deadline = after_span(call, n, true);
}


/* ---------- text ---------- */

bool
idem_same_text(Datum a, Datum b)
{
	text	   *x = DatumGetTextPP(a);
	text	   *y = DatumGetTextPP(b);

	return VARSIZE_ANY_EXHDR(x) == VARSIZE_ANY_EXHDR(y) &&
		memcmp(VARDATA_ANY(x), VARDATA_ANY(y), VARSIZE_ANY_EXHDR(x)) == 0;
}

/* The order of collation "C" */
int
idem_compare_text(Datum a, Datum b)
{
	text	   *x = DatumGetTextPP(a);
	text	   *y = DatumGetTextPP(b);
	int			nx = VARSIZE_ANY_EXHDR(x);
	int			ny = VARSIZE_ANY_EXHDR(y);
	int			cmp = memcmp(VARDATA_ANY(x), VARDATA_ANY(y), Min(nx, ny));

	return cmp != 0 ? cmp : nx - ny;
}

bool
idem_same_nullable(NullableDatum a, NullableDatum b)
{
	if (a.isnull || b.isnull)
		return a.isnull == b.isnull;
	return idem_same_text(a.value, b.value);
}

/* Is a text there, and not empty? */
bool
idem_is_given(NullableDatum text)
{
	return !text.isnull && VARSIZE_ANY_EXHDR(DatumGetPointer(text.value)) > 0;
}

bool
idem_text_is(Datum value, const char *word)
{
	text	   *x = DatumGetTextPP(value);

	return VARSIZE_ANY_EXHDR(x) == strlen(word) &&
		memcmp(VARDATA_ANY(x), word, VARSIZE_ANY_EXHDR(x)) == 0;
}

/*
 * Which of these words a text is, in the order of the enum that they name.
 */
int
idem_word_index(Datum value, const char *const *words, int nwords)
{
	for (int i = 0; i < nwords; i++)
	{
		if (idem_text_is(value, words[i]))
			return i;
	}
	elog(ERROR, "unexpected state \"%s\"", TextDatumGetCString(value));
}
