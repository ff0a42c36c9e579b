/*
 * token: one-time tokens, such as a form carries.
 *
 * A token is signed, not stored: issuing writes nothing.  What is stored is
 * the secret, and the digest of each token that was consumed.
 */

/* Domains, also because the error of a table's CHECK shows the row. */
CREATE DOMAIN @extschema@.idem_token_secret_id AS bytea
	CHECK (octet_length(VALUE) = 8);
COMMENT ON DOMAIN @extschema@.idem_token_secret_id IS 'Which secret: 8 random bytes.';

CREATE DOMAIN @extschema@.idem_token_secret_bytes AS bytea
	CHECK (octet_length(VALUE) = 32);
COMMENT ON DOMAIN @extschema@.idem_token_secret_bytes IS 'A secret: 32 random bytes.';

CREATE DOMAIN @extschema@.idem_token_digest AS bytea
	CHECK (octet_length(VALUE) = 32);
COMMENT ON DOMAIN @extschema@.idem_token_digest IS 'The upper 6 of the 8 bytes of a token''s expiry, and the first 26 of the 32 bytes of its MAC.';

CREATE TABLE @extschema@.idem_token_secret (
	secret_id @extschema@.idem_token_secret_id NOT NULL,
	secret @extschema@.idem_token_secret_bytes NOT NULL,
	created_at timestamptz NOT NULL,
	retired_at timestamptz,
	PRIMARY KEY (secret_id)
);
COMMENT ON TABLE @extschema@.idem_token_secret IS
'The secrets that tokens are signed with (HMAC-SHA-256); the youngest that is not retired signs. Made by the first call that needs one and by idem_rotate_token_secret. A retired one is honoured for 3 days after retired_at. For nobody''s eyes but the owner''s. To revoke every token that a secret signed, delete its row.';

/*
 * Every session keeps the secrets, and has to hear of changes: as for the
 * access tables.
 */
CREATE TRIGGER idem_secret_changed AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_token_secret
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_access_changed();
CREATE TRIGGER idem_secret_emptied AFTER TRUNCATE ON @extschema@.idem_token_secret
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_access_changed();
ALTER TABLE @extschema@.idem_token_secret ENABLE ALWAYS TRIGGER idem_secret_changed;
ALTER TABLE @extschema@.idem_token_secret ENABLE ALWAYS TRIGGER idem_secret_emptied;

CREATE TABLE @extschema@.idem_token_used (
	tenant_id @extschema@.idem_key_text NOT NULL,
	digest @extschema@.idem_token_digest NOT NULL,
	payment_no text COLLATE "C",
	consumed_at timestamptz NOT NULL,
	repurchase boolean NOT NULL DEFAULT false,
	asked_payment_no text COLLATE "C",
	/* the digest first: it begins with the expiry, by which the sweep goes */
	PRIMARY KEY (digest, tenant_id)
);
COMMENT ON TABLE @extschema@.idem_token_used IS
'Tokens that were consumed, and the payment that each led to; payment_no NULL: consumed by idem_consume_token. repurchase and asked_payment_no are the consuming call''s. digest begins with the token''s expiry: the upper six of its eight bytes, in microseconds since 2000-01-01 UTC, which are steps of 66 milliseconds. From 24 hours after that the row says nothing that the token does not, and may be deleted.';

CREATE FUNCTION @extschema@.idem_issue_token(
	tenant_id text,
	scope text,
	ttl interval DEFAULT '5 minutes'
) RETURNS text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idem_issue_token';
COMMENT ON FUNCTION @extschema@.idem_issue_token(text, text, interval) IS
'A new token for a tenant and a scope (1 to 255 bytes of the caller''s; idem_create_payment takes scope payment): 87 characters of A-Z a-z 0-9 - _, good for ttl, at most 24 hours. Writes nothing, but for the first call ever, which makes the secret. Errors: 22004, 22023 (ttl not above 0 or above 24 hours), 25006 (read-only, and there is no secret yet).';

CREATE TYPE @extschema@.idem_consume_token_result AS (outcome text);
COMMENT ON TYPE @extschema@.idem_consume_token_result IS
'The row that idem_consume_token returns.';

CREATE FUNCTION @extschema@.idem_consume_token(
	tenant_id text,
	scope text,
	token text
) RETURNS @extschema@.idem_consume_token_result
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idem_consume_token';
COMMENT ON FUNCTION @extschema@.idem_consume_token(text, text, text) IS
'Uses a token up, once, in the caller''s transaction; a rollback gives it back. Outcomes: consumed; already_consumed (also after its expiry, until it is forgotten: the later of its expiry and 24 hours after consumption); expired; unknown (forged, truncated, of another tenant or scope, or its secret is gone); in_progress (another transaction is consuming it). Errors: 22004, 22023, 25006.';

CREATE TYPE @extschema@.idem_rotate_token_secret_result AS (outcome text);
COMMENT ON TYPE @extschema@.idem_rotate_token_secret_result IS
'The row that idem_rotate_token_secret returns.';

CREATE FUNCTION @extschema@.idem_rotate_token_secret()
	RETURNS @extschema@.idem_rotate_token_secret_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_rotate_token_secret';
COMMENT ON FUNCTION @extschema@.idem_rotate_token_secret() IS
'Makes a new secret, which signs from the commit on, and retires the others. A retired one is honoured for 3 days, which is longer than its tokens can live and be remembered; older ones are deleted. Outcomes: rotated; in_progress (another transaction is making or retiring secrets). Errors: 25006, 40001, ID008.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_issue_token(text, text, interval),
	@extschema@.idem_consume_token(text, text, text),
	@extschema@.idem_rotate_token_secret()
	FROM PUBLIC;
