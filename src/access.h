/*-------------------------------------------------------------------------
 * access.h
 *	  Who may call what for which tenant.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ACCESS_H
#define IDEM_ACCESS_H

#include "call.h"

#include "executor/tuptable.h"

/*
 * Raise ID008 unless the caller may call this function for this tenant
 * (0: a function without tenant_id, which needs '*').  Superusers and members
 * of the owner pass.  Runs as the caller, before the door switches users.
 */
extern void access_check(const IdemCall *call);

/* The same for one named capability, where a function is open to several */
extern void access_require(const IdemCall *call, const char *capability);

/* Has the caller this very capability for the call's tenant? */
extern bool access_has(const IdemCall *call, const char *capability);

/* The capabilities that there are */
extern bool access_knows(const IdemCall *call, const char *capability);
extern char *access_capabilities(const IdemCall *call);

/* Call keep for every row of a small table that is committed now, or is our own */
typedef void (*AccessKeep) (void *into, TupleTableSlot *slot);
extern void access_read_table(Oid relid, AccessKeep keep, void *into);

extern void idem_init_access(void);

#endif							/* IDEM_ACCESS_H */
