/*-------------------------------------------------------------------------
 * attachment.h
 *	  What the arguments of a guard trigger say about its table.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ATTACHMENT_H
#define IDEM_ATTACHMENT_H

#include "machine.h"

#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

/* What an UPDATE may do to a column */
typedef enum ColumnRule
{
	COLUMN_FREE,
	COLUMN_FROZEN,
	COLUMN_ONCE,				/* NULL may become a value, which is frozen */
	COLUMN_GROWS				/* a bigint that may only become greater */
} ColumnRule;

/* A column that is read by name */
typedef struct AttachedColumn
{
	const char *name;
	AttrNumber	attnum;			/* 0: there is none */
	Oid			type;
	bool		is_text;		/* its bytes are its text */
	bool		is_padded;		/* char(n): blanks at its end mean nothing */
	bool		is_time;		/* a date or a time */
	bool		is_styled;		/* its text may depend on settings */
	FmgrInfo	output;			/* else */
} AttachedColumn;

typedef struct Attachment
{
	Oid			relid;
	bool		valid;
	MemoryContext context;

	/* what it is to the machine, to history and to the outbox */
	const char *machine_name;	/* NULL: no machine */
	const char *entity;
	const char *birth;			/* the event of being born */
	const char *aggregate;		/* of the event where aggregate_id is not NULL */
	const char *since;			/* when it was attached; NULL: unknown */
	bool		own;			/* a table of the extension itself */
	bool		owned;			/* by the extension's owner */
	bool		append_only;
	bool		forbid_delete;
	bool		last_word;		/* no trigger can change a row after the guard */
	bool		history;
	bool		outbox;

	/* its columns */
	int			natts;
	ColumnRule *rules;			/* by attribute number - 1 */
	AttachedColumn state;
	AttachedColumn version;
	AttachedColumn tenant;
	AttachedColumn aggregate_id;
	List	   *key;			/* of AttachedColumn */
	List	   *payload;		/* likewise, as jsonb orders members */
	List	   *active_key;		/* likewise: one row of it is active */
	const char *active_index;	/* made by us for that; NULL: there was one */

	/* its machine, as of an epoch */
	const Machine *machine;
	uint64		epoch;
} Attachment;

extern Attachment *attachment_of(FunctionCallInfo fcinfo);
extern Attachment *attachment_read(const TriggerData *data, const IdemHouse *house);
extern const Machine *attachment_machine(FunctionCallInfo fcinfo, Attachment *attachment);

/* Outside of a trigger */
extern Trigger *attachment_trigger(const IdemHouse *house, Relation table);
extern Attachment *attachment_of_table(const IdemHouse *house, Relation table);
extern const Machine *attachment_machine_of(const IdemHouse *house, Relation table,
											Attachment *attachment);

/* Values of a row as text; those without a value NULL */
extern NullableDatum attached_text(AttachedColumn *column, TupleTableSlot *row);
extern Datum attached_value_text(AttachedColumn *column, Datum value);
extern NullableDatum attached_key(Attachment *attachment, TupleTableSlot *row);
extern NullableDatum attached_key_of(Attachment *attachment, const NullableDatum *values);
extern int64 attached_version(Attachment *attachment, TupleTableSlot *row);

/* A row in words, for messages: (tenant_id, payment_no) = (t, p) */
extern char *attached_words(Attachment *attachment, TupleTableSlot *row);

extern void idem_init_attachment(void);

/* How jsonb orders the names of members */
static inline int
jsonb_order(const char *a, const char *b)
{
	int			difference = (int) strlen(a) - (int) strlen(b);

	return difference != 0 ? difference : strcmp(a, b);
}

#endif							/* IDEM_ATTACHMENT_H */
