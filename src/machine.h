/*-------------------------------------------------------------------------
 * machine.h
 *	  State machines: the rules, as cached in this backend.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MACHINE_H
#define IDEM_MACHINE_H

#include "call.h"

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

typedef struct MachineState
{
	const char *name;
	int			len;
	bool		initial;
	bool		final;
	bool		active;
	List	   *moves;			/* of MachineMove: where one may go from here */
} MachineState;

typedef struct MachineMove
{
	const MachineState *to;
	const char *event;
	bool		fact;
	const char *guard;			/* schema.function, quoted; NULL: none */
} MachineMove;

typedef struct Machine
{
	const char *name;
	bool		builtin;
	const char *defined_by;		/* the role its guards run as; NULL: nobody */
	int			version;
	List	   *states;			/* of MachineState */
} Machine;

/*
 * Grows whenever rules may have changed.  What was found in an epoch may be
 * used as long as the epoch lasts, and by a running check until the
 * transaction ends.
 */
extern uint64 machine_epoch;

/*
 * The machine of that name in a house, NULL if there is none.  *epoch is the
 * epoch that its rules are known to hold for.
 */
extern const Machine *machine_find(const IdemHouse *house, const char *name, uint64 *epoch);

/* All machines of a house */
extern List *machine_all(const IdemHouse *house);

/* A state by name, NULL if the machine does not declare it */
extern const MachineState *machine_state(const Machine *machine, const char *name, int len);

/* The move between two states, NULL if it is not legal */
extern const MachineMove *machine_move(const MachineState *from, const MachineState *to);

/*
 * Hold a machine's rules until the transaction ends: shared by who attaches a
 * table to them, exclusively by who changes them.  Rules that are looked up
 * afterwards are what they will be at commit.  false: the call's wait is over.
 * To be called before any table is locked.
 */
extern bool machine_hold(IdemCall *call, Datum name, LOCKMODE mode);
extern void machine_let_go(IdemCall *call, Datum name, LOCKMODE mode);

/* For messages: the states one may go to, and those a row may be born in */
extern char *machine_targets(const MachineState *from);
extern char *machine_births(const Machine *machine);
extern void machine_quote(StringInfo list, const char *name);

extern void idem_init_machine(void);

#endif							/* IDEM_MACHINE_H */
