/*
 * move: moves of rows in attached tables, and what history knows of them.
 *
 * Both functions act with the rights of whoever calls them.
 */

CREATE TYPE @extschema@.idem_move_result AS (
	outcome text,
	from_state text,
	to_state text,
	version integer
);
COMMENT ON TYPE @extschema@.idem_move_result IS
'The row that idem_move returns. moved: from where to where, and the version since; duplicate: to_state is where the row stands, from_state whence the event led there, if it can only be one state; illegal, stale: from_state is where the row stands; version is the row''s, NULL without a version column.';

CREATE TYPE @extschema@.idem_history_of_result AS (
	at timestamptz,
	version integer,
	from_state text,
	to_state text,
	event text,
	actor text,
	session_role text,
	reason text
);
COMMENT ON TYPE @extschema@.idem_history_of_result IS
'A move of a row. from_state is NULL at its birth; version is the row''s after the move; actor is idem.actor, session_role the login role.';

CREATE FUNCTION @extschema@.idem_move(
	target regclass,
	key jsonb,
	event text,
	expected_version integer DEFAULT NULL,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_move_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_move';
COMMENT ON FUNCTION @extschema@.idem_move(regclass, jsonb, text, integer, text) IS
'Moves a row of an attached table by an event of its machine, with the caller''s own rights on the table. key is an object with the columns of the row''s key, the tenant''s included; for a single column its value will do. expected_version: only if the row still is at it. reason goes into history.
Outcomes, in the order in which they are judged: not_found; duplicate (the event has led here already, and leads no further or the version is another); illegal (the machine has no move of this event from here, or its guard, or a trigger, forbids it); stale (not the expected version); moved; in_progress (another transaction has the row). All but moved write nothing.
Errors: 22004, 22023, 40001, 42501, ID006 (not attached), ID007 (a table of the extension), and whatever the caller''s own UPDATE would raise.';

CREATE FUNCTION @extschema@.idem_history_of(target text, key jsonb)
	RETURNS SETOF @extschema@.idem_history_of_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_history_of';
COMMENT ON FUNCTION @extschema@.idem_history_of(text, jsonb) IS
'The moves of a row, oldest first; none where it never moved since its table was attached. target is an attached table, or the entity that history calls it, such as payment; key as for idem_move. For who may SELECT from the table, and for auditors of the tenant where it is one of the extension''s; row security that hides the row from the caller hides its moves.
Errors: 22004, 22023, 42501, ID006 (not attached), ID008.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_move(regclass, jsonb, text, integer, text),
	@extschema@.idem_history_of(text, jsonb)
	FROM PUBLIC;
