/*-------------------------------------------------------------------------
 * table_lock.h
 *	  Lock tables of users for as long as a call may wait.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TABLE_LOCK_H
#define IDEM_TABLE_LOCK_H

#include "call.h"

#include "nodes/pg_list.h"

extern bool table_lock_all(IdemCall *call, List *tables, LOCKMODE mode);

#endif							/* IDEM_TABLE_LOCK_H */
