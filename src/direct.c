/*-------------------------------------------------------------------------
 * direct.c
 *	  Rows that go straight into a table, past the executor.
 *
 * An SPI statement costs several times what its row costs: with each call the
 * executor opens the table anew, compiles the checks of its columns and of partial
 * indexes, and looks for conflicts where we have just looked.  So a row goes
 * straight into the heap and its indexes, which is what the executor would do
 * with it, as long as there is nothing else that the executor would do.  The
 * danger is to pass over something that a user has added: a trigger, a rule, a
 * check, an index of another kind.  Where there is anything of that, where the
 * table is no heap or has not the columns that we know, or where triggers do
 * not fire as usual (session_replication_role), the row goes through the
 * statement, with the same values.  What is known of a table is kept until the
 * table or one of its indexes changes, of a domain until its checks do.
 *
 * Two triggers do not stand in the way: the stamp on foreign events, since
 * ours have what it gives, and the guard after an INSERT, which is called here
 * as the executor would call it.
 *
 * Nobody else can hold the unique keys of a row whose names are locked and
 * which was looked for, unless he inserts by SQL of his own.  For him, and where
 * no name was locked, the row is inserted speculatively, as by ON CONFLICT: should
 * an index have the key, or an open transaction's row with it, the row is taken
 * back and the caller begins again.  Nothing waits here, since names may be locked.
 * A row that is deleted instead would be spared two locks and a record of WAL; but
 * until this transaction ends it looks to others as if it might come, and two that
 * lost against a third then wait for each other.
 *
 * Rows bear the current command id: what the transaction does next sees them,
 * the statement that fired a trigger does not, as with SPI.
 *-------------------------------------------------------------------------
 */
#include "direct_table.h"

#include "machine_tables.h"
#include "relation.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"

typedef struct TableEntry
{
	Oid			oid;			/* hash key */
	KnownTable *table;
} TableEntry;

static HTAB *tables = NULL;
static uint64 doubts = 0;		/* counts invalidations */
static List *domains = NIL;		/* of CheckedDomain */


/* ---------- whose functions? ---------- */

/* Is it no function that the server came with? */
static bool
is_foreign(Oid function, void *context pg_attribute_unused())
{
	return function >= FirstNormalObjectId;
}

/*
 * Does an expression call a function that somebody wrote?  That must not find
 * a caller's search_path while it runs as the owner.
 */
static bool
calls_foreign(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, CoerceToDomain) ||
		check_functions_in_node(node, is_foreign, context) ||
		expression_tree_walker(node, calls_foreign, context);
}


/* ---------- domains ---------- */

/* Look at a domain's checks anew, and forget what was compiled of the former ones */
static void
read_domain(CheckedDomain *domain)
{
	bool		foreign = false;
	ListCell   *cell;

	domain->compiled = NULL;
	MemoryContextReset(domain->context);
	domain->foreign = true;		/* and so it is after an error */
	foreach(cell, domain->checks.constraints)
		foreign |= calls_foreign((Node *) ((DomainConstraintState *) lfirst(cell))->check_expr, NULL);
	domain->foreign = foreign;
}

/*
 * A domain as this backend knows it.  Its checks are compiled once for all columns
 * of that type, cold as they are in each call of many sessions.
 */
static CheckedDomain *
checked_domain(Oid type)
{
	MemoryContext old;
	CheckedDomain *domain;
	ListCell   *cell;

	foreach(cell, domains)
	{
		domain = lfirst(cell);
		if (domain->type == type)
			return domain;
	}
	old = MemoryContextSwitchTo(CacheMemoryContext);
	domain = palloc0(sizeof(CheckedDomain));
	domain->type = type;
	domain->context = AllocSetContextCreate(CacheMemoryContext, "idem domain", ALLOCSET_SMALL_SIZES);
	InitDomainConstraintRef(type, &domain->checks, CacheMemoryContext, false);
	domains = lappend(domains, domain);
	MemoryContextSwitchTo(old);
	read_domain(domain);
	return domain;
}

/*
 * Raise what a domain raises; false: it is not for us to ask.  The server reads a
 * domain's checks again whenever anybody in the database makes or drops a constraint,
 * on whatever table, and domain_check then compiles them once more beside what it had.
 */
static bool
check_domain(CheckedDomain *domain, Datum value, bool isnull)
{
	const List *before = domain->checks.constraints;

	UpdateDomainConstraintRef(&domain->checks);
	if (domain->checks.constraints != before)
		read_domain(domain);
	if (domain->foreign)
		return false;
	domain_check(value, isnull, domain->type, &domain->compiled, domain->context);
	return true;
}


/* ---------- may a row go straight in? ---------- */

/* Is it the trigger that gives foreign rows what ours have (log.c)? */
static bool
is_stamp(const Trigger *trigger, const IdemHouse *house)
{
	char	   *name = get_func_name(trigger->tgfoid);

	return name != NULL && strcmp(name, "idem_outbox_stamp") == 0 &&
		get_func_namespace(trigger->tgfoid) == house->nspoid;
}

/* Is it the guard, to be fired as by us? */
static bool
is_guard(const Trigger *trigger, const IdemHouse *house)
{
	return trigger->tgfoid == machine_guard_function(house) &&
		(trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN ||
		 trigger->tgenabled == TRIGGER_FIRES_ALWAYS) &&
		TRIGGER_FOR_ROW(trigger->tgtype) &&
		trigger->tgnattr == 0 && !trigger->tgdeferrable && trigger->tgqual == NULL &&
		trigger->tgoldtable == NULL && trigger->tgnewtable == NULL;
}

/* Keep a guard to be fired; false: it is none, or one more, and does what we do not know */
static bool
keep_guard(KnownGuard *known, Trigger *trigger, const IdemHouse *house)
{
	if (known->trigger != NULL || !is_guard(trigger, house))
		return false;
	known->trigger = trigger;
	fmgr_info(trigger->tgfoid, &known->function);
	return true;
}

/* Keep the triggers to be fired; what others do is not known */
static void
read_triggers(KnownTable *known, Relation table, const IdemHouse *house)
{
	TriggerDesc *triggers = CopyTriggerDesc(table->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		bool		before = TRIGGER_FOR_BEFORE(trigger->tgtype);

		if (TRIGGER_FOR_INSERT(trigger->tgtype) && !is_stamp(trigger, house) &&
			(before || !keep_guard(&known->after_insert, trigger, house)))
			known->plain = false;
		if (TRIGGER_FOR_UPDATE(trigger->tgtype) &&
			!keep_guard(before ? &known->before_update : &known->after_update, trigger, house))
			known->changeable = false;
	}
}

/* Keep what columns ask for; false: they are not those that we know */
static bool
read_columns(KnownTable *known, Relation table, const IdemTable *expected)
{
	TupleDesc	desc = RelationGetDescr(table);

	if (desc->natts != expected->natts)
		return false;
	known->notnull = palloc(sizeof(bool) * desc->natts);
	known->domains = palloc0(sizeof(CheckedDomain *) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0' ||
			getBaseType(column->atttypid) != expected->insert.argtypes[i])
			return false;
		known->notnull[i] = column->attnotnull;
		if (column->atttypid != expected->insert.argtypes[i])
			known->domains[i] = checked_domain(column->atttypid);
	}
	return true;
}

/* Does an index take the row's columns as they are, and check at once? */
static bool
index_is_plain(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID &&
		index->rd_index->indimmediate &&
		!index->rd_index->indisexclusion &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL);
}

/* May an expression of the table's be evaluated here?  Then there is a context for it. */
static bool
may_evaluate(KnownTable *known, Node *expression)
{
	if (calls_foreign(expression, NULL))
		return false;
	if (known->expressions == NULL)
		known->expressions = CreateStandaloneExprContext();
	return true;
}

/* Keep the table's checks; false: one of them is not for us to ask */
static bool
read_checks(KnownTable *known, Relation table)
{
	TupleConstr *constraints = RelationGetDescr(table)->constr;

	known->nchecks = constraints == NULL ? 0 : constraints->num_check;
	known->checks = palloc(sizeof(ExprState *) * Max(known->nchecks, 1));
	for (int i = 0; i < known->nchecks; i++)
	{
		Node	   *check = stringToNode(constraints->check[i].ccbin);

		if (!may_evaluate(known, check))
			return false;
		known->checks[i] = ExecInitExpr(expression_planner((Expr *) check), NULL);
	}
	return true;
}

/* Keep an index; false: its predicate is not for us to ask */
static bool
read_index(KnownTable *known, Relation index)
{
	KnownIndex *entry = &known->indexes[known->nindexes++];

	entry->oid = RelationGetRelid(index);
	entry->info = BuildIndexInfo(index);
	entry->predicate = NULL;
	if (entry->info->ii_Predicate == NIL)
		return true;
	if (!may_evaluate(known, (Node *) entry->info->ii_Predicate))
		return false;
	entry->predicate = ExecInitQual((List *) expression_planner((Expr *) entry->info->ii_Predicate),
									NULL);
	return true;
}

/* Keep the indexes; false: one of them is of another kind */
static bool
read_indexes(KnownTable *known, Relation table)
{
	List	   *indexes = RelationGetIndexList(table);
	ListCell   *cell;

	if (list_length(indexes) > MAX_INDEXES)
		return false;
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		plain = index_is_plain(index) && read_index(known, index);

		index_close(index, AccessShareLock);
		if (!plain)
			return false;
	}
	return true;
}

/* Does a statement do nothing to this table but what is done here? */
static void
read_table(KnownTable *known, Relation table, const IdemTable *expected, const IdemHouse *house)
{
	known->plain = known->changeable = table->rd_rel->relkind == RELKIND_RELATION &&
		table->rd_rel->relam == HEAP_TABLE_AM_OID &&
		table->rd_rules == NULL &&
		read_columns(known, table, expected) &&
		read_checks(known, table) &&
		read_indexes(known, table);
	if (known->plain)
		read_triggers(known, table, house);
}


/* ---------- what is known ---------- */

static bool
concerns(const KnownTable *table, Oid relid)
{
	if (!OidIsValid(relid) || table->oid == relid)
		return true;
	for (int i = 0; i < table->nindexes; i++)
	{
		if (table->indexes[i].oid == relid)
			return true;
	}
	return false;
}

/* Relcache callback: a table or an index changed (0: any) */
static void
doubt_tables(Datum arg pg_attribute_unused(), Oid relid)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	doubts++;
	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (concerns(entry->table, relid))
			entry->table->valid = false;
	}
}

/* Drop what does not hold any more; whoever is in it may end his work */
static void
sweep_tables(void)
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->table->valid)
			continue;
		MemoryContextSetParent(entry->table->context, TopTransactionContext);
		hash_search(tables, &entry->oid, HASH_REMOVE, NULL);
	}
}

/* Learn a table that is open */
static KnownTable *
learn_table(Relation table, const IdemTable *expected, const IdemHouse *house)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "idem table",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KnownTable *known = palloc0(sizeof(KnownTable));
	uint64		before = doubts;

	known->oid = RelationGetRelid(table);
	known->context = context;
	read_table(known, table, expected, house);
	MemoryContextSwitchTo(old);

	sweep_tables();
	((TableEntry *) hash_search(tables, &known->oid, HASH_ENTER, NULL))->table = known;
	MemoryContextSetParent(context, CacheMemoryContext);
	known->valid = before == doubts;
	return known;
}

/*
 * Open a table.  Its lock stays, as after any INSERT; getting it may tell that
 * what is known of the table does not hold any more.
 */
void
direct_open(OpenTable *open, const IdemHouse *house, const IdemTable *expected,
			const char *name)
{
	Oid			oid = relation_demand(house, "table", name);
	TableEntry *entry = hash_search(tables, &oid, HASH_FIND, NULL);

	if (entry != NULL && entry->table->valid)
	{
		open->known = entry->table;
		open->table = table_open(oid, RowExclusiveLock);
		if (open->known->valid)
			return;
		table_close(open->table, NoLock);
	}
	open->table = table_open(relation_demand(house, "table", name), RowExclusiveLock);
	open->known = learn_table(open->table, expected, house);
}

void
direct_close(OpenTable *open)
{
	table_close(open->table, NoLock);
}

/* May this very row go straight in?  What must not be null is the statement's to say. */
static bool
takes_row(const OpenTable *open, const NullableDatum *row)
{
	if (!open->known->plain || SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return false;
	for (int i = 0; i < RelationGetNumberOfAttributes(open->table); i++)
	{
		if (row[i].isnull && open->known->notnull[i])
			return false;
	}
	return true;
}


/* ---------- insert ---------- */

bool
direct_check_column(const OpenTable *open, int column, Datum value, bool isnull)
{
	CheckedDomain *domain = open->known->domains[column];

	return domain == NULL || check_domain(domain, value, isnull);
}

/* Is an expression true of the row, or, if that will do, unknown? */
static bool
is_true(const OpenTable *open, ExprState *expression, bool or_unknown)
{
	ExprContext *context = open->known->expressions;
	bool		result;

	context->ecxt_scantuple = open->slot;
	result = or_unknown ? ExecCheck(expression, context) : ExecQual(expression, context);
	context->ecxt_scantuple = NULL;
	ResetExprContext(context);
	return result;
}

bool
direct_passes(const OpenTable *open)
{
	for (int i = 0; i < open->known->nchecks; i++)
	{
		if (!is_true(open, open->known->checks[i], true))
			return false;
	}
	return true;
}

/*
 * Put the row into a slot; raises what a domain raises.  false: a check does not
 * hold, or is not for us to ask, which is the statement's to say.
 */
static bool
fill_slot(OpenTable *open, const NullableDatum *row)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(open->table), &TTSOpsVirtual);

	open->slot = slot;
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		if (!direct_check_column(open, i, row[i].value, row[i].isnull))
			return false;
		slot->tts_values[i] = row[i].value;
		slot->tts_isnull[i] = row[i].isnull;
	}
	(void) ExecStoreVirtualTuple(slot);
	return direct_passes(open);
}

/* Does the row belong into an index? */
static bool
index_has(const OpenTable *open, const KnownIndex *entry)
{
	return entry->predicate == NULL || is_true(open, entry->predicate, false);
}

/*
 * Insert the row into one index; false: its key is there, or may be.  The lock
 * on the index goes at once.
 */
static bool
insert_into_index(const OpenTable *open, const KnownIndex *entry, IndexUniqueCheck unique)
{
	Relation	index;
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	bool		satisfied = true;

	if (!index_has(open, entry))
		return true;
	index = index_open(entry->oid, RowExclusiveLock);
	if (index->rd_index->indisready)
	{
		bool		is_unique = index->rd_index->indisunique;

		FormIndexDatum(entry->info, open->slot, NULL, values, nulls);
		satisfied = idem_index_insert(index, values, nulls, &open->slot->tts_tid, open->table,
									  is_unique ? unique : UNIQUE_CHECK_NO, entry->info);
		/* for an index that is not unique it says nothing */
		satisfied |= !is_unique || unique == UNIQUE_CHECK_YES;
	}
	index_close(index, RowExclusiveLock);
	return satisfied;
}

bool
direct_insert_into_indexes(const OpenTable *open, IndexUniqueCheck unique)
{
	for (int i = 0; i < open->known->nindexes; i++)
	{
		if (!insert_into_index(open, &open->known->indexes[i], unique))
			return false;
	}
	return true;
}

/*
 * Form the row in the slot, with the token of a speculative insertion or none, 0,
 * and put it into the heap.  The table's access method would form it twice, since
 * the slot keeps the columns for the indexes.
 */
static void
insert_into_heap(OpenTable *open, uint32 token)
{
	TupleTableSlot *slot = open->slot;

	open->tuple = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
	open->tuple->t_tableOid = slot->tts_tableOid = RelationGetRelid(open->table);
	if (token != 0)
		HeapTupleHeaderSetSpeculativeToken(open->tuple->t_data, token);
	heap_insert(open->table, open->tuple, GetCurrentCommandId(true),
				token != 0 ? HEAP_INSERT_SPECULATIVE : 0, NULL);
	slot->tts_tid = open->tuple->t_self;
}

/* Insert, unless a unique key is there */
static bool
insert_speculatively(OpenTable *open)
{
	TransactionId xid = GetCurrentTransactionId();
	bool		inserted;

	insert_into_heap(open, SpeculativeInsertionLockAcquire(xid));
	inserted = direct_insert_into_indexes(open, UNIQUE_CHECK_PARTIAL);
	if (inserted)
		heap_finish_speculative(open->table, &open->tuple->t_self);
	else
		heap_abort_speculative(open->table, &open->tuple->t_self);
	SpeculativeInsertionLockRelease(xid);
	return inserted;
}

HeapTuple
direct_fire(const OpenTable *open, const KnownGuard *guard, TriggerData *data)
{
	LOCAL_FCINFO(fcinfo, 0);

	data->type = T_TriggerData;
	data->tg_event |= TRIGGER_EVENT_ROW;
	data->tg_relation = open->table;
	data->tg_trigger = guard->trigger;
	InitFunctionCallInfoData(*fcinfo, unconstify(FmgrInfo *, &guard->function), 0, InvalidOid,
							 (Node *) data, NULL);
	return (HeapTuple) DatumGetPointer(FunctionCallInvoke(fcinfo));
}

/* Call the guard after the row is in */
static void
fire_after_insert(OpenTable *open)
{
	TriggerData data = {
		.tg_event = TRIGGER_EVENT_INSERT | TRIGGER_EVENT_AFTER,
		.tg_trigtuple = open->tuple,
		.tg_trigslot = open->slot
	};

	if (open->known->after_insert.trigger != NULL)
		(void) direct_fire(open, &open->known->after_insert, &data);
}

/* Open a table for a row; false: it must go through the statement, and nothing is open */
static bool
open_for_row(OpenTable *open, const IdemHouse *house, const IdemTable *expected,
			 const char *name, const NullableDatum *row)
{
	direct_open(open, house, expected, name);
	if (takes_row(open, row))
	{
		if (fill_slot(open, row))
			return true;
		ExecDropSingleTupleTableSlot(open->slot);
	}
	direct_close(open);
	return false;
}

static void
close_after_row(OpenTable *open)
{
	heap_freetuple(open->tuple);
	ExecDropSingleTupleTableSlot(open->slot);
	direct_close(open);
}

bool
idem_insert_at(IdemCall *call, IdemTable *table, const NullableDatum *row, ItemPointer tid)
{
	OpenTable	open;
	bool		inserted;

	PreventCommandIfReadOnly(NameStr(call->function->name));
	if (!open_for_row(&open, call->house, table, table->table, row))
	{
		inserted = idem_run(call, &table->insert, row) == 1;
		if (inserted && tid != NULL)
			*tid = *(ItemPointer) DatumGetPointer(idem_result(call, 0, 1).value);
		return inserted;
	}
	inserted = insert_speculatively(&open);
	if (inserted)
		fire_after_insert(&open);
	if (tid != NULL)
		*tid = open.slot->tts_tid;
	close_after_row(&open);
	CommandCounterIncrement();
	return inserted;
}

bool
idem_insert(IdemCall *call, IdemTable *table, const NullableDatum *row)
{
	return idem_insert_at(call, table, row, NULL);
}

/* Append by the statement, with all that the table asks for */
static void
append_by_statement(FunctionCallInfo fcinfo, IdemTable *table, const NullableDatum *row)
{
	IdemCall   *call = idem_enter_trigger(fcinfo);

	(void) idem_run(call, &table->insert, row);
	idem_leave_trigger(call);
}

void
idem_append(FunctionCallInfo fcinfo, IdemTable *table, const NullableDatum *row)
{
	idem_append_to(fcinfo, table, table->table, row);
}

void
idem_append_to(FunctionCallInfo fcinfo, IdemTable *table, const char *name,
			   const NullableDatum *row)
{
	OpenTable	open;

	if (!open_for_row(&open, idem_house(fcinfo->flinfo->fn_oid), table, name, row))
	{
		append_by_statement(fcinfo, table, row);
		return;
	}
	insert_into_heap(&open, 0);
	(void) direct_insert_into_indexes(&open, UNIQUE_CHECK_YES);
	close_after_row(&open);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_direct(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(TableEntry);
	tables = hash_create("idem tables", 16, &info, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(doubt_tables, (Datum) 0);
}
