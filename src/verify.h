/*-------------------------------------------------------------------------
 * verify.h
 *	  The checker's result, and the checks that are no statements.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_VERIFY_H
#define IDEM_VERIFY_H

#include "call.h"

/* Columns of the result */
enum
{
	VERIFY_INVARIANT, VERIFY_TENANT_ID, VERIFY_ENTITY, VERIFY_KEY, VERIFY_DETAIL
};

extern void verify_attached_tables(IdemCall *call);

#endif							/* IDEM_VERIFY_H */
