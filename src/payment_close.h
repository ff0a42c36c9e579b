/*-------------------------------------------------------------------------
 * payment_close.h
 *	  Giving up a payment.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PAYMENT_CLOSE_H
#define IDEM_PAYMENT_CLOSE_H

#include "payment.h"

/*
 * Move a locked pending payment to closing, for the caller to close it at the
 * channel; reconciliation does it if he never comes back.
 */
extern void payment_begin_closing(IdemCall *call, Payment *payment);

/*
 * Give up a locked pending or closing payment: closed, if no channel can know
 * of it, else closing.
 */
extern void payment_give_up(IdemCall *call, Payment *payment);

#endif							/* IDEM_PAYMENT_CLOSE_H */
