-- The same row in a plain table with one index, and in a queue of PGQ.
CREATE TABLE peer.event (
	seq bigserial PRIMARY KEY,
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	tenant_id text COLLATE "C" NOT NULL,
	aggregatetype varchar(255) COLLATE "C" NOT NULL,
	aggregateid varchar(255) COLLATE "C" NOT NULL,
	type varchar(255) COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE EXTENSION IF NOT EXISTS pgq;
SELECT pgq.create_queue('append');
