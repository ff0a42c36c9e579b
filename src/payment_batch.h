/*-------------------------------------------------------------------------
 * payment_batch.h
 *	  The elements of a batch of payments.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PAYMENT_BATCH_H
#define IDEM_PAYMENT_BATCH_H

#include "payment_create.h"

typedef struct BatchElement
{
	int			ord;			/* its place in the array, from 1 */
	bool		done;			/* decision is final */
	TimestampTz deadline;		/* its own, 0: the call's */
	CreateRequest request;
	CreateDecision decision;
} BatchElement;

/*
 * payment_batch_read.c: the elements of the array in argument n, those that
 * make no sense done with CREATE_ERROR, sorted by order.
 */
extern BatchElement *batch_read(IdemCall *call, int n, int *count);

#endif							/* IDEM_PAYMENT_BATCH_H */
