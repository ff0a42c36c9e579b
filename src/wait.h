/*-------------------------------------------------------------------------
 * wait.h
 *	  Wake those who wait for events.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WAIT_H
#define IDEM_WAIT_H

/* The transaction has written an event: its commit wakes them */
extern void wait_note_event(void);

extern void idem_init_wait(void);

#endif							/* IDEM_WAIT_H */
