/*-------------------------------------------------------------------------
 * move.h
 *	  Rows of attached tables, by key and with the caller's own rights.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MOVE_H
#define IDEM_MOVE_H

#include "attachment.h"

#include "utils/snapshot.h"

/* A statement on an attached table; its first arguments are the key's columns */
typedef enum MoveStatement
{
	MOVE_LOOK,
	MOVE_LOCK,					/* passes over a row that is locked */
	MOVE_PROBE,					/* fails where it is: 55P03 */
	MOVE_STORE,					/* one more argument: the state */
	MOVE_STATEMENTS
} MoveStatement;

/* What is kept of a table: how its rows are found and moved */
typedef struct MoveTable
{
	Oid			relid;
	bool		valid;
	bool		kept;			/* beyond this call */
	MemoryContext context;
	Attachment *attachment;
	List	   *columns;		/* of AttachedColumn: the tenant, if there is one, and the key */
	const char *relation;		/* its name as SQL */
	SPIPlanPtr	plans[MOVE_STATEMENTS];
} MoveTable;

/* A row's key, in the order of the table's columns */
typedef struct MoveKey
{
	Datum		values[INDEX_MAX_KEYS + 1];
	NullableDatum texts[INDEX_MAX_KEYS + 1];
} MoveKey;

/* A row as it was found */
typedef struct MoveRow
{
	NullableDatum state;		/* text */
	int32		version;		/* 0 where there is none */
} MoveRow;

extern MoveTable *move_table(IdemCall *call, Relation relation);
extern void move_read_key(IdemCall *call, int n, Relation relation, const MoveTable *table,
						  MoveKey *key);
extern bool move_find(IdemCall *call, Relation relation, MoveTable *table,
					  MoveStatement statement, const MoveKey *key, Snapshot snapshot, MoveRow *row);
extern bool move_store(IdemCall *call, Relation relation, MoveTable *table, const MoveKey *key,
					   const MachineState *to, MoveRow *row);

extern bool move_was_made(IdemCall *call, const MoveTable *table, const MoveKey *key,
						  const char *event, NullableDatum to_state, int32 since);

extern bool move_history_agrees(IdemCall *call, Attachment *attachment, TupleTableSlot *row,
								NullableDatum state, NullableDatum *last);

extern void idem_init_move(void);

#endif							/* IDEM_MOVE_H */
