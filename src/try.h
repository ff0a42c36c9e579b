/*-------------------------------------------------------------------------
 * try.h
 *	  Try something that may fail in an expected way.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TRY_H
#define IDEM_TRY_H

#include "call.h"

typedef void (*IdemStep) (void *arg);

extern ErrorData *idem_catch(IdemStep step, void *arg);
extern ErrorData *idem_try(IdemStep step, void *arg, int expected, int also_expected);

#endif							/* IDEM_TRY_H */
