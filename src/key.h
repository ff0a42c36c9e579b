/*-------------------------------------------------------------------------
 * key.h
 *	  Numbers and digests.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_KEY_H
#define IDEM_KEY_H

#include "call.h"

/* The next number as text: time-ordered, unique across backends and nodes */
extern Datum idem_make_no(IdemCall *call);

/* Several at once, for batches: ascending */
extern void idem_make_nos(IdemCall *call, int count, Datum *numbers);

#endif							/* IDEM_KEY_H */
