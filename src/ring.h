/*-------------------------------------------------------------------------
 * ring.h
 *	  Rings of tables that are emptied as a whole.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RING_H
#define IDEM_RING_H

#include "look.h"

/* The ring's current table, and since when; by what is committed now */
extern int	ring_current(const IdemHouse *house, const char *ring, TimestampTz *since);

/* Turn the rings, and empty what nobody needs; how many tables were emptied */
extern int64 ring_turn(IdemCall *call);

/* Is it the ring that truncates a table just now? */
extern bool ring_is_emptying(void);

#endif							/* IDEM_RING_H */
