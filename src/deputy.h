/*-------------------------------------------------------------------------
 * deputy.h
 *	  A user's function, called as the role that registered it.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DEPUTY_H
#define IDEM_DEPUTY_H

#include "call.h"

/* A function as it was registered */
typedef struct Deputy
{
	const char *role;			/* who registered it; NULL: nobody is known */
	const char *function;		/* its signature, with its schema, quoted as in SQL */
	Oid			result;			/* what it returns; invalid: it does not matter */
	bool		restricted;		/* even if its role has the caller's rights anyway */
} Deputy;

/* Is it a function that returns at most one value, of this type? */
extern bool deputy_fits(Oid function, Oid result);

/* Raise 42501 unless the role may have it called */
extern void deputy_check_right(Oid function, const char *name, Oid role);

/* Call it, with arguments of which none is NULL */
extern NullableDatum deputy_call(const Deputy *deputy, int nargs, const Datum *args);

#endif							/* IDEM_DEPUTY_H */
