/*-------------------------------------------------------------------------
 * diagram.c
 *	  idem_machine_diagram: a machine as a drawing, in Mermaid's words.
 *
 * The same rules give the same text, in whatever order their rows lie: states
 * come as they are reached from the initial ones, breadth first, then by name.
 *
 * Names can be anything.  A plain word that Mermaid does not know stands for
 * itself; any other state gets a number to be called by and is shown under its
 * name.  In what is shown, every ASCII character that could mean something is
 * written as its number.
 *-------------------------------------------------------------------------
 */
#include "machine.h"

#include "catalog/pg_type.h"

/* A state in the drawing, and what it is called there */
typedef struct Drawn
{
	const MachineState *state;
	const char *id;
} Drawn;

typedef struct Diagram
{
	const Machine *machine;
	List	   *states;			/* of Drawn, in the order of the drawing */
	StringInfoData text;
} Diagram;

/* Words that Mermaid, or the JavaScript below it, has a use for */
static const char *const reserved[] = {
	"acc_descr", "acc_title", "as", "choice", "class", "click", "constructor", "default",
	"description", "direction", "empty", "end", "fork", "hide", "href", "join", "left",
	"note", "of", "prototype", "right", "scale", "state", "style"
};


/* ---------- names ---------- */

/* Can a state be called by its name? */
static bool
is_plain(const char *name)
{
	if (name[0] < 'a' || name[0] > 'z' ||
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
		return false;
	for (size_t i = 0; i < lengthof(reserved); i++)
	{
		if (strcmp(name, reserved[i]) == 0)
			return false;
	}
	return true;
}

/* Append words that mean nothing but themselves; blanks at the ends would be cut off */
static void
append_words(StringInfo text, const char *words)
{
	for (const char *c = words; *c != '\0'; c++)
	{
		bool		at_end = c == words || c[1] == '\0';

		if (IS_HIGHBIT_SET(*c) ||
			(*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
			strchr("_-.,()", *c) != NULL || (*c == ' ' && !at_end))
			appendStringInfoChar(text, *c);
		else
			appendStringInfo(text, "#%d;", *c);
	}
}


/* ---------- order ---------- */

static int
compare_states(const ListCell *a, const ListCell *b)
{
	return strcmp(((MachineState *) lfirst(a))->name, ((MachineState *) lfirst(b))->name);
}

static int
compare_moves(const ListCell *a, const ListCell *b)
{
	return strcmp(((MachineMove *) lfirst(a))->to->name, ((MachineMove *) lfirst(b))->to->name);
}

/* The moves from a state, by where they lead to */
static List *
sorted_moves(const MachineState *from)
{
	List	   *moves = list_copy(from->moves);

	list_sort(moves, compare_moves);
	return moves;
}

/* All states in the order of the drawing; what cannot be reached comes last */
static List *
sorted_states(const Machine *machine)
{
	List	   *all = list_copy(machine->states);
	List	   *sorted = NIL;
	ListCell   *cell;

	list_sort(all, compare_states);
	foreach(cell, all)
	{
		if (((MachineState *) lfirst(cell))->initial)
			sorted = lappend(sorted, lfirst(cell));
	}
	/* the list grows while it is walked */
	for (int i = 0; i < list_length(sorted); i++)
	{
		foreach(cell, sorted_moves(list_nth(sorted, i)))
			sorted = list_append_unique_ptr(sorted, unconstify(MachineState *, ((MachineMove *) lfirst(cell))->to));
	}
	return list_concat_unique_ptr(sorted, all);
}

static void
name_states(Diagram *diagram)
{
	ListCell   *cell;

	foreach(cell, sorted_states(diagram->machine))
	{
		Drawn	   *drawn = palloc(sizeof(Drawn));

		drawn->state = lfirst(cell);
		drawn->id = is_plain(drawn->state->name) ? drawn->state->name :
			psprintf("S%d", list_length(diagram->states) + 1);
		diagram->states = lappend(diagram->states, drawn);
	}
}

static const char *
id_of(const Diagram *diagram, const MachineState *state)
{
	ListCell   *cell;

	foreach(cell, diagram->states)
	{
		const Drawn *drawn = lfirst(cell);

		if (drawn->state == state)
			return drawn->id;
	}
	elog(ERROR, "state \"%s\" is not in the diagram", state->name);
}


/* ---------- drawing ---------- */

/* What states without a plain name are called */
static void
draw_name(StringInfo text, const Drawn *drawn)
{
	if (drawn->id == drawn->state->name)
		return;
	appendStringInfoString(text, "    state \"");
	append_words(text, drawn->state->name);
	appendStringInfo(text, "\" as %s\n", drawn->id);
}

static void
draw_moves(Diagram *diagram, const Drawn *from)
{
	StringInfo	text = &diagram->text;
	ListCell   *cell;

	foreach(cell, sorted_moves(from->state))
	{
		const MachineMove *move = lfirst(cell);

		appendStringInfo(text, "    %s --> %s : ", from->id, id_of(diagram, move->to));
		append_words(text, move->event);
		if (move->fact)
			appendStringInfoString(text, " (fact)");
		if (move->guard != NULL)
		{
			appendStringInfoString(text, " [");
			append_words(text, move->guard);
			appendStringInfoChar(text, ']');
		}
		appendStringInfoChar(text, '\n');
	}
}

/* Active states have a thick border */
static void
draw_active(Diagram *diagram)
{
	const char *separator = "    classDef active stroke-width:4px\n    class ";
	ListCell   *cell;

	foreach(cell, diagram->states)
	{
		const Drawn *drawn = lfirst(cell);

		if (!drawn->state->active)
			continue;
		appendStringInfo(&diagram->text, "%s%s", separator, drawn->id);
		separator = ",";
	}
	if (separator[0] == ',')
		appendStringInfoString(&diagram->text, " active\n");
}

static char *
draw(const Machine *machine)
{
	Diagram		diagram = {.machine = machine};
	StringInfo	text = &diagram.text;
	ListCell   *cell;

	name_states(&diagram);
	initStringInfo(text);
	appendStringInfoString(text, "stateDiagram-v2\n");
	foreach(cell, diagram.states)
		draw_name(text, lfirst(cell));
	foreach(cell, diagram.states)
	{
		const Drawn *drawn = lfirst(cell);

		if (drawn->state->initial)
			appendStringInfo(text, "    [*] --> %s\n", drawn->id);
	}
	foreach(cell, diagram.states)
	{
		const Drawn *drawn = lfirst(cell);

		draw_moves(&diagram, drawn);
		if (drawn->state->final)
			appendStringInfo(text, "    %s --> [*]\n", drawn->id);
	}
	draw_active(&diagram);
	text->data[--text->len] = '\0';
	return text->data;
}

/*
 * idem_machine_diagram(name) -> text
 *
 * The machine as a state diagram.  Errors: ID006 if there is none such.
 */
PG_FUNCTION_INFO_V1(idem_machine_diagram);
Datum
idem_machine_diagram(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	char	   *name = TextDatumGetCString(idem_arg_key(call, 0));
	uint64		epoch;
	const Machine *machine = machine_find(call->house, name, &epoch);

	if (machine == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("state machine \"%s\" does not exist", name),
				 errdetail("idem_machines shows those that do.")));
	return idem_leave_value(call, CStringGetTextDatum(draw(machine)));
}
