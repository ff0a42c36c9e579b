/*-------------------------------------------------------------------------
 * adapter_read.c
 *	  Readers of what channels send: they raise nothing and guess nothing.
 *
 * A body may hold anything, and an exception would lose the fact in it.  So
 * sums and moments are read digit by digit, and what is not exactly one is not
 * there.  A sum never becomes a floating-point number: 88.88 yuan are 8888 fen,
 * and 88.888 yuan are nothing.
 *-------------------------------------------------------------------------
 */
#include "adapter.h"

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"

/* No sum of money and no moment is longer */
#define LONGEST_NUMBER 40


/* ---------- members ---------- */

static JsonbValue *
find(JsonbContainer *json, const char *name)
{
	JsonbValue	key;

	if (json == NULL || !JsonContainerIsObject(json))
		return NULL;
	key.type = jbvString;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	return findJsonbValueFromContainer(json, JB_FOBJECT, &key);
}

static JsonbContainer *
object_in(const JsonbValue *value)
{
	if (value == NULL || value->type != jbvBinary ||
		!JsonContainerIsObject(value->val.binary.data))
		return NULL;
	return value->val.binary.data;
}

JsonbContainer *
read_object(JsonbContainer *json, const char *name)
{
	return object_in(find(json, name));
}

JsonbContainer *
read_first_object(JsonbContainer *json, const char *name)
{
	JsonbValue *value = find(json, name);

	if (value == NULL || value->type != jbvBinary ||
		!JsonContainerIsArray(value->val.binary.data))
		return NULL;
	return object_in(getIthJsonbValueFromContainer(value->val.binary.data, 0));
}

bool
read_has(JsonbContainer *json, const char *name)
{
	JsonbValue *value = find(json, name);

	return value != NULL && value->type != jbvNull;
}

/* A scalar as a C string; NULL: it is none */
static char *
read_string(JsonbContainer *json, const char *name)
{
	JsonbValue *value = find(json, name);

	if (value == NULL)
		return NULL;
	if (value->type == jbvString)
		return pnstrdup(value->val.string.val, value->val.string.len);
	if (value->type == jbvNumeric)
		return DatumGetCString(DirectFunctionCall1(numeric_out,
												   NumericGetDatum(value->val.numeric)));
	return NULL;
}

NullableDatum
read_text(JsonbContainer *json, const char *name)
{
	char	   *string = read_string(json, name);

	return string == NULL || string[0] == '\0' ? IDEM_NULL : IDEM_TEXT(string);
}

NullableDatum
read_first_text(JsonbContainer *json, const char *const *names, int nnames)
{
	NullableDatum text = IDEM_NULL;

	for (int i = 0; i < nnames && text.isnull; i++)
		text = read_text(json, names[i]);
	return text;
}

NullableDatum
read_currency(JsonbContainer *json, const char *name)
{
	NullableDatum code = read_text(json, name);
	Datum		upper_case;

	if (!code.isnull && idem_is_currency(code.value, &upper_case))
		code = IDEM_VALUE(upper_case);
	return code;
}


/* ---------- sums ---------- */

/*
 * A decimal number as so many units of the last of `digits` decimals.  false:
 * it is no number, does not come out even, or is too large.
 */
static bool
parse_decimal(const char *string, int digits, int64 *sum)
{
	bool		negative = *string == '-';
	int			decimals = -1;	/* seen so far; -1: before the point */
	bool		any = false;

	*sum = 0;
	if (*string == '-' || *string == '+')
		string++;
	for (; *string != '\0'; string++)
	{
		if (*string == '.' && decimals < 0)
		{
			decimals = 0;
			continue;
		}
		if (*string < '0' || *string > '9')
			return false;
		any = true;
		if (decimals >= digits && *string != '0')
			return false;
		if (decimals >= digits)
			continue;
		if (decimals >= 0)
			decimals++;
		if (pg_mul_s64_overflow(*sum, 10, sum) ||
			pg_sub_s64_overflow(*sum, *string - '0', sum))
			return false;
	}
	for (decimals = Max(decimals, 0); decimals < digits; decimals++)
	{
		if (pg_mul_s64_overflow(*sum, 10, sum))
			return false;
	}

	/* counted below zero, where there is one more */
	return any && (negative || !pg_mul_s64_overflow(*sum, -1, sum));
}

static NullableDatum
read_sum(JsonbContainer *json, const char *name, int digits)
{
	char	   *string = read_string(json, name);
	int64		sum;

	if (string == NULL || strlen(string) > LONGEST_NUMBER ||
		!parse_decimal(string, digits, &sum))
		return IDEM_NULL;
	return IDEM_VALUE(Int64GetDatum(sum));
}

NullableDatum
read_minor(JsonbContainer *json, const char *name)
{
	return read_sum(json, name, 0);
}

/* How many decimals a currency has, by ISO 4217 */
static int
decimals_of(NullableDatum currency)
{
	static const char *const none[] = {
		"BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND",
		"VUV", "XAF", "XOF", "XPF"
	};
	static const char *const three[] = {"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"};

	for (size_t i = 0; i < lengthof(none) && !currency.isnull; i++)
	{
		if (idem_text_is(currency.value, none[i]))
			return 0;
	}
	for (size_t i = 0; i < lengthof(three) && !currency.isnull; i++)
	{
		if (idem_text_is(currency.value, three[i]))
			return 3;
	}
	return 2;
}

NullableDatum
read_major(JsonbContainer *json, const char *name, NullableDatum currency)
{
	return read_sum(json, name, decimals_of(currency));
}


/* ---------- moments ---------- */

/* So many digits, and no others; false: they are not there */
static bool
take_digits(const char **at, int count, int *number)
{
	*number = 0;
	for (int i = 0; i < count; i++, (*at)++)
	{
		if (**at < '0' || **at > '9')
			return false;
		*number = *number * 10 + (**at - '0');
	}
	return true;
}

static bool
take(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

/* A fraction of a second, in microseconds; what is finer is left out */
static int
take_fraction(const char **at)
{
	int			fraction = 0;
	int			unit = USECS_PER_SEC;

	if (!take(at, '.'))
		return 0;
	for (; **at >= '0' && **at <= '9'; (*at)++)
	{
		unit /= 10;
		fraction += unit * (**at - '0');
	}
	return fraction;
}

/* Z, +08:00 or +0800; false: what stands there is no offset */
static bool
take_offset(const char **at, int *minutes)
{
	int			sign = **at == '-' ? -1 : 1;
	int			hours;
	int			rest;

	if (**at == '\0')
		return true;
	if (take(at, 'Z'))
	{
		*minutes = 0;
		return **at == '\0';
	}
	if (**at != '+' && **at != '-')
		return false;
	(*at)++;
	if (!take_digits(at, 2, &hours))
		return false;
	(void) take(at, ':');
	if (!take_digits(at, 2, &rest) || **at != '\0' || hours > 15 || rest > 59)
		return false;
	*minutes = sign * (hours * 60 + rest);
	return true;
}

static bool
is_date(int year, int month, int day)
{
	return year >= 1970 && month >= 1 && month <= 12 &&
		day >= 1 && day <= day_tab[isleap(year)][month - 1];
}

static bool
parse_time(const char *at, int offset_minutes, TimestampTz *moment)
{
	int			year,
				month,
				day,
				hour,
				minute,
				second,
				fraction;

	if (!take_digits(&at, 4, &year) || !take(&at, '-') ||
		!take_digits(&at, 2, &month) || !take(&at, '-') ||
		!take_digits(&at, 2, &day) || !is_date(year, month, day) ||
		!(take(&at, ' ') || take(&at, 'T')) ||
		!take_digits(&at, 2, &hour) || !take(&at, ':') ||
		!take_digits(&at, 2, &minute) || !take(&at, ':') ||
		!take_digits(&at, 2, &second) || hour > 23 || minute > 59 || second > 59)
		return false;
	fraction = take_fraction(&at);
	if (!take_offset(&at, &offset_minutes))
		return false;

	*moment = (TimestampTz) (date2j(year, month, day) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY +
		((hour * MINS_PER_HOUR + minute - offset_minutes) * (int64) SECS_PER_MINUTE + second) *
		USECS_PER_SEC + fraction;
	return true;
}

NullableDatum
read_time(JsonbContainer *json, const char *name, int offset_minutes)
{
	char	   *string = read_string(json, name);
	TimestampTz moment;

	if (string == NULL || strlen(string) > LONGEST_NUMBER ||
		!parse_time(string, offset_minutes, &moment))
		return IDEM_NULL;
	return IDEM_VALUE(TimestampTzGetDatum(moment));
}

NullableDatum
read_epoch(JsonbContainer *json, const char *name)
{
	NullableDatum seconds = read_minor(json, name);
	const int64 unix_epoch = (int64) (UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE) * SECS_PER_DAY;

	/* no event was before 1970, and none is after 9999 */
	if (seconds.isnull || DatumGetInt64(seconds.value) < 0 ||
		DatumGetInt64(seconds.value) > INT64CONST(253402300799))
		return IDEM_NULL;
	return IDEM_VALUE(TimestampTzGetDatum((DatumGetInt64(seconds.value) + unix_epoch) *
										  USECS_PER_SEC));
}
