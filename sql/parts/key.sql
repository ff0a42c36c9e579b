/*
 * key: numbers, and keys made of parts.
 */

CREATE SEQUENCE @extschema@.idem_number AS bigint;
COMMENT ON SEQUENCE @extschema@.idem_number IS
'The last microsecond, counted from 2020-01-01 UTC, whose number has been given to a session. Moves forward only.';

CREATE FUNCTION @extschema@.idem_next_no() RETURNS text
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_next_no';
COMMENT ON FUNCTION @extschema@.idem_next_no() IS
'The next number: decimal text of at most 19 digits, in the order of time to within a second, unique across sessions whatever the clock does, and across nodes that differ in idem.node_id. Numbers are not rolled back. Errors: 25006 in a read-only transaction, 2200H when no number is left.';

/*
 * STABLE, so that an index is used where it is compared with a column; not
 * IMMUTABLE, since a later version may encode otherwise.
 */
CREATE FUNCTION @extschema@.idem_key(VARIADIC parts text[]) RETURNS text
	LANGUAGE C STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_key';
COMMENT ON FUNCTION @extschema@.idem_key(text[]) IS
'A key made of parts, which no other parts make: SHA-256 in 64 hexadecimal digits over the bytes "idem_key 1" and a zero byte, then for each part its length in UTF-8 as four bytes, the highest first, and its bytes in UTF-8. Parts may be empty. The same on every release, architecture, locale and encoding. Errors: 22004 NULL, or a part is; 22023 no parts, or an array of arrays.';

REVOKE ALL ON FUNCTION @extschema@.idem_next_no(), @extschema@.idem_key(text[]) FROM PUBLIC;
