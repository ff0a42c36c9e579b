/*
 * operate: what keeps the books right: the checker, the sweep, the drop guard,
 * and what a dump carries.
 */

CREATE TYPE @extschema@.idem_verify_result AS (
	invariant text,
	tenant_id text,
	entity text,
	key text,
	detail text);
COMMENT ON TYPE @extschema@.idem_verify_result IS
'A broken invariant: which one, and the thing that breaks it.';

CREATE FUNCTION @extschema@.idem_verify()
	RETURNS SETOF @extschema@.idem_verify_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_verify';
COMMENT ON FUNCTION @extschema@.idem_verify() IS
'Checks every invariant of the tables, over all tenants, and returns a row for each thing that breaks one; none when all is well. Reads every table from end to end, as of one snapshot, and may run while others work.
Errors: ID008.';

CREATE TYPE @extschema@.idem_sweep_result AS (
	what text,
	count bigint);
COMMENT ON TYPE @extschema@.idem_sweep_result IS
'How many things of a kind a sweep took away.';

CREATE FUNCTION @extschema@.idem_sweep(max_rows integer DEFAULT 1000)
	RETURNS SETOF @extschema@.idem_sweep_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_sweep';
COMMENT ON FUNCTION @extschema@.idem_sweep(integer) IS
'Takes away what has run out, over all tenants, at most max_rows of each kind, oldest first, and leaves out what is locked. Returns a row for each kind: requests (finished, past their ttl), tokens (consumed, past their expiry and 24 hours), hooks (that failed, and are tried again). Reads about as many rows as it takes away. Call it until it has less to do than it may.
Errors: ID008, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_drop_guard() RETURNS event_trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_drop_guard';
COMMENT ON FUNCTION @extschema@.idem_drop_guard() IS
'Event trigger: refuses DROP EXTENSION, DROP SCHEMA and DROP OWNED that would take idem away while its tables hold rows (ID007), unless idem.allow_drop is on. DROP DATABASE cannot be guarded.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_verify(),
	@extschema@.idem_sweep(integer),
	@extschema@.idem_drop_guard()
	FROM PUBLIC;

CREATE EVENT TRIGGER idem_drop_guard ON ddl_command_start
	WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED')
	EXECUTE FUNCTION @extschema@.idem_drop_guard();
ALTER EVENT TRIGGER idem_drop_guard ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER idem_drop_guard IS
'Keeps idem from being dropped while its tables hold rows.';

/*
 * What a dump carries: rows, but not those that this script makes.
 */
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_machine', 'WHERE NOT builtin');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_machine_state',
	'WHERE machine NOT IN (SELECT name FROM @extschema@.idem_machine WHERE builtin)');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_machine_move',
	'WHERE machine NOT IN (SELECT name FROM @extschema@.idem_machine WHERE builtin)');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_access', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_number', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_channel_account', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_channel_event', 'WHERE false');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_channel_event_change', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_order', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_payment', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_payment_key', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_token_secret', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_token_used', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_receipt', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_refund', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_cluster', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_dispute', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_notification', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_campaign', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_campaign_user', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_entitlement', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_revocation', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_hook', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_hook_failure', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_anomaly', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_lease', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_request', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_attempt', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_history', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_outbox', '');
