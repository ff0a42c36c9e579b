/*-------------------------------------------------------------------------
 * outbox.h
 *	  Events: what the world is told of a move.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_OUTBOX_H
#define IDEM_OUTBOX_H

#include "attachment.h"
#include "direct.h"

/* A move that a guarded row has made */
typedef struct Move
{
	TupleTableSlot *row;		/* as it is now */
	NullableDatum tenant_id;
	NullableDatum key;
	NullableDatum version;		/* int4 */
	const MachineState *from;	/* NULL at birth */
	const MachineState *to;
	const char *event;
	TimestampTz at;
} Move;

/* Append the event of a move; returns its id, a uuid */
extern Datum outbox_announce(FunctionCallInfo fcinfo, Attachment *attachment, const Move *move);

#endif							/* IDEM_OUTBOX_H */
