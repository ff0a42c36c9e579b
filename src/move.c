/*-------------------------------------------------------------------------
 * move.c
 *	  idem_move: move a row of an attached table by an event.
 *
 * "UPDATE ... SET status = 'paid' WHERE id = 7 AND status = 'pending'" says 0
 * rows, and that means one of four things: there is no such row, it is paid
 * already, it may not be paid, or it has changed since it was read.  Who takes
 * the second for the third pays twice or not at all.  So a move looks, judges
 * in this order, and only then locks, judges what it has locked, and writes:
 *
 *		no row							not_found
 *		the event has led here			duplicate
 *		no such move from here			illegal
 *		not the version that was read	stale
 *
 * An event that has led here may lead further, too ("next").  Without a version
 * it then means the next step; with one that has passed, history knows whether
 * the step was made since.
 *
 * What the first look can answer neither locks nor writes anything.  A row that
 * somebody else has locked is waited for without a place in any queue, up to
 * the call's wait.  Under REPEATABLE READ and SERIALIZABLE a row that has
 * changed since the transaction's snapshot is 40001, whatever the answer.
 *-------------------------------------------------------------------------
 */
#include "move.h"
#include "look.h"
#include "try.h"

#include "access/relation.h"
#include "access/xact.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

/* Arguments */
enum
{
	TARGET, KEY, EVENT, EXPECTED_VERSION, REASON
};

/* Columns of the result */
enum
{
	MOVE_OUTCOME, MOVE_FROM_STATE, MOVE_TO_STATE, MOVE_VERSION
};

static const char moved[] = "moved";
static const char duplicate[] = "duplicate";
static const char illegal[] = "illegal";
static const char stale[] = "stale";
static const char not_found[] = "not_found";
static const char in_progress[] = "in_progress";

/* A move that is asked for */
typedef struct Request
{
	IdemCall   *call;
	Relation	relation;
	MoveTable  *table;
	const Machine *machine;
	MoveKey		key;
	const char *event;
	bool		has_expected;
	int32		expected;
	MoveRow		row;			/* as it was found last */
	bool		found;
	const MachineMove *move;	/* that it can make */
	MoveRow		stored;			/* once it has made it */
} Request;


/* ---------- judge ---------- */

/* The state that the row is in, NULL if the machine has none such */
static const MachineState *
current_state(const Request *request)
{
	NullableDatum name = request->row.state;

	return name.isnull ? NULL :
		machine_state(request->machine, VARDATA_ANY(DatumGetPointer(name.value)),
					  VARSIZE_ANY_EXHDR(DatumGetPointer(name.value)));
}

/* The move that the event makes from a state; NULL: none */
static const MachineMove *
move_by_event(const MachineState *from, const char *event)
{
	ListCell   *cell;

	if (from == NULL)
		return NULL;
	foreach(cell, from->moves)
	{
		const MachineMove *move = lfirst(cell);

		if (move->to != from && strcmp(move->event, event) == 0)
			return move;
	}
	return NULL;
}

/*
 * How many states the event leads from to a state; *from is the last of them.
 */
static int
origins(const Request *request, const MachineState *to, const MachineState **from)
{
	int			n = 0;
	ListCell   *cell;
	ListCell   *inner;

	foreach(cell, request->machine->states)
	{
		const MachineState *state = lfirst(cell);

		foreach(inner, state->moves)
		{
			const MachineMove *move = lfirst(inner);

			if (move->to == to && strcmp(move->event, request->event) == 0)
			{
				*from = state;
				n++;
			}
		}
	}
	return n;
}

/* Judge the row that was found; NULL: it can make the move */
static const char *
judge(Request *request)
{
	const MachineState *from;
	const MachineState *origin;

	if (!request->found)
		return not_found;
	from = current_state(request);
	request->move = move_by_event(from, request->event);
	if (request->move == NULL)
		return from != NULL && origins(request, from, &origin) > 0 ? duplicate : illegal;
	if (!request->has_expected || request->expected == request->row.version)
		return NULL;
	return move_was_made(request->call, request->table, &request->key, request->event,
						 request->row.state, request->expected) ? duplicate : stale;
}


/* ---------- look, lock, store ---------- */

static bool
find(Request *request, MoveStatement statement, Snapshot snapshot)
{
	request->found = move_find(request->call, request->relation, request->table, statement,
							   &request->key, snapshot, &request->row);
	return request->found;
}

/* Raise 40001 if the transaction's own snapshot shows something else */
static void
demand_unchanged(Request *request)
{
	MoveRow		seen;
	bool		found = move_find(request->call, request->relation, request->table, MOVE_LOOK,
								  &request->key, GetTransactionSnapshot(), &seen);

	if (found == request->found &&
		(!found || (seen.version == request->row.version &&
					idem_same_nullable(seen.state, request->row.state))))
		return;
	idem_raise_race(psprintf("The row of table %s was written after this transaction's snapshot.",
							 request->table->relation));
}

/* See the row as it is committed, and what this transaction has done to it */
static void
look(Request *request)
{
	Snapshot	latest;

	CommandCounterIncrement();
	latest = RegisterSnapshot(GetLatestSnapshot());
	(void) find(request, MOVE_LOOK, latest);
	UnregisterSnapshot(latest);
	if (IsolationUsesXactSnapshot())
		demand_unchanged(request);
}

static void
probe(void *arg)
{
	(void) find(arg, MOVE_PROBE, InvalidSnapshot);
}

/*
 * Lock the row that a look has found.  in_progress: somebody else has it.  It
 * may also be one that a policy shows to the caller but does not let him
 * change; only an attempt that fails on a lock can tell that from the other.
 */
static const char *
lock(Request *request)
{
	if (find(request, MOVE_LOCK, InvalidSnapshot))
		return NULL;
	if (check_enable_rls(request->table->relid, InvalidOid, true) != RLS_ENABLED)
		return in_progress;
	if (idem_try(probe, request, ERRCODE_LOCK_NOT_AVAILABLE, 0) != NULL)
		return in_progress;
	return request->found ? NULL : not_found;
}

/* One attempt */
static const char *
attempt(Request *request)
{
	const char *outcome;

	look(request);
	outcome = judge(request);
	if (outcome == NULL)
		outcome = lock(request);
	if (outcome == NULL)
		outcome = judge(request);
	if (outcome != NULL)
		return outcome;
	return move_store(request->call, request->relation, request->table, &request->key,
					  request->move->to, &request->stored) ? moved : illegal;
}

static const char *
attempt_until_done(Request *request)
{
	const char *outcome;
	int			pause_ms = 1;

	do
	{
		outcome = attempt(request);
	} while (outcome == in_progress && idem_pause(request->call, &pause_ms));
	return outcome;
}


/* ---------- the call ---------- */

/* Open the target; ID006 if it is not attached, ID007 if it is one of ours */
static void
open_target(Request *request)
{
	Oid			target = DatumGetObjectId(idem_arg_required(request->call, TARGET).value);

	request->relation = relation_open(target, AccessShareLock);
	request->table = move_table(request->call, request->relation);
	if (request->table == NULL || request->table->attachment->machine_name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("\"%s\" is attached to no state machine",
						RelationGetRelationName(request->relation)),
				 errdetail("Only rows of attached tables can be moved."),
				 errhint("Attach it with idem_attach_machine().")));
	if (request->table->attachment->own)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_PROTECTED),
				 errmsg("rows of table \"%s\" cannot be moved by idem_move",
						RelationGetRelationName(request->relation)),
				 errdetail("It is one of the extension's own tables."),
				 errhint("Call the function that makes the move.")));
	request->machine = attachment_machine_of(request->call->house, request->relation,
											 request->table->attachment);
}

static void
read_arguments(Request *request)
{
	IdemCall   *call = request->call;
	NullableDatum expected = idem_arg(call, EXPECTED_VERSION);

	move_read_key(call, KEY, request->relation, request->table, &request->key);
	request->event = TextDatumGetCString(idem_arg_key(call, EVENT));
	request->has_expected = !expected.isnull;
	if (request->has_expected)
		request->expected = DatumGetInt32(expected.value);
	if (request->has_expected && request->table->attachment->version.attnum == 0)
		idem_bad_argument(call, EXPECTED_VERSION, "The table is attached without a version column.");
	idem_because(call, idem_arg(call, REASON));
}

/* What the caller hears beside the outcome */
static void
put_result(Request *request, const char *outcome)
{
	IdemCall   *call = request->call;
	const MoveRow *row = outcome == moved ? &request->stored : &request->row;
	const MachineState *origin;

	if (outcome == not_found || outcome == in_progress)
		return;
	if (outcome == moved || outcome == duplicate)
		idem_put_nullable(call, MOVE_TO_STATE, row->state);
	if (outcome != duplicate)
		idem_put_nullable(call, MOVE_FROM_STATE, request->row.state);
	else if (origins(request, current_state(request), &origin) == 1)
		idem_put_text(call, MOVE_FROM_STATE, origin->name);
	if (request->table->attachment->version.attnum != 0)
		idem_put(call, MOVE_VERSION, Int32GetDatum(row->version));
}

/*
 * idem_move(target, key, event, expected_version, reason)
 *	 -> (outcome, from_state, to_state, version)
 *
 * Outcomes: moved, duplicate, illegal, stale, not_found, in_progress.  Errors:
 * ID006 not attached, ID007 one of the extension's own tables, 22004 and 22023
 * nonsense arguments, 40001, and whatever the caller's own UPDATE would raise.
 */
PG_FUNCTION_INFO_V1(idem_move);
Datum
idem_move(PG_FUNCTION_ARGS)
{
	Request		request = {0};
	const char *outcome;

	request.call = idem_enter_as_caller(fcinfo);
	open_target(&request);
	read_arguments(&request);
	outcome = attempt_until_done(&request);
	put_result(&request, outcome);
	relation_close(request.relation, NoLock);
	return idem_leave(request.call, outcome);
}
