/*-------------------------------------------------------------------------
 * brake.h
 *	  The brake: automatic refunds that wait for a human.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_BRAKE_H
#define IDEM_BRAKE_H

#include "receipt.h"

/* What the brake says of an automatic refund */
typedef enum Brake
{
	BRAKE_OFF,					/* it may be sent */
	BRAKE_ON,					/* it is held */
	BRAKE_BURST,				/* the same, for there were too many */
	BRAKE_CLUSTER				/* the same, for the tables came from another cluster */
} Brake;

/* Is the automatic refund of that receipt, not yet written, to be held? */
extern Brake brake_judge(IdemCall *call, const Receipt *receipt);

/*
 * Once the refund is written: put the brake on for all further ones, if that
 * was the judgement.  Names are unlocked on return.
 */
extern void brake_pull(IdemCall *call, Brake brake);

/* Note which cluster these tables live in, unless that is known; names are unlocked */
extern void brake_note_cluster(IdemCall *call);

#endif							/* IDEM_BRAKE_H */
