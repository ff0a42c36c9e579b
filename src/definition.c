/*-------------------------------------------------------------------------
 * definition.c
 *	  The definition of a state machine: JSON that makes sense, or an error.
 *
 *		{"initial": ["new"], "final": ["done"], "active": ["new"],
 *		 "moves": [{"event": "finish", "from": "new", "to": "done"}]}
 *
 * A mistake in the rules would come out much later, when a row cannot make its
 * move.  So everything that can be seen now is seen now, and said with the
 * place where it stands: words that are misspelt, states that nothing leads
 * to, an event that leads to two states.
 *
 * Nobody has to list the states: those are known that a row can be born in or
 * that a move leads to; who does list them ("states") has them compared.
 *-------------------------------------------------------------------------
 */
#include "definition.h"
#include "deputy.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/* Much more than anybody has drawn, and still quick to look through */
#define MOST_STATES 256
#define MOST_MOVES 1024

/* What a field of an object holds */
typedef enum FieldKind
{
	A_LIST,
	A_NAME,
	A_FLAG
} FieldKind;

static const char *const kind_words[] = {
	[A_LIST] = "an array",
	[A_NAME] = "a string",
	[A_FLAG] = "true or false"
};

/* A field of an object: what is expected, and what stands there */
typedef struct Field
{
	const char *name;
	FieldKind	kind;
	bool		required;
	bool		given;			/* and not null */
	JsonbValue	value;
} Field;

/* The fields of a definition, and of one of its moves */
enum
{
	FIELD_INITIAL, FIELD_FINAL, FIELD_ACTIVE, FIELD_STATES, FIELD_MOVES, DEFINITION_FIELDS
};
enum
{
	FIELD_EVENT, FIELD_FROM, FIELD_TO, FIELD_FACT, FIELD_GUARD, MOVE_FIELDS
};

static const Field definition_fields[DEFINITION_FIELDS] = {
	{.name = "initial", .kind = A_LIST},
	{.name = "final", .kind = A_LIST},
	{.name = "active", .kind = A_LIST},
	{.name = "states", .kind = A_LIST},
	{.name = "moves", .kind = A_LIST, .required = true}
};

static const Field move_fields[MOVE_FIELDS] = {
	{.name = "event", .kind = A_NAME, .required = true},
	{.name = "from", .kind = A_NAME, .required = true},
	{.name = "to", .kind = A_NAME, .required = true},
	{.name = "fact", .kind = A_FLAG},
	{.name = "guard", .kind = A_NAME}
};

/* A definition that is being read */
typedef struct Reading
{
	IdemCall   *call;
	Machine    *machine;
	Field		fields[DEFINITION_FIELDS];
	List	   *moves;			/* of MoveReading */
} Reading;

typedef struct MoveReading
{
	int			n;				/* from 1 */
	char	   *place;			/* Move 1 */
	const char *event;
	const char *from;
	const char *to;
	const char *guard;
	bool		fact;
} MoveReading;


/* ---------- JSON ---------- */

pg_noreturn static void
bad_definition(const Reading *reading, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid definition of machine \"%s\"", reading->machine->name),
			 errdetail("%s", detail),
			 hint == NULL ? 0 : errhint("%s", hint)));
	pg_unreachable();
}

static bool
is_of_kind(const JsonbValue *value, FieldKind kind)
{
	switch (kind)
	{
		case A_LIST:
			return value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data);
		case A_NAME:
			return value->type == jbvString;
		case A_FLAG:
			return value->type == jbvBool;
	}
	return false;
}

/* The field of that name; NULL if there is none */
static Field *
find_field(Field *fields, int nfields, const JsonbValue *key)
{
	for (int i = 0; i < nfields; i++)
	{
		if ((int) strlen(fields[i].name) == key->val.string.len &&
			memcmp(fields[i].name, key->val.string.val, key->val.string.len) == 0)
			return &fields[i];
	}
	return NULL;
}

static char *
field_names(const Field *fields, int nfields)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < nfields; i++)
		machine_quote(&list, fields[i].name);
	return list.data;
}

/* Read the fields of an object; null stands for nothing */
static void
read_fields(const Reading *reading, JsonbContainer *object, const char *place,
			Field *fields, int nfields)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbValue	key;
	JsonbValue	value;

	(void) JsonbIteratorNext(&iterator, &key, false);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		Field	   *field = find_field(fields, nfields, &key);

		(void) JsonbIteratorNext(&iterator, &value, true);
		if (field == NULL)
			bad_definition(reading,
						   psprintf("%s has the unknown key \"%s\".", place,
									pnstrdup(key.val.string.val, key.val.string.len)),
						   psprintf("The keys are %s.", field_names(fields, nfields)));
		if (value.type == jbvNull)
			continue;
		if (!is_of_kind(&value, field->kind))
			bad_definition(reading, psprintf("%s must have %s in \"%s\".", place,
											 kind_words[field->kind], field->name), NULL);
		field->given = true;
		field->value = value;
	}
	for (int i = 0; i < nfields; i++)
	{
		if (fields[i].required && !fields[i].given)
			bad_definition(reading, psprintf("%s lacks \"%s\".", place, fields[i].name), NULL);
	}
}

/* The elements of a list, as JsonbValue */
static List *
read_list(const Reading *reading, const Field *field, uint32 most)
{
	List	   *elements = NIL;
	uint32		length;

	if (!field->given)
		return NIL;
	length = JsonContainerSize(field->value.val.binary.data);
	if (length > most)
		bad_definition(reading, psprintf("\"%s\" has %u elements; there may be %u.",
										 field->name, length, most), NULL);
	for (uint32 i = 0; i < length; i++)
		elements = lappend(elements, getIthJsonbValueFromContainer(field->value.val.binary.data, i));
	return elements;
}

/* A name; place says where it stands, for messages */
static char *
read_name(const Reading *reading, const JsonbValue *value, const char *place)
{
	if (value->type != jbvString)
		bad_definition(reading, psprintf("%s must be a string.", place), NULL);
	if (value->val.string.len == 0)
		bad_definition(reading, psprintf("%s is empty.", place), NULL);
	if (value->val.string.len > IDEM_KEY_BYTES)
		bad_definition(reading, psprintf("%s has %d bytes; there may be %d.", place,
										 value->val.string.len, IDEM_KEY_BYTES), NULL);
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* The names in a list, each once */
static List *
read_names(const Reading *reading, const Field *field)
{
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, read_list(reading, field, MOST_STATES))
	{
		char	   *place = psprintf("Element %d of \"%s\"", list_length(names) + 1, field->name);
		char	   *name = read_name(reading, lfirst(cell), place);
		ListCell   *other;

		foreach(other, names)
		{
			if (strcmp(lfirst(other), name) == 0)
				bad_definition(reading, psprintf("\"%s\" names the state \"%s\" twice.",
												 field->name, name), NULL);
		}
		names = lappend(names, name);
	}
	return names;
}

static MoveReading *
read_move(const Reading *reading, const JsonbValue *value, int n)
{
	Field		fields[MOVE_FIELDS];
	MoveReading *move = palloc0(sizeof(MoveReading));
	const char *names[MOVE_FIELDS] = {NULL};

	move->n = n;
	move->place = psprintf("Move %d", n);
	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		bad_definition(reading, psprintf("%s must be an object.", move->place), NULL);

	memcpy(fields, move_fields, sizeof(fields));
	read_fields(reading, value->val.binary.data, move->place, fields, MOVE_FIELDS);
	for (int i = 0; i < MOVE_FIELDS; i++)
	{
		if (fields[i].given && fields[i].kind == A_NAME)
			names[i] = read_name(reading, &fields[i].value,
								 psprintf("\"%s\" of move %d", fields[i].name, n));
	}
	move->event = names[FIELD_EVENT];
	move->from = names[FIELD_FROM];
	move->to = names[FIELD_TO];
	move->guard = names[FIELD_GUARD];
	move->fact = fields[FIELD_FACT].given && fields[FIELD_FACT].value.val.boolean;
	return move;
}

static void
read_moves(Reading *reading)
{
	ListCell   *cell;

	foreach(cell, read_list(reading, &reading->fields[FIELD_MOVES], MOST_MOVES))
		reading->moves = lappend(reading->moves,
								 read_move(reading, lfirst(cell), list_length(reading->moves) + 1));
}


/* ---------- states ---------- */

/* A state by name, NULL if it is not known */
static MachineState *
known_state(const Reading *reading, const char *name)
{
	return unconstify(MachineState *, machine_state(reading->machine, name, strlen(name)));
}

/* Know a state, if it is not known yet */
static void
add_state(Reading *reading, const char *name)
{
	MachineState *state;

	if (known_state(reading, name) != NULL)
		return;
	state = palloc0(sizeof(MachineState));
	state->name = name;
	state->len = strlen(name);
	reading->machine->states = lappend(reading->machine->states, state);
}

/* A state that somebody speaks of; place says who */
static MachineState *
demand_state(const Reading *reading, const char *name, const char *place)
{
	MachineState *state = known_state(reading, name);

	if (state == NULL)
		bad_definition(reading, psprintf("%s the unknown state \"%s\".", place, name),
					   reading->fields[FIELD_STATES].given ?
					   "The states are those that \"states\" lists." :
					   "The states are those in \"initial\" and those that a move leads to.");
	return state;
}

/* Find out which states there are */
static void
collect_states(Reading *reading, List *initial)
{
	ListCell   *cell;

	if (reading->fields[FIELD_STATES].given)
	{
		foreach(cell, read_names(reading, &reading->fields[FIELD_STATES]))
			add_state(reading, lfirst(cell));
		return;
	}
	foreach(cell, initial)
		add_state(reading, lfirst(cell));
	foreach(cell, reading->moves)
		add_state(reading, ((MoveReading *) lfirst(cell))->to);
	if (list_length(reading->machine->states) > MOST_STATES)
		bad_definition(reading, psprintf("There are %d states; there may be %d.",
										 list_length(reading->machine->states), MOST_STATES), NULL);
}

static bool *
mark_of(MachineState *state, int field)
{
	return field == FIELD_INITIAL ? &state->initial : field == FIELD_FINAL ? &state->final : &state->active;
}

/* Mark the states that a list names */
static void
mark_states(Reading *reading, int field, List *names)
{
	char	   *place = psprintf("\"%s\" names", definition_fields[field].name);
	ListCell   *cell;

	foreach(cell, names)
		*mark_of(demand_state(reading, lfirst(cell), place), field) = true;
}

/* Everything that is declared can be reached */
static void
check_reach(const Reading *reading)
{
	List	   *reached = NIL;
	StringInfoData lost;
	ListCell   *cell;

	foreach(cell, reading->machine->states)
	{
		if (((MachineState *) lfirst(cell))->initial)
			reached = lappend(reached, lfirst(cell));
	}
	/* the list grows while it is walked */
	for (int i = 0; i < list_length(reached); i++)
	{
		foreach(cell, ((MachineState *) list_nth(reached, i))->moves)
			reached = list_append_unique_ptr(reached, unconstify(MachineState *, ((MachineMove *) lfirst(cell))->to));
	}

	initStringInfo(&lost);
	foreach(cell, reading->machine->states)
	{
		if (!list_member_ptr(reached, lfirst(cell)))
			machine_quote(&lost, ((MachineState *) lfirst(cell))->name);
	}
	if (lost.len > 0)
		bad_definition(reading, psprintf("No moves lead from an initial state to %s.", lost.data), NULL);
}


/* ---------- guards ---------- */

/*
 * The function schema.name(jsonb, jsonb) that returns boolean; invalid if
 * there is none.
 */
static Oid
find_guard(const char *schema, const char *name)
{
	Oid			nspoid = get_namespace_oid(schema, true);
	Oid			types[] = {JSONBOID, JSONBOID};
	oidvector  *signature = buildoidvector(types, lengthof(types));
	Oid			found;

	/* a temporary schema's name comes again in another session */
	if (!OidIsValid(nspoid) || isAnyTempNamespace(nspoid))
		return InvalidOid;
	found = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
							PointerGetDatum(signature), ObjectIdGetDatum(nspoid));
	return deputy_fits(found, BOOLOID) ? found : InvalidOid;
}

/*
 * Check the guard of a move: it will run as the caller, who must be allowed
 * to call it.  Returns its name as it is kept.
 */
static const char *
check_guard(const Reading *reading, const MoveReading *move)
{
	Oid			caller = reading->call->caller;
	List	   *names;
	const char *schema;
	const char *name;
	Oid			function;

	if (!SplitIdentifierString(pstrdup(move->guard), '.', &names) || list_length(names) != 2)
		bad_definition(reading, psprintf("The guard of move %d must be named \"schema.function\".",
										 move->n), NULL);
	schema = linitial(names);
	name = lsecond(names);
	function = find_guard(schema, name);
	if (!OidIsValid(function))
		bad_definition(reading, psprintf("The guard of move %d is no function: there is no %s(jsonb, jsonb) that returns boolean.",
										 move->n, quote_qualified_identifier(schema, name)), NULL);
	if (idem_schema_aclcheck(get_namespace_oid(schema, false), caller, ACL_USAGE) != ACLCHECK_OK ||
		idem_function_aclcheck(function, caller, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", quote_qualified_identifier(schema, name)),
				 errdetail("The guard of move %d will run as the role that defines the machine, which lacks EXECUTE.",
						   move->n)));
	return quote_qualified_identifier(schema, name);
}


/* ---------- moves ---------- */

/* A move goes somewhere, out of a final state only as a fact */
static void
check_move(const Reading *reading, const MoveReading *move, const MachineState *from)
{
	if (strcmp(move->from, move->to) == 0)
		bad_definition(reading, psprintf("%s leads from \"%s\" to itself.", move->place, move->from),
					   "An UPDATE that leaves the state alone is no move and always allowed.");
	if (from->final && !move->fact)
		bad_definition(reading, psprintf("%s leads out of the final state \"%s\" and is no fact.",
										 move->place, move->from),
					   "Give it \"fact\": true if it records what has happened anyway, or let the state not be final.");
}

/* An event leads to one state, and only one event leads there */
static void
check_against_others(const Reading *reading, const MoveReading *move, const MachineState *from)
{
	ListCell   *cell;

	foreach(cell, from->moves)
	{
		const MachineMove *other = lfirst(cell);

		if (strcmp(other->to->name, move->to) == 0)
			bad_definition(reading, psprintf("%s is the second one that leads from \"%s\" to \"%s\".",
											 move->place, move->from, move->to),
						   "An UPDATE of the state could not tell which of them it makes.");
		if (strcmp(other->event, move->event) == 0)
			bad_definition(reading, psprintf("The event \"%s\" leads from \"%s\" both to \"%s\" and to \"%s\".",
											 move->event, move->from, other->to->name, move->to), NULL);
	}
}

static void
add_move(Reading *reading, const MoveReading *move)
{
	MachineState *from = demand_state(reading, move->from,
									  psprintf("%s leads from", move->place));
	MachineMove *made = palloc0(sizeof(MachineMove));

	made->to = demand_state(reading, move->to, psprintf("%s leads to", move->place));
	check_move(reading, move, from);
	check_against_others(reading, move, from);
	made->event = move->event;
	made->fact = move->fact;
	if (move->guard != NULL)
		made->guard = check_guard(reading, move);
	from->moves = lappend(from->moves, made);
}

Machine *
definition_read(IdemCall *call, const char *name, Jsonb *definition)
{
	Reading		reading = {0};
	List	   *initial;
	ListCell   *cell;

	reading.call = call;
	reading.machine = palloc0(sizeof(Machine));
	reading.machine->name = name;
	memcpy(reading.fields, definition_fields, sizeof(definition_fields));
	if (!JB_ROOT_IS_OBJECT(definition))
		bad_definition(&reading, "The definition must be an object.", NULL);

	read_fields(&reading, &definition->root, "The definition", reading.fields, DEFINITION_FIELDS);
	initial = read_names(&reading, &reading.fields[FIELD_INITIAL]);
	if (initial == NIL)
		bad_definition(&reading, "There is no initial state.",
					   "\"initial\" lists the states that a row may be born in.");
	read_moves(&reading);
	collect_states(&reading, initial);
	mark_states(&reading, FIELD_INITIAL, initial);
	mark_states(&reading, FIELD_FINAL, read_names(&reading, &reading.fields[FIELD_FINAL]));
	mark_states(&reading, FIELD_ACTIVE, read_names(&reading, &reading.fields[FIELD_ACTIVE]));
	foreach(cell, reading.moves)
		add_move(&reading, lfirst(cell));
	check_reach(&reading);
	return reading.machine;
}


/* ---------- comparison ---------- */

static bool
same_name(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The move of another state that is checked and recorded as this one is */
static const MachineMove *
like_move(const MachineState *from, const MachineMove *move)
{
	ListCell   *cell;

	foreach(cell, from->moves)
	{
		const MachineMove *other = lfirst(cell);

		if (same_name(other->to->name, move->to->name) &&
			same_name(other->event, move->event) && same_name(other->guard, move->guard))
			return other;
	}
	return NULL;
}

/* What one state's rules become */
static RuleChange
compare_states(const MachineState *old, const MachineState *new)
{
	RuleChange	change = RULES_SAME;
	ListCell   *cell;

	if (old->initial && !new->initial)
		return RULES_NARROWER;
	if (old->initial != new->initial || old->final != new->final || old->active != new->active ||
		list_length(old->moves) != list_length(new->moves))
		change = RULES_WIDER;
	foreach(cell, old->moves)
	{
		const MachineMove *move = lfirst(cell);
		const MachineMove *like = like_move(new, move);

		if (like == NULL)
			return RULES_NARROWER;
		if (like->fact != move->fact)
			change = RULES_WIDER;
	}
	return change;
}

static bool
has_guards(const Machine *machine)
{
	ListCell   *cell;
	ListCell   *inner;

	foreach(cell, machine->states)
	{
		foreach(inner, ((MachineState *) lfirst(cell))->moves)
		{
			if (((MachineMove *) lfirst(inner))->guard != NULL)
				return true;
		}
	}
	return false;
}

/*
 * What becomes of the rules.  Who defined them matters where guards run as he.
 */
RuleChange
definition_compare(const Machine *old, const Machine *new)
{
	RuleChange	change = RULES_SAME;
	ListCell   *cell;

	if (list_length(old->states) != list_length(new->states))
		change = RULES_WIDER;
	if (has_guards(new) && !same_name(old->defined_by, new->defined_by))
		change = RULES_NARROWER;
	foreach(cell, old->states)
	{
		const MachineState *state = lfirst(cell);
		const MachineState *heir = machine_state(new, state->name, state->len);

		change = Max(change, heir == NULL ? RULES_LOSE_STATES : compare_states(state, heir));
	}
	return change;
}

bool
definition_same_active(const Machine *old, const Machine *new)
{
	ListCell   *cell;

	foreach(cell, new->states)
	{
		const MachineState *state = lfirst(cell);
		const MachineState *former = machine_state(old, state->name, state->len);

		if (state->active != (former != NULL && former->active))
			return false;
	}
	return true;
}
