/*
 * outbox: the append-only log of what happened, in the column names that
 * Debezium's Event Router expects.
 */

CREATE TABLE @extschema@.idem_outbox (
	id uuid NOT NULL,
	tenant_id text COLLATE "C" NOT NULL,
	aggregatetype varchar(255) COLLATE "C" NOT NULL,
	aggregateid varchar(255) COLLATE "C" NOT NULL,
	type varchar(255) COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (id)
);
COMMENT ON TABLE @extschema@.idem_outbox IS
'One event per real move, written in the transaction that moved. INSERT only. type is entity.state; aggregateid is the order for everything that belongs to one order, so that one order''s story stays in order.';
