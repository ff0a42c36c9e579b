/*
 * key: numbers.
 */

CREATE SEQUENCE @extschema@.idem_number AS bigint;
COMMENT ON SEQUENCE @extschema@.idem_number IS
'The last microsecond, counted from 2020-01-01 UTC, whose number has been given to a session. Moves forward only.';

CREATE FUNCTION @extschema@.idem_next_no() RETURNS text
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_next_no';
COMMENT ON FUNCTION @extschema@.idem_next_no() IS
'The next number: decimal text of at most 19 digits, in the order of time to within 100 ms, unique across sessions whatever the clock does, and across nodes that differ in idem.node_id. Numbers are not rolled back. Errors: 25006 in a read-only transaction, 2200H when no number is left.';

REVOKE ALL ON FUNCTION @extschema@.idem_next_no() FROM PUBLIC;
