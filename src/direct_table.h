/*-------------------------------------------------------------------------
 * direct_table.h
 *	  What is known of a table whose rows go past the executor.
 *
 * For direct.c, which learns it and inserts, and for direct_change.c.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DIRECT_TABLE_H
#define IDEM_DIRECT_TABLE_H

#include "direct.h"

#include "access/genam.h"
#include "commands/trigger.h"
#include "nodes/execnodes.h"
#include "utils/typcache.h"

/* More indexes than that, and the row goes through the statement */
#define MAX_INDEXES 12

typedef struct KnownIndex
{
	Oid			oid;
	IndexInfo  *info;
	ExprState  *predicate;		/* NULL: the index has every row */
} KnownIndex;

/* A domain and its checks, one for all columns of the type */
typedef struct CheckedDomain
{
	Oid			type;
	DomainConstraintRef checks;
	bool		foreign;		/* one of them calls a function that somebody wrote */
	MemoryContext context;		/* holds what is compiled, until the checks change */
	void	   *compiled;		/* by domain_check */
} CheckedDomain;

/* The guard, where it is fired by us; trigger NULL: it is not */
typedef struct KnownGuard
{
	Trigger    *trigger;
	FmgrInfo	function;
} KnownGuard;

/* What is known of a table */
typedef struct KnownTable
{
	Oid			oid;
	bool		valid;			/* false: something of it may have changed */
	bool		plain;			/* a row may go straight in */
	bool		changeable;		/* and be changed there */
	MemoryContext context;		/* holds this and everything below */
	bool	   *notnull;		/* by column */
	CheckedDomain **domains;	/* by column; NULL: its type is none */
	int			nchecks;
	ExprState **checks;
	int			nindexes;
	KnownIndex	indexes[MAX_INDEXES];
	ExprContext *expressions;	/* in which they are evaluated; NULL: there are none */
	KnownGuard	after_insert;
	KnownGuard	before_update;
	KnownGuard	after_update;
} KnownTable;

/* A table that is open for one row */
typedef struct OpenTable
{
	KnownTable *known;
	Relation	table;
	TupleTableSlot *slot;		/* the row as it is to be stored */
	HeapTuple	tuple;			/* of one that was inserted */
} OpenTable;

extern void direct_open(OpenTable *open, const IdemHouse *house, const IdemTable *expected,
						const char *name);
extern void direct_close(OpenTable *open);

/* Raise what the domain of a column (from 0) raises, if it has one; false: not for us to ask */
extern bool direct_check_column(const OpenTable *open, int column, Datum value, bool isnull);

/* Do the table's checks hold for the row? */
extern bool direct_passes(const OpenTable *open);

/* Into all indexes; false: it was stopped by a key that is there, or may be */
extern bool direct_insert_into_indexes(const OpenTable *open, IndexUniqueCheck unique);

/* Call the guard as the executor would; returns what it returns */
extern HeapTuple direct_fire(const OpenTable *open, const KnownGuard *guard, TriggerData *data);

#endif							/* IDEM_DIRECT_TABLE_H */
