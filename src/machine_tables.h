/*-------------------------------------------------------------------------
 * machine_tables.h
 *	  The tables that are attached to a machine.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MACHINE_TABLES_H
#define IDEM_MACHINE_TABLES_H

#include "machine.h"

#include "access/htup.h"

/* The tables that have a guard of this machine, ascending by OID, as of now */
extern List *machine_tables(const IdemHouse *house, const char *machine_name);

/* Of these, the ones in which an index keeps one row of a key active */
extern List *machine_tables_with_active_key(const IdemHouse *house, const char *machine_name);

/* The function of all guards of a house */
extern Oid	machine_guard_function(const IdemHouse *house);

/* Call a function for each row of pg_trigger that calls a guard, as of now */
typedef void (*TriggerVisitor) (HeapTuple row, TupleDesc desc, void *arg);
extern void machine_visit_triggers(Oid guard, TriggerVisitor visit, void *arg);

#endif							/* IDEM_MACHINE_TABLES_H */
