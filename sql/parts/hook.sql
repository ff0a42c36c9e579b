/*
 * hook: users' functions that are called when a row reaches a state.
 *
 * Roles and functions stand by name: a number would lend a dropped role's
 * rights to a stranger after a restore.
 */

CREATE DOMAIN @extschema@.idem_on_error AS text COLLATE "C"
	CHECK (VALUE IN ('record', 'raise'));
COMMENT ON DOMAIN @extschema@.idem_on_error IS
'What becomes of a hook that fails: record it and try again, or raise its error.';

CREATE TABLE @extschema@.idem_hook (
	entity @extschema@.idem_key_text NOT NULL,
	to_state @extschema@.idem_key_text NOT NULL,
	function text NOT NULL,
	role name NOT NULL,
	on_error @extschema@.idem_on_error NOT NULL,
	PRIMARY KEY (entity, to_state)
);
COMMENT ON TABLE @extschema@.idem_hook IS
'Functions to be called when a row of a built-in entity reaches a state, one per entity and state. function is its signature with its schema, role who registered it: the function runs with that role''s rights. Written by idem_set_hook and idem_remove_hook.';

CREATE TABLE @extschema@.idem_hook_failure (
	tenant_id @extschema@.idem_key_text NOT NULL,
	entity @extschema@.idem_key_text NOT NULL,
	key text COLLATE "C" NOT NULL,
	to_state @extschema@.idem_key_text NOT NULL,
	version integer NOT NULL,
	order_id text COLLATE "C",
	row_moved jsonb NOT NULL,
	attempts integer NOT NULL,
	next_at timestamptz NOT NULL,
	sqlstate text COLLATE "C" NOT NULL,
	message text NOT NULL,
	failed_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, entity, key, to_state, version)
);
CREATE INDEX idem_hook_failure_due ON @extschema@.idem_hook_failure (next_at);
COMMENT ON TABLE @extschema@.idem_hook_failure IS
'Calls of hooks that failed and are to be made again: of which row and state, with the row as it was then (row_moved). attempts were made so far, the next one after next_at by idem_sweep; sqlstate and message are the last one''s, failed_at the first one''s time. Gone once it succeeded, its anomaly was resolved, or the hook was removed.';

CREATE TRIGGER idem_hook_changed AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_hook
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_access_changed();
CREATE TRIGGER idem_hook_emptied AFTER TRUNCATE ON @extschema@.idem_hook
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_access_changed();
ALTER TABLE @extschema@.idem_hook ENABLE ALWAYS TRIGGER idem_hook_changed;
ALTER TABLE @extschema@.idem_hook ENABLE ALWAYS TRIGGER idem_hook_emptied;

CREATE TYPE @extschema@.idem_set_hook_result AS (outcome text);
COMMENT ON TYPE @extschema@.idem_set_hook_result IS
'The row that idem_set_hook and idem_remove_hook return.';

CREATE TYPE @extschema@.idem_retry_hooks_result AS (outcome text, count bigint);
COMMENT ON TYPE @extschema@.idem_retry_hooks_result IS
'The row that idem_retry_hooks returns: how many calls were made due.';

CREATE FUNCTION @extschema@.idem_set_hook(
	entity text,
	to_state text,
	function regprocedure,
	on_error text DEFAULT 'record')
	RETURNS @extschema@.idem_set_hook_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_set_hook';
COMMENT ON FUNCTION @extschema@.idem_set_hook(text, text, regprocedure, text) IS
'Has a function of one jsonb argument called, with the row, in the same transaction, whenever a row of a built-in entity reaches a state. It runs as the role that calls this, which needs EXECUTE on it, after the call that moved the row, with search_path pinned to pg_catalog, pg_temp. on_error record: its failure undoes only what it did, opens an anomaly hook_failed, and the sweep tries again; raise: its error is the call''s.
Outcomes: created; updated (another function, role or on_error); unchanged; in_progress (another transaction is at it; nothing was written).
Errors: 42501 (no EXECUTE on the function), 22004, 22023 (no such entity or state, not such a function).';

CREATE FUNCTION @extschema@.idem_remove_hook(
	entity text,
	to_state text)
	RETURNS @extschema@.idem_set_hook_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_remove_hook';
COMMENT ON FUNCTION @extschema@.idem_remove_hook(text, text) IS
'Removes the hook of an entity for a state. What failed of it is not tried again.
Outcomes: removed; duplicate (there is none); in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023 (no such entity or state).';

CREATE FUNCTION @extschema@.idem_retry_hooks(
	entity text,
	to_state text)
	RETURNS @extschema@.idem_retry_hooks_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_retry_hooks';
COMMENT ON FUNCTION @extschema@.idem_retry_hooks(text, text) IS
'Makes what failed of a hook due at once: the next idem_sweep tries it again. To be called when the hook is mended.
Outcomes: scheduled; duplicate (nothing waits for a later time).
Errors: 22004, 22023 (no such entity or state).';

REVOKE ALL ON FUNCTION
	@extschema@.idem_set_hook(text, text, regprocedure, text),
	@extschema@.idem_remove_hook(text, text),
	@extschema@.idem_retry_hooks(text, text)
	FROM PUBLIC;
