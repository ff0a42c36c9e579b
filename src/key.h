/*-------------------------------------------------------------------------
 * key.h
 *	  Numbers, random bytes and digests.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_KEY_H
#define IDEM_KEY_H

#include "call.h"

/* The next number as text: time-ordered, unique across backends and nodes */
extern Datum idem_make_no(IdemCall *call);

/* Several at once, for batches: ascending */
extern void idem_make_nos(IdemCall *call, int count, Datum *numbers);

/* Fill with strong random bytes */
extern void idem_make_random(void *bytes, int n);

/*
 * fingerprint.c: the digest of a jsonb value, bytea; equal values have equal
 * ones, whatever their spelling, the release, the locale and the machine.
 */
#define IDEM_FINGERPRINT_VERSION 1
extern Datum idem_fingerprint(Datum value, int version);

#endif							/* IDEM_KEY_H */
