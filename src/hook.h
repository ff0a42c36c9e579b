/*-------------------------------------------------------------------------
 * hook.h
 *	  Hooks: users' functions that are called when a row reaches a state.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_HOOK_H
#define IDEM_HOOK_H

#include "outbox.h"

/* A row of idem_hook */
typedef struct Hook
{
	char	   *entity;
	char	   *to_state;
	char	   *function;		/* its signature, with its schema */
	char	   *role;			/* that registered it */
	bool		raise;			/* on_error */
} Hook;

/* A move that a hook is to be told of */
typedef struct HookNote
{
	int			nest_level;		/* of the transaction, at the move */
	Datum		tenant_id;
	Datum		entity;
	Datum		key;
	Datum		to_state;
	int32		version;
	NullableDatum order_id;
	Datum		row;			/* jsonb */
	int32		attempts;		/* made before; 0: this is the first */
} HookNote;


/* ---------- hook.c: when hooks run ---------- */

/*
 * A row of ours has moved.  Its hook, if there is one, runs when the outermost
 * call leaves, or at once where none is open.
 */
extern void hook_note(FunctionCallInfo fcinfo, Attachment *attachment, const Move *move);

/* Run what was noted, unless a call is still open */
extern void hook_run_noted(FunctionCallInfo fcinfo);

/* The sweep: have up to max_rows of those that failed run when the call leaves */
extern int64 hook_note_due(IdemCall *call, int64 max_rows);

extern void idem_init_hook(void);


/* ---------- hook_call.c: how one runs ---------- */

/*
 * Call a hook; whatever goes wrong is raised.  The caller is whose rights it
 * must not get.
 */
extern void hook_call(const Hook *hook, const HookNote *note, Oid caller);

/* The same behind a savepoint; NULL: it went well */
extern ErrorData *hook_try(const Hook *hook, const HookNote *note, Oid caller);

/* Raise 42501 or 22023 unless the role may have this function called */
extern void hook_check_function(Oid function, Oid role);


/* ---------- hook_set.c: which hooks there are ---------- */

/* The hook of an entity for a state, a copy; NULL: none */
extern Hook *hook_find(const IdemHouse *house, const char *entity, const char *to_state);

extern void idem_init_hook_set(void);

#endif							/* IDEM_HOOK_H */
