/*-------------------------------------------------------------------------
 * detail.c
 *	  What an anomaly says of its fact: a jsonb object, name by name.
 *
 * What came is kept as it came, also what makes no sense: that is why a human
 * is to look at it.  What did not come is null.
 *-------------------------------------------------------------------------
 */
#include "detail.h"

#include "utils/fmgrprotos.h"
#include "utils/json.h"

void
detail_begin(StringInfo json)
{
	initStringInfo(json);
	appendStringInfoChar(json, '{');
}

static void
append_name(StringInfo json, const char *name)
{
	if (json->len > 1)
		appendStringInfoString(json, ", ");
	escape_json(json, name);
	appendStringInfoString(json, ": ");
}

void
detail_text(StringInfo json, const char *name, NullableDatum value)
{
	append_name(json, name);
	if (value.isnull)
		appendStringInfoString(json, "null");
	else
		escape_json(json, TextDatumGetCString(value.value));
}

void
detail_number(StringInfo json, const char *name, NullableDatum value)
{
	append_name(json, name);
	if (value.isnull)
		appendStringInfoString(json, "null");
	else
		appendStringInfo(json, INT64_FORMAT, DatumGetInt64(value.value));
}

NullableDatum
detail_end(IdemCall *call, StringInfo json)
{
	MemoryContext old = MemoryContextSwitchTo(call->context);
	Datum		detail;

	appendStringInfoChar(json, '}');
	detail = DirectFunctionCall1(jsonb_in, CStringGetDatum(json->data));
	MemoryContextSwitchTo(old);
	return IDEM_VALUE(detail);
}
