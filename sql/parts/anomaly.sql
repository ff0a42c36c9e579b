/*
 * anomaly: facts that fit nothing, waiting for a human.
 */

/* The only list of kinds there is. */
CREATE DOMAIN @extschema@.idem_anomaly_kind AS text COLLATE "C"
	CHECK (VALUE IN ('late', 'surplus', 'mismatch', 'orphan', 'unrouted', 'tampered', 'rejected', 'over_refund',
		'refund_amount_differs', 'refund_unmatched', 'refund_abnormal', 'refund_reversed', 'dispute', 'unmapped_event',
		'hook_failed', 'auto_refund_held', 'statement'));
COMMENT ON DOMAIN @extschema@.idem_anomaly_kind IS
'What does not fit. docs/anomaly.md tells who opens each kind, and what to do about it.';

CREATE TABLE @extschema@.idem_anomaly (
	tenant_id text COLLATE "C" NOT NULL,
	anomaly_no text COLLATE "C" NOT NULL,
	kind @extschema@.idem_anomaly_kind NOT NULL,
	entity text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	hits bigint NOT NULL DEFAULT 1,
	order_id text COLLATE "C",
	detail jsonb,
	actor text,
	opened_at timestamptz NOT NULL,
	last_hit_at timestamptz NOT NULL,
	resolution text,
	reason text,
	resolved_by text,
	resolved_actor text,
	resolved_at timestamptz,
	PRIMARY KEY (tenant_id, anomaly_no)
);
CREATE UNIQUE INDEX idem_anomaly_open ON @extschema@.idem_anomaly (tenant_id, kind, entity, key) WHERE status = 'opened';
COMMENT ON TABLE @extschema@.idem_anomaly IS
'Facts that fit nothing. One open row per kind and thing; a recurrence while it is open adds to hits. resolved_by is the login role that resolved it, actor and resolved_actor are idem.actor then.';

CREATE TYPE @extschema@.idem_resolve_anomaly_result AS (
	outcome text,
	resolution text,
	reason text,
	resolved_by text,
	resolved_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_resolve_anomaly_result IS
'The row that idem_resolve_anomaly returns: how, why, by which login role and when the anomaly was resolved.';

CREATE FUNCTION @extschema@.idem_resolve_anomaly(
	tenant_id text,
	anomaly_no text,
	resolution text,
	reason text)
	RETURNS @extschema@.idem_resolve_anomaly_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_resolve_anomaly';
COMMENT ON FUNCTION @extschema@.idem_resolve_anomaly(text, text, text, text) IS
'Notes that a human has dealt with an anomaly: resolution says how, reason why. It moves nothing else; should the fact come again, a new anomaly is opened. Resolving auto_refund_held ends the hold.
Outcomes: resolved; already_resolved (by what the row shows; nothing is written); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023, ID008.';

REVOKE ALL ON FUNCTION @extschema@.idem_resolve_anomaly(text, text, text, text) FROM PUBLIC;
