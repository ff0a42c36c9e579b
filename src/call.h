/*-------------------------------------------------------------------------
 * call.h
 *	  The door: every function of the API enters and leaves here.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CALL_H
#define IDEM_CALL_H

#include "idem.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "executor/spi.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* One installation of the extension: a schema, its owner, its kept plans */
typedef struct IdemHouse
{
	Oid			nspoid;			/* hash key */
	uint32		hashvalue;		/* of the schema's row in the syscache */
	Oid			owner;			/* owner of the functions */
	char	   *schema;			/* the schema's name, quoted */
	bool		checked;		/* name and owner known to be current */
	SPIPlanPtr *plans;			/* by IdemQuery.slot */
	int			nplans;
} IdemHouse;

/* What the door knows of one function of the API */
typedef struct IdemFunction
{
	Oid			oid;			/* hash key */
	uint32		hashvalue;		/* of its row in the syscache */
	bool		valid;			/* false: read pg_proc again */
	bool		changed;		/* since the last reading began */
	IdemHouse  *house;
	NameData	name;
	int			nargs;			/* input arguments */
	char	  **argnames;
	bool		takes_tenant;	/* its first argument is tenant_id */
	TupleDesc	result;			/* NULL if it returns no row */
} IdemFunction;

typedef struct IdemCall
{
	FunctionCallInfo fcinfo;
	IdemHouse  *house;
	IdemFunction *function;
	MemoryContext context;		/* where everything of the call is made */
	Oid			caller;			/* who called, and is to be restored */
	int			caller_context;
	bool		fact;			/* waits without limit, is never refused */
	bool		busy;			/* a request's wait ran out */
	bool		connected;		/* SPI is open */
	bool		pinned;			/* and search_path is ours */
	int			guc_level;
	int			nnames;			/* names locked by idem_lock_name */
	int			names_size;
	LOCKTAG    *names;
	TransactionId rival;		/* met by a dirty look; invalid: none */
	Snapshot	moment;			/* that looks see (idem_hold_moment); NULL: now */
	TimestampTz now;			/* the clock, read at entry and after waits */
	TimestampTz deadline;		/* of a request's waiting */
	Datum		tenant_id;		/* text; 0 for functions without a tenant */
	Datum	   *values;			/* the result row, all NULL at first */
	bool	   *nulls;
	Tuplestorestate *rows;		/* of a function that returns a set */
} IdemCall;

#define IDEM_MAX_ARGS 24

/*
 * A named SQL statement, kept as a plan per house.  @schema@ stands for the
 * house's schema.  Rows that exist are addressed by ctid, which the look or
 * idem_lock_row found: then no statistics can lead a kept plan astray.
 */
typedef struct IdemQuery
{
	const char *sql;
	int			nargs;
	Oid			argtypes[IDEM_MAX_ARGS];
	int			slot;			/* 0: not yet numbered */
} IdemQuery;

#define IDEM_QUERY(sql, ...) \
	{ \
		sql, lengthof(((Oid[]) {__VA_ARGS__})), {__VA_ARGS__}, 0 \
	}

/* A statement without arguments */
#define IDEM_PLAIN_QUERY(sql) \
	{ \
		sql, 0, {InvalidOid}, 0 \
	}

/* Arguments of statements, and nullable columns */
#define IDEM_NULL ((NullableDatum) {(Datum) 0, true})
#define IDEM_VALUE(d) ((NullableDatum) {(d), false})
#define IDEM_TEXT(cstring) IDEM_VALUE(CStringGetTextDatum(cstring))

/* Enter and leave */
extern IdemCall *idem_enter(FunctionCallInfo fcinfo);
extern IdemCall *idem_enter_fact(FunctionCallInfo fcinfo);
extern IdemCall *idem_enter_as_caller(FunctionCallInfo fcinfo);
extern void idem_become_owner(IdemCall *call);
extern void idem_become_caller(IdemCall *call);
extern void idem_put(IdemCall *call, int column, Datum value);
extern void idem_put_nullable(IdemCall *call, int column, NullableDatum value);
extern void idem_put_text(IdemCall *call, int column, const char *value);
extern void idem_clear(IdemCall *call);
extern Datum idem_leave(IdemCall *call, const char *outcome);
extern Datum idem_leave_value(IdemCall *call, Datum value);
extern Datum idem_leave_void(IdemCall *call);
extern void idem_begin_rows(IdemCall *call);
extern void idem_emit(IdemCall *call);
extern Datum idem_leave_rows(IdemCall *call);

/* Arguments, by position from 0; the errors name the argument */
extern NullableDatum idem_arg(IdemCall *call, int n);
extern NullableDatum idem_arg_required(IdemCall *call, int n);
extern Datum idem_arg_key(IdemCall *call, int n);
extern NullableDatum idem_arg_optional_key(IdemCall *call, int n);
extern Datum idem_arg_fact_key(IdemCall *call, int n);
extern NullableDatum idem_arg_optional_fact_key(IdemCall *call, int n);
extern int64 idem_arg_amount(IdemCall *call, int n, int64 least);
extern Datum idem_arg_currency(IdemCall *call, int n);
extern Oid	idem_arg_role(IdemCall *call, int n);
extern bool idem_arg_bool(IdemCall *call, int n);
extern NullableDatum idem_arg_expiry(IdemCall *call, int n);
extern char *idem_arg_word(IdemCall *call, int n);
extern void idem_arg_wait(IdemCall *call, int n);
extern const char *idem_span_end(IdemCall *call, Interval *span, bool zero_allowed,
								 TimestampTz *moment);
extern void idem_because(IdemCall *call, NullableDatum reason);
pg_noreturn extern void idem_bad_argument(IdemCall *call, int n, const char *detail);

/* Statements */
extern uint64 idem_run(IdemCall *call, IdemQuery *query, const NullableDatum *args);
extern NullableDatum idem_result(IdemCall *call, uint64 row, int column);
extern void idem_connect(IdemCall *call);
extern void idem_connect_as_caller(IdemCall *call);
extern void idem_unpin_plans(IdemCall *call);
extern void idem_pin(const char *setting, const char *value);
extern char *idem_statement_text(const IdemHouse *house, const char *sql);

/* For triggers: the house of a function, and whether a call is open */
extern IdemHouse *idem_house(Oid function_oid);
extern IdemFunction *idem_function(Oid function_oid);
extern IdemCall *idem_enter_trigger(FunctionCallInfo fcinfo);
extern void idem_leave_trigger(IdemCall *call);
extern IdemCall *idem_reenter(FunctionCallInfo fcinfo, Datum tenant_id);
extern void idem_step_outside(void);
extern void idem_step_inside(void);
extern bool idem_inside_call(void);
extern const char *idem_current_reason(void);

/*
 * An attempt is an UPDATE of a call that would rather hear that the row's guard
 * refuses than fail: begun and ended around it, and asked for by its triggers.
 */
extern void idem_begin_attempt(void);
extern void idem_end_attempt(void);
extern bool idem_is_attempt(void);
extern int	idem_calls_open(void);

extern void idem_init_call(void);

/* Text */
extern bool idem_same_text(Datum a, Datum b);
extern int	idem_compare_text(Datum a, Datum b);
extern bool idem_is_given(NullableDatum text);
extern bool idem_same_nullable(NullableDatum a, NullableDatum b);
extern int	idem_word_index(Datum value, const char *const *words, int nwords);
extern bool idem_text_is(Datum value, const char *word);
extern bool idem_is_currency(Datum value, Datum *upper_case);

#endif							/* IDEM_CALL_H */
