--
-- outbox: one event per real move, in the transaction that moved.
--
SET idem.actor = 'alice';
SET timezone = 'Asia/Shanghai';
SELECT outcome FROM idem_create_order('outbox', 'o1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('outbox', 'o1', 100, 'CNY', channel => 'alipay', payment_no => 'outbox-1');
SELECT outcome FROM idem_create_payment('outbox', 'o1', 100, 'CNY', channel => 'alipay');
UPDATE idem_payment SET status = 'closing', account = 'a1' WHERE tenant_id = 'outbox';

-- An event tells the whole of a move; keys are strings, what does not apply is not there.
SELECT aggregatetype, aggregateid, type, payload - 'at' AS payload, headers
FROM idem_outbox WHERE tenant_id = 'outbox' ORDER BY created_at;

-- History and the outbox tell the same, at the same time; time is UTC.
SELECT h.entity || '.' || h.to_state = o.type AS same_type, h.at = o.created_at AS same_time,
	(o.payload ->> 'at')::timestamptz = h.at AS same_at, o.payload ->> 'at' LIKE '%+00:00' AS utc, h.actor
FROM idem_history h LEFT JOIN idem_outbox o ON o.id = h.event_id
WHERE h.tenant_id = 'outbox' ORDER BY h.at;

-- Ids are UUIDs of version 7 and say when they were made.
SELECT substr(id::text, 15, 1) AS version, substr(id::text, 20, 1) IN ('8', '9', 'a', 'b') AS variant,
	('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint
	= floor(extract(epoch FROM created_at) * 1000)::bigint AS same_ms
FROM idem_outbox WHERE tenant_id = 'outbox';

-- What is rolled back has told nobody.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_create_order('outbox', 'o2', 100, 'CNY');
ROLLBACK TO s;
SELECT count(*) FROM idem_outbox WHERE tenant_id = 'outbox' AND aggregateid = 'o2';
SELECT outcome FROM idem_create_order('outbox', 'o2', 100, 'CNY');
COMMIT;
SELECT count(*) FROM idem_outbox WHERE tenant_id = 'outbox' AND aggregateid = 'o2';
SELECT count(*) FROM idem_history WHERE tenant_id = 'outbox' AND key = 'o2';

--
-- Rows go straight into the table; whatever stands in the way of that (here a
-- trigger, an index with a predicate, a check) sends them through a statement, with the same values.
-- (Who makes such a thing names operators in full: it is the owner who calls them.)
--
BEGIN;
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER nothing BEFORE INSERT ON idem_history FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing AFTER INSERT ON idem_outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
SELECT outcome FROM idem_create_order('outbox', 'o3', 100, 'CNY');
SELECT outcome FROM idem_create_payment('outbox', 'o3', 100, 'CNY', channel => 'alipay', payment_no => 'outbox-3');
UPDATE idem_payment SET status = 'closing', account = 'a1' WHERE tenant_id = 'outbox' AND payment_no = 'outbox-3';
WITH told AS (
	SELECT (to_jsonb(h) || to_jsonb(o)) - '{id,at,event_id,created_at,seq,xid,slot}'::text[] #- '{payload,at}' AS row
	FROM idem_history h JOIN idem_outbox o ON o.id = h.event_id
	WHERE h.tenant_id = 'outbox'
), directly AS (
	SELECT row FROM told WHERE row ->> 'aggregateid' = 'o1'
), by_statement AS (
	SELECT replace(replace(row::text, '"o3"', '"o1"'), 'outbox-3', 'outbox-1')::jsonb
	FROM told WHERE row ->> 'aggregateid' = 'o3'
)
SELECT count(*) AS rows, (SELECT count(*) FROM (TABLE directly EXCEPT TABLE by_statement) AS d) AS different FROM directly;
ROLLBACK;

BEGIN;
CREATE INDEX regress_partial ON idem_history (key) WHERE entity OPERATOR(pg_catalog.=) 'order';
CREATE INDEX regress_expression ON idem_outbox (pg_catalog.upper(aggregateid));
SELECT outcome FROM idem_create_order('outbox', 'o4', 100, 'CNY');
SET LOCAL enable_seqscan = off;
SELECT key, to_state FROM idem_history WHERE key = 'o4' AND entity = 'order';
SELECT type FROM idem_outbox WHERE upper(aggregateid) = 'O4';
ROLLBACK;

BEGIN;
ALTER TABLE idem_outbox ADD CONSTRAINT regress_check CHECK (aggregateid OPERATOR(pg_catalog.<>) 'o5');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_create_order('outbox', 'o5', 100, 'CNY');
\set VERBOSITY default
ROLLBACK;
SELECT count(*) FROM idem_history WHERE tenant_id = 'outbox' AND key = 'o5';

--
-- A session hears of the ring's next slice, even after an attempt to read the ring that failed
--
SELECT extnamespace::regnamespace AS house FROM pg_extension WHERE extname = 'idem' \gset
BEGIN;
SELECT idem_publish('outbox', 'a', '1', 'ring.before', '{}') IS NOT NULL AS published;
ALTER TABLE idem_outbox_ring RENAME TO regress_ring;
SAVEPOINT here;
\set VERBOSITY sqlstate
SELECT idem_publish('outbox', 'a', '1', 'ring.away', '{}');
\set VERBOSITY default
ROLLBACK TO here;
ALTER TABLE :house.regress_ring RENAME TO idem_outbox_ring;
INSERT INTO idem_outbox_ring (ring, place, since) SELECT 'log', (slice + 2) % 4, clock_timestamp()
	FROM idem_outbox WHERE tenant_id = 'outbox' AND type = 'ring.before'
	ON CONFLICT (ring, place) DO UPDATE SET since = excluded.since;
SELECT idem_publish('outbox', 'a', '1', 'ring.after', '{}') IS NOT NULL AS published;
SELECT (max(slice) FILTER (WHERE type = 'ring.after') - max(slice) FILTER (WHERE type = 'ring.before') + 4) % 4 AS further
FROM idem_outbox WHERE tenant_id = 'outbox' AND type LIKE 'ring.%';
ROLLBACK;
RESET timezone;
RESET idem.actor;
