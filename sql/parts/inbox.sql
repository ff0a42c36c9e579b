/*
 * inbox: which messages a consumer has seen.
 */

CREATE TABLE @extschema@.idem_inbox (
	tenant_id @extschema@.idem_key_text NOT NULL,
	consumer @extschema@.idem_key_text NOT NULL,
	message_id @extschema@.idem_key_text NOT NULL,
	digest @extschema@.idem_key_text,
	accepted_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, consumer, message_id)
);
CREATE INDEX idem_inbox_accepted_at ON @extschema@.idem_inbox (accepted_at);
COMMENT ON TABLE @extschema@.idem_inbox IS
'The messages that each consumer has accepted, and the digest that they came with. The sweep forgets them after idem.inbox_retention, but none that is younger than the oldest event that is parked or dead here.';

CREATE TYPE @extschema@.idem_accept_message_result AS (
	outcome text
);
COMMENT ON TYPE @extschema@.idem_accept_message_result IS
'The row that idem_accept_message returns.';

CREATE FUNCTION @extschema@.idem_accept_message(
	tenant_id text,
	consumer text,
	message_id text,
	digest text DEFAULT NULL)
	RETURNS @extschema@.idem_accept_message_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_accept_message';
COMMENT ON FUNCTION @extschema@.idem_accept_message(text, text, text, text) IS
'Notes that a consumer has seen a message, in the caller''s transaction: act on it there if the outcome is accepted, and not otherwise. A rollback forgets it. digest, where both deliveries bear one, tells messages apart that share an id. Remembered for idem.inbox_retention.
Outcomes: accepted; duplicate (another transaction has accepted it, and is committed); in_progress (another is still open after idem.wait; nothing was written, let it be delivered again).
Errors: ID001 (accepted with another digest), ID008, 22004, 22023, 40001.';

REVOKE ALL ON FUNCTION @extschema@.idem_accept_message(text, text, text, text) FROM PUBLIC;
