/*
 * anomaly: facts that fit nothing, waiting for a human.
 */

CREATE TABLE @extschema@.idem_anomaly (
	tenant_id text COLLATE "C" NOT NULL,
	anomaly_no text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
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
	resolved_at timestamptz,
	PRIMARY KEY (tenant_id, anomaly_no)
);
CREATE UNIQUE INDEX idem_anomaly_open ON @extschema@.idem_anomaly (tenant_id, kind, entity, key) WHERE status = 'opened';
COMMENT ON TABLE @extschema@.idem_anomaly IS
'Facts that fit nothing. One open row per kind and thing; a recurrence while it is open adds to hits. resolved_by is the login role that resolved it.';
