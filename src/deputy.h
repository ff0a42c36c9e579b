/*-------------------------------------------------------------------------
 * deputy.h
 *	  A user's function, called as the role that registered it.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DEPUTY_H
#define IDEM_DEPUTY_H

#include "call.h"

/* Role and function (schema.name, quoted as in SQL) as they were stored */
extern NullableDatum deputy_call(const char *role, const char *function, Oid result,
								 int nargs, const Oid *argtypes, const Datum *args);

#endif							/* IDEM_DEPUTY_H */
