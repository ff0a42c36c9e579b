/*-------------------------------------------------------------------------
 * relation.h
 *	  The extension's tables, indexes and sequences by name.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RELATION_H
#define IDEM_RELATION_H

#include "call.h"

/* The relation of this name in this house; invalid: there is none */
extern Oid	relation_oid(const IdemHouse *house, const char *name);

/* The same; raises what is missing, a "table" or a "sequence" */
extern Oid	relation_demand(const IdemHouse *house, const char *what, const char *name);

extern void idem_init_relation(void);

#endif							/* IDEM_RELATION_H */
