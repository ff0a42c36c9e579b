/*-------------------------------------------------------------------------
 * fingerprint.c
 *	  What a request says, in 32 bytes: the same for every spelling of it.
 *
 * A client that repeats a request may send it in another spelling: keys in
 * another order, 1.0 for 1, other whitespace.  And the row that the digest is
 * compared with may have been written years ago, by another release, on
 * another architecture, under another locale, before a dump and a restore
 * into another encoding.  So nothing of the server's own representation goes
 * into it (jsonb orders keys by length, stores numbers in base 10000), but an
 * encoding of our own, which is this for version 1:
 *
 *		null	n
 *		true	t
 *		false	f
 *		number	d, length, decimal digits without exponent, without zeros at
 *				the end of the fraction
 *		string	s, length, UTF-8
 *		array	a, count, elements
 *		object	o, count, members in the order of their keys' bytes; a member
 *				is the key's length, its UTF-8, the value
 *
 * Lengths and counts have four bytes, the highest first.  The digest is the
 * SHA-256 of that after one byte with the version.  Whoever changes anything
 * here makes a new version and keeps the old one; the suite has vectors.
 *-------------------------------------------------------------------------
 */
#include "key.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

/* A member of an object, before its object is sorted */
typedef struct Member
{
	char	   *name;			/* UTF-8 */
	int			length;
	int			offset;			/* of its encoded value among its siblings' */
	int			size;
} Member;

static void encode_next(StringInfo out, JsonbIterator **iterator);

/* Append a length or a count */
static void
put_number(StringInfo out, int number)
{
	uint32		big_endian = pg_hton32((uint32) number);

	appendBinaryStringInfo(out, (char *) &big_endian, sizeof(big_endian));
}

/* Append bytes, their length first */
static void
put_bytes(StringInfo out, const char *bytes, int length)
{
	put_number(out, length);
	appendBinaryStringInfo(out, bytes, length);
}

/* A string of the server's in UTF-8; what is in no encoding stays as it is */
static char *
to_utf8(const char *string, int *length)
{
	char	   *converted;

	if (GetDatabaseEncoding() == PG_SQL_ASCII)
		return unconstify(char *, string);
	converted = pg_server_to_any(string, *length, PG_UTF8);
	if (converted != string)
		*length = strlen(converted);
	return converted;
}

static void
encode_scalar(StringInfo out, const JsonbValue *value)
{
	switch (value->type)
	{
		case jbvNull:
			appendStringInfoChar(out, 'n');
			break;
		case jbvBool:
			appendStringInfoChar(out, value->val.boolean ? 't' : 'f');
			break;
		case jbvNumeric:
			{
				Datum		trimmed = DirectFunctionCall1(numeric_trim_scale,
														  NumericGetDatum(value->val.numeric));
				char	   *digits = DatumGetCString(DirectFunctionCall1(numeric_out, trimmed));

				appendStringInfoChar(out, 'd');
				put_bytes(out, digits, strlen(digits));
				break;
			}
		case jbvString:
			{
				int			length = value->val.string.len;
				char	   *string = to_utf8(value->val.string.val, &length);

				appendStringInfoChar(out, 's');
				put_bytes(out, string, length);
				break;
			}
		default:
			elog(ERROR, "unexpected jsonb value type %d", (int) value->type);
	}
}

/* A scalar at the top stands in an array of its own, which does not count */
static void
encode_array(StringInfo out, JsonbIterator **iterator, const JsonbValue *array)
{
	JsonbValue	end;

	if (!array->val.array.rawScalar)
	{
		appendStringInfoChar(out, 'a');
		put_number(out, array->val.array.nElems);
	}
	for (int i = 0; i < array->val.array.nElems; i++)
		encode_next(out, iterator);
	if (JsonbIteratorNext(iterator, &end, false) != WJB_END_ARRAY)
		elog(ERROR, "jsonb array has more elements than it says");
}

static int
compare_members(const void *a, const void *b)
{
	const Member *x = a;
	const Member *y = b;
	int			cmp = memcmp(x->name, y->name, Min(x->length, y->length));

	return cmp != 0 ? cmp : x->length - y->length;
}

static void
encode_object(StringInfo out, JsonbIterator **iterator, int count)
{
	Member	   *members = palloc(sizeof(Member) * Max(count, 1));
	StringInfoData values;
	JsonbValue	key;

	initStringInfo(&values);
	for (int i = 0; i < count; i++)
	{
		if (JsonbIteratorNext(iterator, &key, false) != WJB_KEY)
			elog(ERROR, "jsonb object has fewer members than it says");
		members[i].length = key.val.string.len;
		members[i].name = to_utf8(key.val.string.val, &members[i].length);
		members[i].offset = values.len;
		encode_next(&values, iterator);
		members[i].size = values.len - members[i].offset;
	}
	if (JsonbIteratorNext(iterator, &key, false) != WJB_END_OBJECT)
		elog(ERROR, "jsonb object has more members than it says");

	qsort(members, count, sizeof(Member), compare_members);
	appendStringInfoChar(out, 'o');
	put_number(out, count);
	for (int i = 0; i < count; i++)
	{
		put_bytes(out, members[i].name, members[i].length);
		appendBinaryStringInfo(out, values.data + members[i].offset, members[i].size);
	}
	pfree(values.data);
	pfree(members);
}

/* Append the value that the iterator comes to next */
static void
encode_next(StringInfo out, JsonbIterator **iterator)
{
	JsonbValue	value;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	switch (JsonbIteratorNext(iterator, &value, false))
	{
		case WJB_BEGIN_ARRAY:
			encode_array(out, iterator, &value);
			break;
		case WJB_BEGIN_OBJECT:
			encode_object(out, iterator, value.val.object.nPairs);
			break;
		case WJB_ELEM:
		case WJB_VALUE:
			encode_scalar(out, &value);
			break;
		default:
			elog(ERROR, "unexpected end of a jsonb value");
	}
}

/*
 * The digest of a jsonb value, as bytea of 32 bytes.
 */
Datum
idem_fingerprint(Datum value, int version)
{
	Jsonb	   *jsonb = DatumGetJsonbP(value);
	JsonbIterator *iterator = JsonbIteratorInit(&jsonb->root);
	StringInfoData out;

	if (version != IDEM_FINGERPRINT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("fingerprints of version %d are not supported", version),
				 errdetail("This library makes fingerprints of version %d.",
						   IDEM_FINGERPRINT_VERSION),
				 errhint("The row was written by a later release of idem; update the library.")));

	initStringInfo(&out);
	appendStringInfoSpaces(&out, VARHDRSZ);
	appendStringInfoChar(&out, (char) version);
	encode_next(&out, &iterator);
	SET_VARSIZE(out.data, out.len);
	return DirectFunctionCall1(sha256_bytea, PointerGetDatum(out.data));
}
