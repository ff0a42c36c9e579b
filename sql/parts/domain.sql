/*
 * domain: what a column may hold.
 *
 * Domains rather than CHECKs on the tables: a table's CHECKs are parsed anew
 * by every statement that writes to it, which costs as much as the row; a
 * domain's are kept by the session.
 */

CREATE DOMAIN @extschema@.idem_key_text AS text COLLATE "C"
	CHECK (octet_length(VALUE) BETWEEN 1 AND 255);
COMMENT ON DOMAIN @extschema@.idem_key_text IS 'A key: 1 to 255 bytes.';

CREATE DOMAIN @extschema@.idem_money AS bigint
	CHECK (VALUE > 0);
COMMENT ON DOMAIN @extschema@.idem_money IS 'An amount of money in minor units of its currency, greater than zero.';

CREATE DOMAIN @extschema@.idem_price AS bigint
	CHECK (VALUE >= 0);
COMMENT ON DOMAIN @extschema@.idem_price IS 'A price in minor units of its currency, zero allowed.';

CREATE DOMAIN @extschema@.idem_currency AS text COLLATE "C"
	CHECK (octet_length(VALUE) = 3);
COMMENT ON DOMAIN @extschema@.idem_currency IS 'An ISO 4217 currency code, three letters in upper case.';

CREATE DOMAIN @extschema@.idem_quantity AS bigint
	CHECK (VALUE > 0);
COMMENT ON DOMAIN @extschema@.idem_quantity IS 'A number of units, greater than zero.';

CREATE DOMAIN @extschema@.idem_count AS bigint
	CHECK (VALUE >= 0);
COMMENT ON DOMAIN @extschema@.idem_count IS 'A number of units, zero allowed.';
