/*-------------------------------------------------------------------------
 * move_table.c
 *	  Rows of attached tables, by key and with the caller's own rights.
 *
 * The statements run as whoever calls: he needs the privileges that they need,
 * row security applies to him, and the table's triggers find his settings.  So
 * search_path is not pinned.  Instead nothing in them is looked up by it: the
 * table and the operators, those of the columns' own types, stand with their
 * schemas, and each parameter has its column's type.  Whoever plants an "="
 * somewhere on a path plants it in vain.
 *
 * Plans are kept per table until something about the table changes.  They are
 * freed when no other call is open, which might be standing on them.
 *-------------------------------------------------------------------------
 */
#include "move.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "lib/stringinfo.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

typedef struct MoveTableEntry
{
	Oid			relid;			/* hash key */
	MoveTable  *table;
} MoveTableEntry;

static HTAB *tables = NULL;


/* ---------- statements ---------- */

/* OPERATOR(schema.=) of a type */
static char *
equality_of(Relation relation, const AttachedColumn *column)
{
	Oid			eq = lookup_type_cache(column->type, TYPECACHE_EQ_OPR)->eq_opr;
	HeapTuple	row = SearchSysCache1(OPEROID, ObjectIdGetDatum(eq));
	Form_pg_operator form;
	char	   *words;

	if (!HeapTupleIsValid(row))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("column \"%s\" of table \"%s\" has a type without equality",
						column->name, RelationGetRelationName(relation)),
				 errdetail("A row cannot be found by it.")));
	form = (Form_pg_operator) GETSTRUCT(row);
	words = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)),
					 NameStr(form->oprname));
	ReleaseSysCache(row);
	return words;
}

/* t.a = $1 AND t.b = $2 */
static char *
key_condition(Relation relation, const MoveTable *table)
{
	StringInfoData words;
	ListCell   *cell;
	int			n = 0;

	initStringInfo(&words);
	foreach(cell, table->columns)
	{
		const AttachedColumn *column = lfirst(cell);

		appendStringInfo(&words, "%st.%s %s $%d", n > 0 ? " AND " : "",
						 quote_identifier(column->name), equality_of(relation, column), n + 1);
		n++;
	}
	return words.data;
}

static char *
statement_text(Relation relation, const MoveTable *table, MoveStatement statement)
{
	const Attachment *attachment = table->attachment;
	char	   *condition = key_condition(relation, table);
	char	   *state = pstrdup(quote_identifier(attachment->state.name));
	char	   *version = attachment->version.attnum == 0 ? "0" :
		psprintf("t.%s", quote_identifier(attachment->version.name));

	if (statement == MOVE_STORE)
		return psprintf("UPDATE %s AS t SET %s = $%d WHERE %s RETURNING t.%s, %s",
						table->relation, state, list_length(table->columns) + 1,
						condition, state, version);
	return psprintf("SELECT t.%s, %s FROM %s AS t WHERE %s%s",
					state, version, table->relation, condition,
					statement == MOVE_LOCK ? " FOR NO KEY UPDATE SKIP LOCKED" :
					statement == MOVE_PROBE ? " FOR NO KEY UPDATE NOWAIT" : "");
}

/* The types of a statement's arguments: those of the columns themselves */
static int
argument_types(Relation relation, const MoveTable *table, MoveStatement statement, Oid *types)
{
	TupleDesc	desc = RelationGetDescr(relation);
	int			n = 0;
	ListCell   *cell;

	foreach(cell, table->columns)
		types[n++] = TupleDescAttr(desc, ((AttachedColumn *) lfirst(cell))->attnum - 1)->atttypid;
	if (statement == MOVE_STORE)
		types[n++] = TupleDescAttr(desc, table->attachment->state.attnum - 1)->atttypid;
	return n;
}

static SPIPlanPtr
find_plan(Relation relation, MoveTable *table, MoveStatement statement)
{
	Oid			types[INDEX_MAX_KEYS + 2];
	int			ntypes;
	char	   *sql;
	SPIPlanPtr	plan = table->plans[statement];

	if (plan != NULL)
		return plan;
	ntypes = argument_types(relation, table, statement, types);
	sql = statement_text(relation, table, statement);
	plan = SPI_prepare_cursor(sql, ntypes, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	if (table->kept && SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep the plan of \"%s\"", sql);
	table->plans[statement] = plan;
	return plan;
}

/* Have a statement planned, if it is to be, before the settings are the caller's */
static void
plan_now(SPIPlanPtr plan, bool kept)
{
	CachedPlan *cached = SPI_plan_get_cached_plan(plan);

	if (cached != NULL)
		idem_release_plan(cached, kept);
}


/* ---------- what is kept of a table ---------- */

/* Relcache callback: a table changed (0: any) */
static void
doubt_tables(Datum arg pg_attribute_unused(), Oid relid)
{
	HASH_SEQ_STATUS scan;
	MoveTableEntry *entry;

	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (!OidIsValid(relid) || entry->relid == relid)
			entry->table->valid = false;
	}
}

/* Free what no longer holds */
static void
sweep_tables(void)
{
	HASH_SEQ_STATUS scan;
	MoveTableEntry *entry;

	hash_seq_init(&scan, tables);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->table->valid)
			continue;
		for (int i = 0; i < MOVE_STATEMENTS; i++)
		{
			if (entry->table->plans[i] != NULL)
				SPI_freeplan(entry->table->plans[i]);
		}
		MemoryContextDelete(entry->table->context);
		hash_search(tables, &entry->relid, HASH_REMOVE, NULL);
	}
}

/* Read what the table's guard says; NULL if it has none */
static MoveTable *
read_table(const IdemHouse *house, Relation relation)
{
	TriggerData data = {0};
	MoveTable  *table;

	data.tg_relation = relation;
	data.tg_trigger = attachment_trigger(house, relation);
	if (data.tg_trigger == NULL)
		return NULL;
	table = palloc0(sizeof(MoveTable));
	table->relid = RelationGetRelid(relation);
	table->context = CurrentMemoryContext;
	table->attachment = attachment_read(&data, house);
	table->columns = list_copy(table->attachment->key);
	if (table->attachment->tenant.attnum != 0)
		table->columns = lcons(&table->attachment->tenant, table->columns);
	table->relation = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
												 RelationGetRelationName(relation));
	table->valid = true;
	return table;
}

/*
 * What is known of an attached table, for as long as the call lasts; NULL if
 * it is not attached.
 */
MoveTable *
move_table(IdemCall *call, Relation relation)
{
	Oid			relid = RelationGetRelid(relation);
	MoveTableEntry *entry = hash_search(tables, &relid, HASH_FIND, NULL);
	MemoryContext context;
	MemoryContext old;
	MoveTable  *table;

	if (entry != NULL && entry->table->valid)
		return entry->table;
	if (idem_calls_open() == 1)
		sweep_tables();

	context = AllocSetContextCreate(call->context, "idem move", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	table = read_table(call->house, relation);
	MemoryContextSwitchTo(old);
	if (table == NULL || hash_search(tables, &relid, HASH_FIND, NULL) != NULL)
		return table;

	entry = hash_search(tables, &relid, HASH_ENTER, NULL);
	entry->table = table;
	table->kept = true;
	MemoryContextSetParent(context, CacheMemoryContext);
	return table;
}


/* ---------- keys ---------- */

pg_noreturn static void
raise_bad_key(IdemCall *call, int n, const MoveTable *table)
{
	StringInfoData names;
	ListCell   *cell;

	initStringInfo(&names);
	foreach(cell, table->columns)
		appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "",
						 ((AttachedColumn *) lfirst(cell))->name);
	idem_bad_argument(call, n, psprintf("The key of a row of %s is an object with these members, none of them null: %s.",
										table->relation, names.data));
}

/* A JSON value in the words in which its column is read; NULL for null */
static char *
value_words(JsonbValue *value)
{
	switch (value->type)
	{
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvNumeric:
			return DatumGetCString(DirectFunctionCall1(numeric_out,
													   NumericGetDatum(value->val.numeric)));
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		case jbvBinary:
			return JsonbToCString(NULL, value->val.binary.data, value->val.binary.len);
		default:
			return NULL;
	}
}

/* A word as a value of a column */
static Datum
column_value(Relation relation, const AttachedColumn *column, char *words)
{
	Form_pg_attribute form = TupleDescAttr(RelationGetDescr(relation), column->attnum - 1);
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(form->atttypid, &input, &ioparam);
	return OidInputFunctionCall(input, words, ioparam, form->atttypmod);
}

/*
 * Read the argument that is a row's key: an object with its columns, and for a
 * single column the value will do.
 */
void
move_read_key(IdemCall *call, int n, Relation relation, const MoveTable *table, MoveKey *key)
{
	Jsonb	   *jsonb = DatumGetJsonbP(idem_arg_required(call, n).value);
	int			ncolumns = list_length(table->columns);
	ListCell   *cell;
	int			i = 0;

	if (JB_ROOT_IS_SCALAR(jsonb) ? ncolumns != 1 :
		!JB_ROOT_IS_OBJECT(jsonb) || (int) JB_ROOT_COUNT(jsonb) != ncolumns)
		raise_bad_key(call, n, table);

	foreach(cell, table->columns)
	{
		AttachedColumn *column = lfirst(cell);
		JsonbValue	scalar;
		JsonbValue *value = &scalar;
		char	   *words;

		if (JB_ROOT_IS_SCALAR(jsonb))
			(void) JsonbExtractScalar(&jsonb->root, &scalar);
		else
			value = getKeyJsonValueFromContainer(&jsonb->root, column->name,
												 strlen(column->name), NULL);
		words = value == NULL ? NULL : value_words(value);
		if (words == NULL)
			raise_bad_key(call, n, table);
		key->values[i] = column_value(relation, column, words);
		key->texts[i] = IDEM_VALUE(attached_value_text(column, key->values[i]));
		i++;
	}
}


/* ---------- rows ---------- */

/* The row that the last statement returned; false: none */
static bool
read_row(IdemCall *call, MoveTable *table, MoveRow *row)
{
	NullableDatum version;

	MemoryContextSwitchTo(call->context);
	if (SPI_processed == 0)
		return false;
	if (SPI_processed > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("key of table %s names more than one row", table->relation),
				 errdetail("Tables that inherit from it do not share its keys."),
				 errhint("Name the table that the row is in.")));
	row->state = idem_result(call, 0, 1);
	if (!row->state.isnull)
		row->state.value = attached_value_text(&table->attachment->state, row->state.value);
	version = idem_result(call, 0, 2);
	row->version = version.isnull ? 0 : DatumGetInt32(version.value);
	return true;
}

static void
demand_success(int rc, MoveStatement statement)
{
	if (rc != SPI_OK_SELECT && rc != SPI_OK_UPDATE_RETURNING)
		elog(ERROR, "statement %d on an attached table returned %s",
			 statement, SPI_result_code_string(rc));
}

/*
 * Look for a row, or lock it; false: there is none, or none that can be locked.
 * A look takes a snapshot.
 */
bool
move_find(IdemCall *call, Relation relation, MoveTable *table, MoveStatement statement,
		  const MoveKey *key, Snapshot snapshot, MoveRow *row)
{
	SPIPlanPtr	plan;
	Datum		values[INDEX_MAX_KEYS + 1];

	memcpy(values, key->values, sizeof(values));
	idem_connect_as_caller(call);
	plan = find_plan(relation, table, statement);
	if (statement == MOVE_LOOK)
		demand_success(SPI_execute_snapshot(plan, values, NULL, snapshot, InvalidSnapshot,
											true, false, 0), statement);
	else
		demand_success(SPI_execute_plan(plan, values, NULL, false, 0), statement);
	return read_row(call, table, row);
}

/*
 * Give a row another state.  false: its guard, or somebody else's trigger,
 * leaves it as it is.
 */
bool
move_store(IdemCall *call, Relation relation, MoveTable *table, const MoveKey *key,
		   const MachineState *to, MoveRow *row)
{
	SPIPlanPtr	plan = find_plan(relation, table, MOVE_STORE);
	int			ncolumns = list_length(table->columns);
	Datum		values[INDEX_MAX_KEYS + 2];

	memcpy(values, key->values, sizeof(Datum) * ncolumns);
	values[ncolumns] = column_value(relation, &table->attachment->state, pstrdup(to->name));
	plan_now(plan, table->kept);
	idem_unpin_plans(call);
	idem_begin_attempt();
	demand_success(SPI_execute_plan(plan, values, NULL, false, 0), MOVE_STORE);
	idem_end_attempt();
	return read_row(call, table, row);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_move(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(MoveTableEntry);
	tables = hash_create("idem moves", 16, &info, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(doubt_tables, (Datum) 0);
}
