/*-------------------------------------------------------------------------
 * outbox.h
 *	  Events, and the rows that are appended past the executor.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_OUTBOX_H
#define IDEM_OUTBOX_H

#include "attachment.h"

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

/* An append-only table of the extension, and how to insert into it */
typedef struct IdemLog
{
	const char *table;
	int			natts;
	IdemQuery	insert;			/* the SPI path; its types are the columns' */
} IdemLog;

/*
 * Append a row.  For triggers of ours: the caller's rights do not matter.
 */
extern void idem_append(FunctionCallInfo fcinfo, IdemLog *log, const NullableDatum *row);

/* The same, into one of the tables that the log's table is divided into */
extern void idem_append_to(FunctionCallInfo fcinfo, IdemLog *log, const char *table,
						   const NullableDatum *row);

#endif							/* IDEM_OUTBOX_H */
