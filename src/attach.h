/*-------------------------------------------------------------------------
 * attach.h
 *	  A table that is being attached to a state machine.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ATTACH_H
#define IDEM_ATTACH_H

#include "attachment.h"

typedef struct Attach
{
	IdemCall   *call;
	Oid			target;
	Oid			guard;			/* the trigger function */

	/* what is asked for; names are C strings, NULL and NIL: none */
	const char *machine_name;
	const char *state_column;
	const char *version_column;
	const char *tenant_column;
	const char *asked_entity;
	List	   *active_key;
	List	   *frozen;
	List	   *asked_payload;
	bool		history;
	bool		outbox;
	bool		forbid_delete;

	/* what comes of it */
	const Machine *machine;
	List	   *members;		/* Oid: the target, and what inherits from it */
	List	   *key;			/* columns that name a row, without the tenant */
	const char *entity;
	const char *since;			/* the moment, in ISO 8601 */
	const char *active_index;	/* made for the active key; NULL: none was */
	List	   *arguments;		/* of its triggers; NIL: not yet decided */
} Attach;

/* The table and its columns: attach_table.c */
extern void attach_demand_owner(Oid target);
extern bool attach_lock_members(Attach *attach, LOCKMODE mode);
extern void attach_check_members(Attach *attach);
extern void attach_choose_key(Attach *attach, Relation table);
extern void attach_check_columns(Attach *attach, Relation table);

/* The triggers and their arguments: attach_trigger.c */
extern List *attach_arguments(const Attach *attach);
extern List *attach_options_of(const Trigger *trigger);
extern const char *attach_option(const List *arguments, const char *name);
extern void attach_fill_trigger(const Attach *attach, Trigger *trigger);
extern void attach_compare(Attach *attach, const Trigger *trigger);
extern bool attach_is_complete(const Attach *attach, Oid member);
extern char *attach_trigger_faults(Oid guard, Relation table, const Trigger *found,
								   bool forbid_delete);
extern void attach_demand_right(const Attach *attach);
extern void attach_create_triggers(Attach *attach);
extern void attach_drop_triggers(Oid guard, Oid member);


/* The index of the active key: attach_index.c */
extern void attach_ensure_index(Attach *attach);
extern Oid	attach_find_index(Relation table, const Attachment *attachment,
							  const Machine *machine);
extern void attach_drop_index(Oid target, const char *name);

/* What history and events call a table: attach_entity.c */
extern Oid	attach_entity_table(Oid guard, const char *entity, const List *except, bool *own);
extern bool attach_choose_entity(Attach *attach);
extern void attach_record_entity(Attach *attach);

#endif							/* IDEM_ATTACH_H */
