/*-------------------------------------------------------------------------
 * compat.h
 *	  The newest server API, brought to the older releases.
 *
 * This is the only file that knows a PostgreSQL version: the others are
 * written against the newest release, and what that lacks in an older one is
 * made up for here.  Supported: 13 to 18.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#include "access/genam.h"
#include "fmgr.h"
#include "utils/guc.h"
#include "utils/plancache.h"

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#if PG_VERSION_NUM < 130000
#error "idem needs PostgreSQL 13 or later"
#endif

/* 18: noreturn stands before the function, pg_attribute_noreturn() is gone */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 18: index_beginscan takes a place for instrumentation */
#if PG_VERSION_NUM >= 180000
#define idem_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define idem_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

/* 14: index_insert is told whether an UPDATE left the key unchanged */
#if PG_VERSION_NUM >= 140000
#define idem_index_insert(index, values, isnull, tid, heap, unique, info) \
	index_insert(index, values, isnull, tid, heap, unique, false, info)
#else
#define idem_index_insert(index, values, isnull, tid, heap, unique, info) \
	index_insert(index, values, isnull, tid, heap, unique, info)
#endif

/* 14: a plan is held by a resource owner, or by none */
#if PG_VERSION_NUM >= 140000
#define idem_release_plan(plan, saved) \
	ReleaseCachedPlan(plan, (saved) ? CurrentResourceOwner : NULL)
#else
#define idem_release_plan(plan, saved) ReleaseCachedPlan(plan, saved)
#endif

/* 14: a hash table with string keys says so; before, it is what flags of 0 mean */
#if PG_VERSION_NUM < 140000
#define HASH_STRINGS 0
#endif

/* 14: every array type has a name in C */
#if PG_VERSION_NUM < 140000
#define BOOLARRAYOID 1000
#define INT8ARRAYOID 1016
#define TIMESTAMPTZARRAYOID 1185
#define JSONBARRAYOID 3807
#endif

/* 15: the prefix is reserved, not only checked */
#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#endif

/* 15: the flushed end of the log may be of another timeline */
#if PG_VERSION_NUM >= 150000
#define idem_flushed_upto() GetFlushRecPtr(NULL)
#else
#define idem_flushed_upto() GetFlushRecPtr()
#endif

/* 16: one ACL check for all kinds of object */
#if PG_VERSION_NUM < 160000
#include "utils/acl.h"
#define idem_schema_aclcheck(nsp, role, mode) pg_namespace_aclcheck(nsp, role, mode)
#define idem_function_aclcheck(function, role, mode) pg_proc_aclcheck(function, role, mode)
#define idem_owns_table(relid, role) pg_class_ownercheck(relid, role)
#else
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "utils/acl.h"
#define idem_schema_aclcheck(nsp, role, mode) \
	object_aclcheck(NamespaceRelationId, nsp, role, mode)
#define idem_function_aclcheck(function, role, mode) \
	object_aclcheck(ProcedureRelationId, function, role, mode)
#define idem_owns_table(relid, role) object_ownercheck(RelationRelationId, relid, role)
#endif

/* 15: shared memory is asked for in a hook; before, while the library is loaded */
#if PG_VERSION_NUM >= 150000
#include "miscadmin.h"
typedef shmem_request_hook_type IdemShmemRequest;
#define idem_hook_shmem_request(next, function) \
	do { (next) = shmem_request_hook; shmem_request_hook = (function); } while (0)
#else
typedef void (*IdemShmemRequest) (void);
#define idem_hook_shmem_request(next, function) (function)()
#endif

/* 16: an UPDATE says which indexes are to have the new version */
#if PG_VERSION_NUM >= 160000
#include "access/tableam.h"
typedef TU_UpdateIndexes IdemIndexesDue;
#else
typedef bool IdemIndexesDue;
#endif

/* 17: a process is found by its number */
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define idem_vxid_proc(vxid) ProcNumberGetProc((vxid).procNumber)
#else
#include "storage/sinvaladt.h"
#define idem_vxid_proc(vxid) BackendIdGetProc((vxid).backendId)
#endif

#endif							/* IDEM_COMPAT_H */
