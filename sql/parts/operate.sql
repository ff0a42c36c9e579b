/*
 * operate: what keeps the books right: the checker, the drop guard, and what
 * a dump carries.
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

CREATE FUNCTION @extschema@.idem_drop_guard() RETURNS event_trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_drop_guard';
COMMENT ON FUNCTION @extschema@.idem_drop_guard() IS
'Event trigger: refuses DROP EXTENSION, DROP SCHEMA and DROP OWNED that would take idem away while its tables hold rows (ID007), unless idem.allow_drop is on. DROP DATABASE cannot be guarded.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_verify(),
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
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_order', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_payment', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_payment_key', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_token_secret', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_token_used', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_receipt', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_refund', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_anomaly', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_history', '');
SELECT pg_catalog.pg_extension_config_dump('@extschema@.idem_outbox', '');
