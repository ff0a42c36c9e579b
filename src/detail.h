/*-------------------------------------------------------------------------
 * detail.h
 *	  What an anomaly says of its fact: a jsonb object, name by name.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DETAIL_H
#define IDEM_DETAIL_H

#include "call.h"

#include "lib/stringinfo.h"

extern void detail_begin(StringInfo json);
extern void detail_text(StringInfo json, const char *name, NullableDatum value);
extern void detail_number(StringInfo json, const char *name, NullableDatum value);	/* int8 */
extern NullableDatum detail_end(IdemCall *call, StringInfo json);	/* jsonb, in the call's memory */

#endif							/* IDEM_DETAIL_H */
