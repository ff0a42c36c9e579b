/*-------------------------------------------------------------------------
 * open_call.h
 *	  How the door notes that a call is entered and left.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_OPEN_CALL_H
#define IDEM_OPEN_CALL_H

#include "call.h"

/* by_api: not by a trigger outside of any call, nor as the caller himself */
extern void open_call_push(bool by_api, const char *reason);
extern void open_call_pop(void);

extern void idem_init_open_call(void);

#endif							/* IDEM_OPEN_CALL_H */
