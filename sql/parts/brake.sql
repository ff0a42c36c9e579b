/*
 * brake: automatic refunds that wait for a human.
 */

CREATE TABLE @extschema@.idem_cluster (
	system_identifier text COLLATE "C" NOT NULL,
	since timestamptz NOT NULL,
	PRIMARY KEY (system_identifier)
);
COMMENT ON TABLE @extschema@.idem_cluster IS
'The cluster that these tables live in, one row, stored with the first receipt. A dump carries it: the first automatic refund on a cluster of another system identifier is held, the row then names that cluster, and since says from when.';

CREATE INDEX idem_refund_automatic ON @extschema@.idem_refund (tenant_id, created_at)
	WHERE cause <> 'request' AND cause <> 'channel';
CREATE INDEX idem_anomaly_hold ON @extschema@.idem_anomaly (tenant_id, resolved_at)
	WHERE kind = 'auto_refund_held' AND status = 'resolved';

CREATE TYPE @extschema@.idem_release_refunds_result AS (
	outcome text,
	released bigint
);
COMMENT ON TYPE @extschema@.idem_release_refunds_result IS
'The row that idem_release_refunds returns. released: how many of the refunds were held and may now be sent.';

CREATE FUNCTION @extschema@.idem_release_refunds(
	tenant_id text,
	refund_nos text[])
	RETURNS @extschema@.idem_release_refunds_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_release_refunds';
COMMENT ON FUNCTION @extschema@.idem_release_refunds(text, text[]) IS
'Lets automatic refunds go that the brake holds: from now on idem_submit_refund may send them. The brake itself stays on until its anomaly (auto_refund_held) is resolved, or the setting or the account''s row is changed.
Outcomes: released (one at least was held); duplicate (none is held any more); refused (none is held, and one was cancelled); in_progress (another transaction is at one of them; nothing was written).
Errors: ID006 (no such refund), 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_release_refunds(text, text[])
	FROM PUBLIC;
