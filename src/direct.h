/*-------------------------------------------------------------------------
 * direct.h
 *	  Rows that go straight into a table, past the executor.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DIRECT_H
#define IDEM_DIRECT_H

#include "call.h"

/* A table of the extension, and how to insert a whole row into it */
typedef struct IdemTable
{
	const char *table;
	int			natts;
	IdemQuery	insert;			/* the SPI path; its types are the columns' */
} IdemTable;

/*
 * Insert a row, all of its columns in their order, ON CONFLICT DO NOTHING, as
 * the statement has it; false: there is a conflict, or there may be one with
 * a row that is still open.
 */
extern bool idem_insert(IdemCall *call, IdemTable *table, const NullableDatum *row);

/* The same, and where the row is; the statement is RETURNING ctid */
extern bool idem_insert_at(IdemCall *call, IdemTable *table, const NullableDatum *row,
						   ItemPointer tid);

/*
 * Append a row where nothing can be in its way.  For triggers of ours: the
 * caller's rights do not matter.
 */
extern void idem_append(FunctionCallInfo fcinfo, IdemTable *table, const NullableDatum *row);

/* The same, into one of the tables that the table is divided into */
extern void idem_append_to(FunctionCallInfo fcinfo, IdemTable *table, const char *name,
						   const NullableDatum *row);


/* ---------- direct_change.c ---------- */

/*
 * How columns of one row are changed together: set, or added to (integer,
 * bigint).  $1 of the statement is the row's ctid, the columns follow as they
 * are listed, and it is RETURNING ctid.
 */
#define IDEM_MAX_CHANGED 13
#define IDEM_ADDS(attnum) (-(attnum))

typedef struct IdemChange
{
	IdemTable  *table;
	int			columns[IDEM_MAX_CHANGED];
	IdemQuery	update;
} IdemChange;

/*
 * Change a row that is locked, or that only this transaction can have written to;
 * *tid is where it was and then where it is.  false: it is not there as it was.
 */
extern bool idem_change(IdemCall *call, IdemChange *change, ItemPointer tid,
						const NullableDatum *values);

extern void idem_init_direct(void);

#endif							/* IDEM_DIRECT_H */
