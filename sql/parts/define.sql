/*
 * define: the rules of a machine of one's own, and what all machines look
 * like.
 */

CREATE TYPE @extschema@.idem_define_machine_result AS (
	outcome text,
	version integer,
	attached integer);
COMMENT ON TYPE @extschema@.idem_define_machine_result IS
'The row that idem_define_machine returns: version counts the machine''s definitions, attached its tables. NULL in in_progress.';

CREATE FUNCTION @extschema@.idem_define_machine(
	name text,
	definition jsonb)
	RETURNS @extschema@.idem_define_machine_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_define_machine';
COMMENT ON FUNCTION @extschema@.idem_define_machine(text, jsonb) IS
'Gives a state machine its rules, or other rules: {"initial": [states], "final": [states], "active": [states], "moves": [{"event", "from", "to", "fact", "guard"}]}. initial: where a row may be born; final: only moves with "fact": true lead out of it; active: it holds the slot of an active_key. guard: "schema.function", called with the old and the new row as jsonb as the role that defines the machine, which must be allowed to; the move is refused unless it returns true. "states" may list all states, else those count that are in initial or that a move leads to. null stands for nothing.
New rules hold for the transaction at once, for all others when it commits; each version is kept in idem_machine_version. Rules that forbid what was legal before lock the attached tables against writers until the transaction ends. A state can only go when no row of an attached table is in it.
Outcomes: created; updated; unchanged (nothing is written); in_progress (writers of an attached table, or somebody who defines or attaches the machine, took longer than idem.wait; nothing is written).
Errors: 22004, 22023 (the definition makes no sense; DETAIL says where), 23514 (rows of attached tables are in states that would go; DETAIL names tables and keys), 42501 (no EXECUTE on a guard), ID007 (built-in), ID008.';

CREATE FUNCTION @extschema@.idem_machine_diagram(name text)
	RETURNS text
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_machine_diagram';
COMMENT ON FUNCTION @extschema@.idem_machine_diagram(text) IS
'A state machine as text that Mermaid draws: [*] leads to the initial states and final ones lead to it, active states have a thick border. The same rules give the same text. Any capability may call it.
Errors: 22004, 22023, ID006 (no such machine), ID008.';

CREATE TYPE @extschema@.idem_list_machines_result AS (
	name text,
	version integer,
	builtin boolean,
	defined_by name,
	attached_to regclass,
	state_column name,
	guard text,
	record text);
COMMENT ON TYPE @extschema@.idem_list_machines_result IS
'A row of the view idem_machines.';

CREATE FUNCTION @extschema@.idem_list_machines()
	RETURNS SETOF @extschema@.idem_list_machines_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_list_machines';
COMMENT ON FUNCTION @extschema@.idem_list_machines() IS
'The rows of the view idem_machines: each state machine with each table that is attached to it. Errors: ID008.';

CREATE VIEW @extschema@.idem_machines AS
	SELECT * FROM @extschema@.idem_list_machines();
COMMENT ON VIEW @extschema@.idem_machines IS
'Each state machine with each table that is attached to it (NULL: none), partitions by themselves. version counts its definitions, defined_by is the role that gave the last one. guard and record are the state of the triggers before and after an UPDATE: enabled, always, replica (on replicas only), disabled or missing. For operators and auditors with tenant *.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_define_machine(text, jsonb),
	@extschema@.idem_machine_diagram(text),
	@extschema@.idem_list_machines()
	FROM PUBLIC;
