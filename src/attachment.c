/*-------------------------------------------------------------------------
 * attachment.c
 *	  What the arguments of a guard trigger say about its table.
 *
 * A guard knows its table by its trigger's arguments alone, never by the name
 * or the OID: a shard, a partition and a restored table have others.  Each
 * argument is name=value; those marked * may stand more than once:
 *
 *		machine			the state machine
 *		state			the column that holds the state
 *		entity			what history and events call it
 *		tenant			the column that holds the tenant
 *		key *			the columns that name the row within the tenant
 *		version			the column that counts changes
 *		frozen *		columns that no UPDATE may change
 *		once *			columns that an UPDATE may change from NULL only
 *		grows *			columns of type bigint that no UPDATE may make smaller
 *		birth			the event of being born; default create
 *		history			on (default) or off
 *		outbox			on or off (default)
 *		aggregate		the aggregate type of events; default the entity
 *		aggregate_id	the column with its id; where that is NULL: entity and key
 *		payload *		columns that events carry
 *		append_only		on: no UPDATE at all
 *		own				on: a table of the extension, which restores rows
 *		active_key *	the key of which one row is active (attach.c)
 *		active_index	the index that was made for that
 *		forbid_delete	on: DELETE and TRUNCATE are refused, by other triggers
 *		since			when the table was attached
 *
 * The columns that choose a row's partition are frozen whatever the arguments
 * say: a row that moves to another partition is deleted and inserted, and no
 * AFTER UPDATE trigger ever sees the move.
 *
 * They are read once and kept by the trigger's OID until the table's relcache
 * entry is invalidated: a column may have gone, the owner may be another.  A
 * check may be running on what is thrown away; it is handed to the
 * transaction, which frees it.
 *-------------------------------------------------------------------------
 */
#include "attachment.h"
#include "machine_tables.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/datetime.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/syscache.h"

typedef struct AttachmentEntry
{
	Oid			trigger;		/* hash key */
	Attachment *attachment;
} AttachmentEntry;

static HTAB *attachments = NULL;
static AttachmentEntry *latest = NULL;	/* most rows come after one of the same table */
static uint64 doubts = 0;		/* grows when an entry may have become wrong */


/* ---------- reading the arguments ---------- */

static void
bad_argument(const Trigger *trigger, const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid argument \"%s\" of trigger \"%s\"", argument, trigger->tgname),
			 errdetail("The arguments of a guard are name=value; see COMMENT ON FUNCTION idem_guard().")));
}

static bool
is_time(Oid type)
{
	return type == DATEOID || type == TIMEOID || type == TIMETZOID ||
		type == TIMESTAMPOID || type == TIMESTAMPTZOID;
}

/* Has a value of the type the same text whatever the settings are? */
static bool
has_one_text(Oid type)
{
	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case UUIDOID:
			return true;
		default:
			return type_is_enum(type) || is_time(type);
	}
}

/* Find a column and how its values become text */
static void
read_column(AttachedColumn *column, Relation table, const char *name)
{
	TupleDesc	desc = RelationGetDescr(table);
	Oid			output;
	bool		is_varlena;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || strcmp(NameStr(att->attname), name) != 0)
			continue;
		column->name = name;
		column->attnum = i + 1;
		column->type = getBaseType(att->atttypid);
		column->is_text = column->type == TEXTOID || column->type == VARCHAROID;
		column->is_padded = column->type == BPCHAROID;
		column->is_time = is_time(column->type);
		column->is_styled = !has_one_text(column->type);
		if (!column->is_text)
		{
			getTypeOutputInfo(column->type, &output, &is_varlena);
			fmgr_info_cxt(output, &column->output, CurrentMemoryContext);
		}
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" does not exist",
					name, RelationGetRelationName(table)),
			 errdetail("The table's guard trigger names it in its arguments."),
			 errhint("Detach the state machine and attach it again."),
			 errtable(table)));
}

static AttachedColumn *
make_column(Relation table, const char *name)
{
	AttachedColumn *column = palloc0(sizeof(AttachedColumn));

	read_column(column, table, name);
	return column;
}

/* Read an argument that names a column; false: its name says nothing of one */
static bool
read_column_argument(Attachment *attachment, Relation table, const char *name, const char *value)
{
	AttachedColumn column;

	if (strcmp(name, "state") == 0)
		read_column(&attachment->state, table, value);
	else if (strcmp(name, "tenant") == 0)
		read_column(&attachment->tenant, table, value);
	else if (strcmp(name, "version") == 0)
		read_column(&attachment->version, table, value);
	else if (strcmp(name, "aggregate_id") == 0)
		read_column(&attachment->aggregate_id, table, value);
	else if (strcmp(name, "key") == 0)
		attachment->key = lappend(attachment->key, make_column(table, value));
	else if (strcmp(name, "payload") == 0)
		attachment->payload = lappend(attachment->payload, make_column(table, value));
	else if (strcmp(name, "active_key") == 0)
		attachment->active_key = lappend(attachment->active_key, make_column(table, value));
	else if (strcmp(name, "frozen") == 0 || strcmp(name, "once") == 0)
	{
		read_column(&column, table, value);
		attachment->rules[column.attnum - 1] = name[0] == 'f' ? COLUMN_FROZEN : COLUMN_ONCE;
	}
	else if (strcmp(name, "grows") == 0)
	{
		read_column(&column, table, value);
		if (column.type != INT8OID)
			return false;
		attachment->rules[column.attnum - 1] = COLUMN_GROWS;
	}
	else
		return false;
	return true;
}

/* Read an argument that is on or off, or a word; false: there is none such */
static bool
read_word_argument(Attachment *attachment, const char *name, const char *value)
{
	bool		on = strcmp(value, "on") == 0;

	if (strcmp(name, "machine") == 0)
		attachment->machine_name = value;
	else if (strcmp(name, "entity") == 0)
		attachment->entity = value;
	else if (strcmp(name, "birth") == 0)
		attachment->birth = value;
	else if (strcmp(name, "aggregate") == 0)
		attachment->aggregate = value;
	else if (strcmp(name, "active_index") == 0)
		attachment->active_index = value;
	else if (strcmp(name, "since") == 0)
		attachment->since = value;
	else if (!on && strcmp(value, "off") != 0)
		return false;
	else if (strcmp(name, "history") == 0)
		attachment->history = on;
	else if (strcmp(name, "outbox") == 0)
		attachment->outbox = on;
	else if (strcmp(name, "append_only") == 0)
		attachment->append_only = on;
	else if (strcmp(name, "own") == 0)
		attachment->own = on;
	else if (strcmp(name, "forbid_delete") == 0)
		attachment->forbid_delete = on;
	else
		return false;
	return true;
}

static void
read_argument(Attachment *attachment, const TriggerData *data, const char *argument)
{
	char	   *name = pstrdup(argument);
	char	   *equals = strchr(name, '=');

	if (equals == NULL)
		bad_argument(data->tg_trigger, argument);
	*equals = '\0';
	if (!read_column_argument(attachment, data->tg_relation, name, equals + 1) &&
		!read_word_argument(attachment, name, equals + 1))
		bad_argument(data->tg_trigger, argument);
}

/* The arguments must make sense together */
static void
check_arguments(const Attachment *attachment, const TriggerData *data)
{
	if (attachment->machine_name != NULL &&
		(attachment->state.attnum == 0 || attachment->key == NIL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments of trigger \"%s\" are incomplete", data->tg_trigger->tgname),
				 errdetail("With a machine they name the state column and the key columns.")));
	if (list_length(attachment->key) > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("trigger \"%s\" names too many key columns", data->tg_trigger->tgname),
				 errdetail("A key has at most %d columns.", INDEX_MAX_KEYS)));
	if (attachment->version.attnum != 0 && attachment->version.type != INT4OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("version column \"%s\" of table \"%s\" must be integer",
						attachment->version.name, RelationGetRelationName(data->tg_relation)),
				 errdetail("Its type is %s.", format_type_be(attachment->version.type))));
}

/*
 * Is the last of the table's BEFORE UPDATE triggers a guard that fires when
 * this trigger does?  They are sorted by name, as they fire.
 */
static bool
guard_is_last(const TriggerData *data)
{
	const TriggerDesc *triggers = data->tg_relation->trigdesc;
	const Trigger *last = NULL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW,
								 TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_UPDATE))
			last = trigger;
	}
	return last != NULL &&
		last->tgfoid == data->tg_trigger->tgfoid &&
		last->tgenabled == data->tg_trigger->tgenabled &&
		last->tgnattr == 0 && last->tgqual == NULL;
}

/* Freeze what the partition key of one of a table's ancestors is made of */
static void
freeze_partition_key(Attachment *attachment, Relation table, Relation ancestor)
{
	PartitionKey key = RelationGetPartitionKey(ancestor);
	Bitmapset  *columns = NULL;
	int			column = -1;

	for (int i = 0; i < key->partnatts; i++)
	{
		if (key->partattrs[i] != 0)
			columns = bms_add_member(columns, key->partattrs[i] - FirstLowInvalidHeapAttributeNumber);
	}
	pull_varattnos((Node *) key->partexprs, 1, &columns);
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	attnum = column + FirstLowInvalidHeapAttributeNumber;
		AttachedColumn frozen;

		if (attnum <= 0)
			continue;
		read_column(&frozen, table, pstrdup(NameStr(TupleDescAttr(RelationGetDescr(ancestor),
																  attnum - 1)->attname)));
		attachment->rules[frozen.attnum - 1] = COLUMN_FROZEN;
	}
}

/*
 * Freeze the columns that decide which partition a row is in, on every level.
 * Reading a partition key computes what is constant in it, by functions that
 * may be its table's owner's: as he, since we may be somebody with more rights.
 */
static void
freeze_partition_keys(Attachment *attachment, Relation table)
{
	Oid			user;
	int			user_context;
	ListCell   *cell;

	GetUserIdAndSecContext(&user, &user_context);
	foreach(cell, get_partition_ancestors(RelationGetRelid(table)))
	{
		Relation	ancestor = table_open(lfirst_oid(cell), AccessShareLock);

		SetUserIdAndSecContext(ancestor->rd_rel->relowner,
							   user_context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION);
		freeze_partition_key(attachment, table, ancestor);
		SetUserIdAndSecContext(user, user_context);
		table_close(ancestor, NoLock);
	}
}

/* The order that jsonb keeps members in: it sorts what comes in another one */
static int
compare_members(const ListCell *a, const ListCell *b)
{
	const char *x = ((AttachedColumn *) lfirst(a))->name;
	const char *y = ((AttachedColumn *) lfirst(b))->name;

	return jsonb_order(x, y);
}

/*
 * Read what the arguments of a trigger say, into the current memory context.
 * Of data only the table and the trigger are needed.
 */
Attachment *
attachment_read(const TriggerData *data, const IdemHouse *house)
{
	Attachment *attachment = palloc0(sizeof(Attachment));
	const Trigger *trigger = data->tg_trigger;

	attachment->relid = RelationGetRelid(data->tg_relation);
	attachment->context = CurrentMemoryContext;
	attachment->entity = pstrdup(RelationGetRelationName(data->tg_relation));
	attachment->birth = "create";
	attachment->history = true;
	attachment->last_word = guard_is_last(data);
	attachment->owned = data->tg_relation->rd_rel->relowner == house->owner;
	attachment->natts = RelationGetNumberOfAttributes(data->tg_relation);
	attachment->rules = palloc0(sizeof(ColumnRule) * attachment->natts);

	for (int i = 0; i < trigger->tgnargs; i++)
		read_argument(attachment, data, trigger->tgargs[i]);
	list_sort(attachment->payload, compare_members);
	if (attachment->aggregate == NULL)
		attachment->aggregate = attachment->entity;
	if (data->tg_relation->rd_rel->relispartition)
		freeze_partition_keys(attachment, data->tg_relation);
	check_arguments(attachment, data);
	return attachment;
}


/* ---------- the cache ---------- */

/* Relcache callback: a table changed (0: any) */
static void
doubt_attachments(Datum arg pg_attribute_unused(), Oid relid)
{
	HASH_SEQ_STATUS scan;
	AttachmentEntry *entry;

	doubts++;
	hash_seq_init(&scan, attachments);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (!OidIsValid(relid) || entry->attachment->relid == relid)
			entry->attachment->valid = false;
	}
}

/* Syscache callback: the trigger function, and so the house, may have changed */
static void
doubt_all_attachments(Datum arg, int cacheid pg_attribute_unused(),
					  uint32 hashvalue pg_attribute_unused())
{
	doubt_attachments(arg, InvalidOid);
}

/* Drop what is no longer valid, that of dropped tables too */
static void
sweep_attachments(void)
{
	HASH_SEQ_STATUS scan;
	AttachmentEntry *entry;

	hash_seq_init(&scan, attachments);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->attachment->valid)
			continue;
		MemoryContextSetParent(entry->attachment->context, TopTransactionContext);
		hash_search(attachments, &entry->trigger, HASH_REMOVE, NULL);
	}
	latest = NULL;
}

static Attachment *
load_attachment(const TriggerData *data, const IdemHouse *house)
{
	MemoryContext context;
	MemoryContext old;
	Attachment *attachment;
	AttachmentEntry *entry;
	uint64		before = doubts;

	sweep_attachments();
	context = AllocSetContextCreate(CurrentMemoryContext, "idem attachment",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	attachment = attachment_read(data, house);
	MemoryContextSwitchTo(old);

	entry = hash_search(attachments, &data->tg_trigger->tgoid, HASH_ENTER, NULL);
	entry->attachment = attachment;
	MemoryContextSetParent(context, CacheMemoryContext);
	attachment->valid = before == doubts;
	return attachment;
}

/* What is kept of a trigger, if it still holds; else NULL */
static inline Attachment *
kept_attachment(const TriggerData *data)
{
	AttachmentEntry *entry = latest;

	if (entry == NULL || entry->trigger != data->tg_trigger->tgoid)
		entry = hash_search(attachments, &data->tg_trigger->tgoid, HASH_FIND, NULL);

	if (entry != NULL && entry->attachment->valid &&
		entry->attachment->relid == RelationGetRelid(data->tg_relation))
	{
		latest = entry;
		return entry->attachment;
	}
	return NULL;
}

/*
 * What is known of the table that fired this trigger.  It may be used until
 * the transaction ends.
 */
Attachment *
attachment_of(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Attachment *attachment = kept_attachment(data);

	if (attachment != NULL)
		return attachment;
	return load_attachment(data, idem_house(fcinfo->flinfo->fn_oid));
}

/*
 * The guard of a table, as a row of its triggers: the one BEFORE UPDATE, and
 * where that is missing any other for each row.  NULL: it is not attached.
 */
Trigger *
attachment_trigger(const IdemHouse *house, Relation table)
{
	Oid			function = machine_guard_function(house);
	TriggerDesc *triggers = table->trigdesc;
	Trigger    *found = NULL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (trigger->tgfoid != function || !TRIGGER_FOR_ROW(trigger->tgtype))
			continue;
		if (TRIGGER_FOR_BEFORE(trigger->tgtype))
			return trigger;
		found = trigger;
	}
	return found;
}

/*
 * What is known of an attached table, outside of a trigger; NULL if it is not
 * attached.  It may be used as long as the table is open, or until the
 * transaction ends.
 */
Attachment *
attachment_of_table(const IdemHouse *house, Relation table)
{
	TriggerData data = {0};
	Attachment *attachment;

	data.tg_relation = table;
	data.tg_trigger = attachment_trigger(house, table);
	if (data.tg_trigger == NULL)
		return NULL;
	attachment = kept_attachment(&data);
	return attachment != NULL ? attachment : load_attachment(&data, house);
}

/* Whether a word belongs to a built-in machine */
static bool
is_builtin(const IdemHouse *house, const char *name)
{
	uint64		epoch;
	const Machine *machine = machine_find(house, name, &epoch);

	return machine != NULL && machine->builtin;
}

/* Find the machine; strangers may not use the words of the built-in ones */
static void
find_machine(const IdemHouse *house, Relation table, Attachment *attachment)
{
	const char *name = attachment->machine_name;
	uint64		epoch;
	const Machine *machine = machine_find(house, name, &epoch);

	if (machine == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("state machine \"%s\" does not exist", name),
				 errdetail("Table \"%s\" is attached to it.", RelationGetRelationName(table)),
				 errtable(table)));
	if (!attachment->owned &&
		(machine->builtin || attachment->own ||
		 is_builtin(house, attachment->entity) ||
		 is_builtin(house, attachment->aggregate)))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("table \"%s\" cannot be guarded as one of the extension's own",
						RelationGetRelationName(table)),
				 errdetail("Built-in state machines, entities and aggregates are for tables of the extension's owner."),
				 errtable(table)));
	attachment->machine = machine;
	attachment->epoch = epoch;
}

/*
 * The machine of an attachment that has one.
 */
const Machine *
attachment_machine(FunctionCallInfo fcinfo, Attachment *attachment)
{
	if (attachment->epoch != machine_epoch)
		find_machine(idem_house(fcinfo->flinfo->fn_oid),
					 ((TriggerData *) fcinfo->context)->tg_relation, attachment);
	return attachment->machine;
}

/*
 * The same outside of a trigger.
 */
const Machine *
attachment_machine_of(const IdemHouse *house, Relation table, Attachment *attachment)
{
	if (attachment->epoch != machine_epoch)
		find_machine(house, table, attachment);
	return attachment->machine;
}


/* ---------- values ---------- */

/* Output with the settings that dumps are made with */
static char *
output_unstyled(FmgrInfo *output, Datum value)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO"}, {"intervalstyle", "postgres"}, {"timezone", "UTC"},
		{"extra_float_digits", "3"}, {"bytea_output", "hex"}
	};
	int			guc_level = NewGUCNestLevel();
	char	   *words;

	for (int i = 0; i < (int) lengthof(settings); i++)
		idem_pin(settings[i][0], settings[i][1]);
	words = OutputFunctionCall(output, value);
	AtEOXact_GUC(true, guc_level);
	return words;
}

/* A date or a time in ISO 8601, in UTC */
static char *
output_time(Oid type, Datum value)
{
	char	   *words = palloc(MAXDATELEN + 1);
	int			utc = 0;

	return JsonEncodeDateTime(words, value, type, &utc);
}

/*
 * A value of a column as text.  It names the row in history, so that it must
 * be the same in every session, whatever time zone or style that has chosen.
 */
Datum
attached_value_text(AttachedColumn *column, Datum value)
{
	char	   *words;
	int			len;

	if (column->is_text)
		return PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
	if (column->is_time)
		words = output_time(column->type, value);
	else if (column->is_styled)
		words = output_unstyled(&column->output, value);
	else
		words = OutputFunctionCall(&column->output, value);
	len = strlen(words);
	if (column->is_padded)
		len = bpchartruelen(words, len);
	return PointerGetDatum(cstring_to_text_with_len(words, len));
}

NullableDatum
attached_text(AttachedColumn *column, TupleTableSlot *row)
{
	NullableDatum value = IDEM_NULL;

	if (column->attnum == 0)
		return value;
	value.value = slot_getattr(row, column->attnum, &value.isnull);
	if (!value.isnull)
		value.value = attached_value_text(column, value.value);
	return value;
}

/*
 * The key of a row as history and events name it: the column itself where
 * there is one, else a JSON object of all.
 */
NullableDatum
attached_key(Attachment *attachment, TupleTableSlot *row)
{
	NullableDatum values[INDEX_MAX_KEYS];
	int			nvalues = 0;
	ListCell   *cell;

	foreach(cell, attachment->key)
	{
		if (nvalues < INDEX_MAX_KEYS)
			values[nvalues++] = attached_text(lfirst(cell), row);
	}
	return attached_key_of(attachment, values);
}

/*
 * The same from the texts of the key's columns, in the attachment's order.
 */
NullableDatum
attached_key_of(Attachment *attachment, const NullableDatum *values)
{
	StringInfoData object;
	ListCell   *cell;

	if (list_length(attachment->key) == 1)
		return values[0];

	initStringInfo(&object);
	foreach(cell, attachment->key)
	{
		AttachedColumn *column = lfirst(cell);
		NullableDatum value = values[foreach_current_index(cell)];

		appendStringInfoString(&object, object.len == 0 ? "{" : ", ");
		escape_json(&object, column->name);
		appendStringInfoString(&object, ": ");
		if (value.isnull)
			appendStringInfoString(&object, "null");
		else
			escape_json(&object, TextDatumGetCString(value.value));
	}
	appendStringInfoChar(&object, '}');
	return IDEM_TEXT(object.data);
}

/* The version of a row; 0 where it is NULL */
int64
attached_version(Attachment *attachment, TupleTableSlot *row)
{
	bool		isnull;
	Datum		version = slot_getattr(row, attachment->version.attnum, &isnull);

	return isnull ? 0 : DatumGetInt32(version);
}

char *
attached_words(Attachment *attachment, TupleTableSlot *row)
{
	StringInfoData names;
	StringInfoData values;
	List	   *columns = list_copy(attachment->key);
	ListCell   *cell;

	initStringInfo(&names);
	initStringInfo(&values);
	if (attachment->tenant.attnum != 0)
		columns = lcons(&attachment->tenant, columns);
	foreach(cell, columns)
	{
		AttachedColumn *column = lfirst(cell);
		NullableDatum value = attached_text(column, row);
		const char *comma = names.len > 0 ? ", " : "";

		appendStringInfo(&names, "%s%s", comma, column->name);
		appendStringInfo(&values, "%s%s", comma,
						 value.isnull ? "null" : TextDatumGetCString(value.value));
	}
	return psprintf("(%s) = (%s)", names.data, values.data);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_attachment(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(Oid);
	info.entrysize = sizeof(AttachmentEntry);
	attachments = hash_create("idem attachments", 16, &info, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(doubt_attachments, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, doubt_all_attachments, (Datum) 0);
}
