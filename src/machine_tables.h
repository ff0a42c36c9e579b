/*-------------------------------------------------------------------------
 * machine_tables.h
 *	  The tables that are attached to a machine.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MACHINE_TABLES_H
#define IDEM_MACHINE_TABLES_H

#include "machine.h"

/* The tables that have a guard of this machine, ascending by OID, as of now */
extern List *machine_tables(const IdemHouse *house, const char *machine_name);

/* Of these, the ones in which an index keeps one row of a key active */
extern List *machine_tables_with_active_key(const IdemHouse *house, const char *machine_name);

/* The function of all guards of a house */
extern Oid	machine_guard_function(const IdemHouse *house);

#endif							/* IDEM_MACHINE_TABLES_H */
