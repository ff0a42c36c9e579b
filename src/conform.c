/*-------------------------------------------------------------------------
 * conform.c
 *	  Which rows of guarded tables are in no state of a machine.
 *
 * A table may be attached to a machine, and a machine may lose a state, only
 * if no row is left that the machine could say nothing of.  That takes a look
 * at every row, in C: a statement would run the table owner's operators and
 * casts with the rights of the extension's owner.
 *
 * Whoever narrows the rules must look while nobody writes, and writers should
 * not wait for as long as it takes to read the table.  So he looks twice: at
 * everything, while the others work, and then, with the writers locked out, at
 * what has changed since.  A page that is all-visible has not: vacuum marks no
 * page as long as it holds a row that a snapshot in use does not see, and the
 * first look's snapshot is in use.  (Nor can COPY FREEZE have filled it, into a
 * table that was emptied meanwhile: the first look's lock on the table stands
 * until the transaction ends.)
 *-------------------------------------------------------------------------
 */
#include "conform.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Tables, and rows of each, that a message names */
#define TABLES_NAMED 8
#define ROWS_NAMED 5

/* Two stretches of changed pages with fewer than this between them are read as one */
#define SHORTEST_GAP 32

/* One table's check */
typedef struct Conformity
{
	Misfits    *misfits;
	Relation	table;
	Attachment *attachment;
	const Machine *machine;
	int64		rows;			/* of this table that do not conform */
	StringInfoData examples;
	TableScanDesc scan;
	TupleTableSlot *slot;
	MemoryContext row_context;	/* emptied after each row */
} Conformity;

void
conform_start(Misfits *misfits)
{
	misfits->rows = 0;
	misfits->tables = 0;
	initStringInfo(&misfits->words);
}

/* Count a row that does not conform; the first of a table are kept in words */
static void
note_misfit(Conformity *check, NullableDatum state)
{
	StringInfo	examples = &check->examples;

	check->rows++;
	if (check->rows > ROWS_NAMED)
		return;
	if (check->rows > 1)
		appendStringInfoString(examples, ", ");
	appendStringInfoString(examples, attached_words(check->attachment, check->slot));
	if (state.isnull)
		appendStringInfoString(examples, " without a state");
	else
		appendStringInfo(examples, " in \"%s\"", TextDatumGetCString(state.value));
}

static void
check_row(Conformity *check)
{
	NullableDatum state = attached_text(&check->attachment->state, check->slot);

	if (!state.isnull &&
		machine_state(check->machine, VARDATA_ANY(DatumGetPointer(state.value)),
					  VARSIZE_ANY_EXHDR(DatumGetPointer(state.value))) != NULL)
		return;
	note_misfit(check, state);
}

/* Check what the scan returns from where it stands */
static void
check_rows(Conformity *check)
{
	while (table_scan_getnextslot(check->scan, ForwardScanDirection, check->slot))
	{
		MemoryContext old = MemoryContextSwitchTo(check->row_context);

		CHECK_FOR_INTERRUPTS();
		check_row(check);
		MemoryContextSwitchTo(old);
		MemoryContextReset(check->row_context);
	}
}

/*
 * The next stretch of pages, from *begin on, on which not everything is
 * visible to everybody.  false: there is none left.
 */
static bool
next_stretch(Relation table, BlockNumber npages, BlockNumber *begin, BlockNumber *end,
			 Buffer *map)
{
	BlockNumber page = *begin;

	while (page < npages && VM_ALL_VISIBLE(table, page, map))
		page++;
	if (page >= npages)
		return false;
	*begin = page;
	*end = page + 1;
	for (page = *end; page < npages && page - *end < SHORTEST_GAP; page++)
	{
		if (!VM_ALL_VISIBLE(table, page, map))
			*end = page + 1;
	}
	return true;
}

/* Check what lies on pages that have changed */
static void
check_changed_pages(Conformity *check)
{
	BlockNumber npages = RelationGetNumberOfBlocks(check->table);
	BlockNumber begin;
	BlockNumber end = 0;
	Buffer		map = InvalidBuffer;

	for (begin = 0; next_stretch(check->table, npages, &begin, &end, &map); begin = end)
	{
		table_rescan(check->scan, NULL);
		heap_setscanlimits(check->scan, begin, end - begin);
		check_rows(check);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
}

/* Add a table's misfits to the others' */
static void
add_up(Conformity *check)
{
	Misfits    *misfits = check->misfits;
	Relation	table = check->table;
	char	   *schema = NULL;

	if (check->rows == 0)
		return;
	misfits->rows += check->rows;
	misfits->tables++;
	if (misfits->tables > TABLES_NAMED)
		return;
	/* several may bear the same name: say which, unless the caller knows */
	if (!RelationIsVisible(RelationGetRelid(table)))
		schema = get_namespace_name(RelationGetNamespace(table));
	appendStringInfo(&misfits->words, "%sTable %s: %s", misfits->tables > 1 ? "\n" : "",
					 quote_qualified_identifier(schema, RelationGetRelationName(table)),
					 check->examples.data);
	if (check->rows > ROWS_NAMED)
		appendStringInfo(&misfits->words, " and " INT64_FORMAT " more", check->rows - ROWS_NAMED);
	appendStringInfoChar(&misfits->words, '.');
}

void
conform_check(Misfits *misfits, Relation table, Attachment *attachment,
			  const Machine *machine, Snapshot since)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	Conformity	check = {0};

	check.misfits = misfits;
	check.table = table;
	check.attachment = attachment;
	check.machine = machine;
	initStringInfo(&check.examples);
	check.slot = table_slot_create(table, NULL);
	check.row_context = AllocSetContextCreate(CurrentMemoryContext, "idem conform",
											  ALLOCSET_DEFAULT_SIZES);

	/* not in step with other scans: these may start anywhere */
	check.scan = table_beginscan_strat(table, snapshot, 0, NULL, true, since == NULL);
	if (since != NULL && table->rd_tableam == GetHeapamTableAmRoutine())
		check_changed_pages(&check);
	else
		check_rows(&check);
	add_up(&check);

	table_endscan(check.scan);
	ExecDropSingleTupleTableSlot(check.slot);
	MemoryContextDelete(check.row_context);
	UnregisterSnapshot(snapshot);
}

void
conform_demand(const Misfits *misfits, const char *machine_name)
{
	char	   *others = "";

	if (misfits->rows == 0)
		return;
	if (misfits->tables > TABLES_NAMED)
		others = psprintf("\nTables not shown: %d.", misfits->tables - TABLES_NAMED);
	ereport(ERROR,
			(errcode(ERRCODE_CHECK_VIOLATION),
			 errmsg_plural("%lld row would be in no state of machine \"%s\"",
						   "%lld rows would be in no state of machine \"%s\"",
						   (unsigned long) misfits->rows,
						   (long long) misfits->rows, machine_name),
			 errdetail("%s%s", misfits->words.data, others),
			 errhint("Move these rows to other states first, or let the machine have theirs.")));
}
