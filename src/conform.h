/*-------------------------------------------------------------------------
 * conform.h
 *	  Which rows of guarded tables are in no state of a machine.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CONFORM_H
#define IDEM_CONFORM_H

#include "attachment.h"

#include "lib/stringinfo.h"
#include "utils/snapshot.h"

/* Rows that do not conform, found so far in however many tables */
typedef struct Misfits
{
	int64		rows;
	int			tables;			/* that hold some */
	StringInfoData words;		/* the first of them, a sentence a table */
} Misfits;

extern void conform_start(Misfits *misfits);

/*
 * Look for rows of a table that a machine has no state for.  With `since`,
 * only among those that changed after that snapshot, which saw none; nobody
 * may be writing to the table then.
 */
extern void conform_check(Misfits *misfits, Relation table, Attachment *attachment,
						  const Machine *machine, Snapshot since);

/* Raise 23514 if any were found, naming tables and keys */
extern void conform_demand(const Misfits *misfits, const char *machine_name);

#endif							/* IDEM_CONFORM_H */
