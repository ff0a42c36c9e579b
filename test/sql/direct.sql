--
-- direct: rows that go past the executor are those that a statement would have stored; whatever a user
-- adds to a table (a trigger, a check, an index), at once and in a session that knows the table without it,
-- counts as it would for a statement.
--
SELECT idem_issue_token('direct', 'payment') AS token \gset
SELECT outcome FROM idem_create_payment('direct', 'o1', 100, 'CNY', 'k1', channel => 'alipay', metadata => '{"a": 1}', token => :'token', payment_no => 'direct-1');
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r1', '{}');

--
-- The statement stores the same
--
BEGIN;
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER nothing BEFORE INSERT ON idem_payment FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing AFTER INSERT ON idem_token_used FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing AFTER INSERT ON idem_request FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.nothing();
SELECT idem_issue_token('direct', 'payment') AS token \gset
SELECT outcome FROM idem_create_payment('direct', 'o2', 100, 'CNY', 'k2', channel => 'alipay', metadata => '{"a": 1}', token => :'token', payment_no => 'direct-2');
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r2', '{}');
CREATE VIEW pg_temp.stored AS
	SELECT payment_no AS thing, to_jsonb(p) - '{created_at,expires_at}'::text[] AS row FROM idem_payment p WHERE tenant_id = 'direct'
	UNION ALL SELECT payment_no, to_jsonb(u) - '{digest,consumed_at}'::text[] FROM idem_token_used u WHERE tenant_id = 'direct'
	UNION ALL SELECT key, to_jsonb(r) - '{attempt,first_at,lease_until,expires_at}'::text[] FROM idem_request r WHERE tenant_id = 'direct'
	UNION ALL SELECT key, to_jsonb(h) - '{event_id,at}'::text[] FROM idem_history h WHERE tenant_id = 'direct'
	UNION ALL SELECT payload ->> 'payment_no', payload - 'at' FROM idem_outbox WHERE tenant_id = 'direct';
SELECT count(*) AS rows, count(*) FILTER (WHERE replace(replace(replace(replace(s.row::text, 'direct-2', 'direct-1'), '"o2"', '"o1"'), '"k2"', '"k1"'), '"r2"', '"r1"')::jsonb
	IN (SELECT d.row FROM pg_temp.stored d WHERE d.thing IN ('direct-1', 'r1'))) AS same
FROM pg_temp.stored s WHERE s.thing IN ('direct-2', 'r2');
ROLLBACK;

--
-- Triggers: a user's has its say; the guard that is off records nothing
--
BEGIN;
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
CREATE TRIGGER refuse AFTER INSERT ON idem_payment FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();
\set VERBOSITY terse
SELECT outcome FROM idem_create_payment('direct', 'o3', 100, 'CNY');
\set VERBOSITY default
ROLLBACK;
BEGIN;
ALTER TABLE idem_payment DISABLE TRIGGER zz_idem_record;
SELECT outcome FROM idem_create_payment('direct', 'o3', 100, 'CNY', payment_no => 'direct-3');
SELECT count(*) FROM idem_history WHERE tenant_id = 'direct' AND key = 'direct-3';
ROLLBACK;
BEGIN;
SET LOCAL session_replication_role = replica;
SELECT outcome FROM idem_create_payment('direct', 'o3', 100, 'CNY', payment_no => 'direct-3');
SELECT count(*) FROM idem_history WHERE tenant_id = 'direct' AND key = 'direct-3';
ROLLBACK;

--
-- Checks, rules, columns
--
\set VERBOSITY sqlstate
BEGIN;
ALTER TABLE idem_payment ADD CONSTRAINT regress_check CHECK (amount OPERATOR(pg_catalog.<) 1000) NOT VALID;
SELECT outcome FROM idem_create_payment('direct', 'o3', 1000, 'CNY');
ROLLBACK;
BEGIN;
ALTER DOMAIN idem_money ADD CONSTRAINT regress_money CHECK (VALUE OPERATOR(pg_catalog.<>) 8675309);
SELECT outcome FROM idem_create_payment('direct', 'o3', 8675309, 'CNY');
ROLLBACK;
\set VERBOSITY default
BEGIN;
CREATE FUNCTION regress_path(n bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.=) 'pg_catalog, pg_temp'; END $$;
ALTER DOMAIN idem_money ADD CONSTRAINT regress_path CHECK (regress_path(VALUE)) NOT VALID;
SELECT outcome FROM idem_create_payment('direct', 'o3', 100, 'CNY');
ROLLBACK;
BEGIN;
ALTER TABLE idem_payment ADD note int DEFAULT 7;
SELECT outcome FROM idem_create_payment('direct', 'o3', 100, 'CNY');
SELECT note FROM idem_payment WHERE tenant_id = 'direct' AND order_id = 'o3';
ROLLBACK;

--
-- Indexes: all have the row, and a key that is there stops it, without a trace
--
BEGIN;
CREATE INDEX regress_plain ON idem_payment (order_id DESC);
CREATE INDEX regress_partial ON idem_payment (order_id) WHERE amount OPERATOR(pg_catalog.>) 500;
CREATE INDEX regress_hash ON idem_request USING hash (key);
SELECT outcome FROM idem_create_payment('direct', 'direct-o4', 100, 'CNY', payment_no => 'direct-4');
SELECT outcome FROM idem_create_payment('direct', 'direct-o5', 1000, 'CNY', payment_no => 'direct-5');
SELECT outcome FROM idem_begin_request('direct', 'pay', 'direct-r4', '{}');
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT payment_no FROM idem_payment WHERE order_id = 'direct-o4' ORDER BY order_id DESC;
SELECT payment_no FROM idem_payment WHERE order_id IN ('direct-o4', 'direct-o5') AND amount > 500 ORDER BY order_id;
SELECT key FROM idem_request WHERE key = 'direct-r4';
ROLLBACK;
BEGIN;
SAVEPOINT here;
CREATE UNIQUE INDEX regress_unique ON idem_payment (amount) WHERE tenant_id OPERATOR(pg_catalog.=) 'direct';
SELECT outcome, payment_no FROM idem_create_payment('direct', 'o6', 100, 'CNY', payment_no => 'direct-6', wait => '0');
SELECT count(*) FROM idem_payment WHERE tenant_id = 'direct' AND order_id = 'o6';
SELECT count(*) FROM idem_history WHERE tenant_id = 'direct' AND key = 'direct-6';
SELECT outcome, payment_no FROM idem_create_payment('direct', 'o6', 101, 'CNY', payment_no => 'direct-6', wait => '0');
CREATE UNIQUE INDEX regress_request ON idem_request (scope) WHERE tenant_id OPERATOR(pg_catalog.=) 'direct';
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r7', wait => '0');
SELECT outcome FROM idem_begin_request('direct', 'other', 'r7', wait => '0');
ROLLBACK TO here;
SELECT outcome, payment_no FROM idem_create_payment('direct', 'o7', 100, 'CNY', payment_no => 'direct-7');
ROLLBACK;

--
-- What is rolled back is gone from what the next call sees, a savepoint's too
--
BEGIN;
SELECT outcome FROM idem_create_payment('direct', 'o8', 100, 'CNY', payment_no => 'direct-8');
SELECT outcome FROM idem_create_payment('direct', 'o8', 100, 'CNY');
SAVEPOINT here;
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r8', '{}', worker => 'w');
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r8', '{}', worker => 'w');
ROLLBACK TO here;
SELECT outcome FROM idem_begin_request('direct', 'pay', 'r8', '{}', worker => 'w');
ROLLBACK;
SELECT outcome FROM idem_create_payment('direct', 'o8', 100, 'CNY', payment_no => 'direct-8');

--
-- The checks of domains are compiled anew after each constraint that anybody makes, and do not pile up
--
CREATE FUNCTION pg_temp.kept() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	IF current_setting('server_version_num')::int < 140000 THEN
		RETURN 0;	-- it does not tell
	END IF;
	RETURN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name IN ('CacheMemoryContext', 'idem table', 'idem domain'));
END $$;
CREATE FUNCTION pg_temp.make_constraints(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		CREATE TEMP TABLE regress_made (id int PRIMARY KEY);
		DROP TABLE regress_made;
		PERFORM idem_create_order('direct', 'made-' || n || '-' || i, 100, 'CNY');
	END LOOP;
END $$;
SELECT pg_temp.make_constraints(10);
SELECT pg_temp.kept() AS before \gset
SELECT pg_temp.make_constraints(300);
SELECT pg_temp.kept() - :before < 300000 AS few;

--
-- A table that moves, or changes its name's bearer, is found
--
BEGIN;
ALTER TABLE idem_token_used RENAME TO idem_token_away;
\set VERBOSITY sqlstate
SELECT outcome FROM idem_consume_token('direct', 'payment', idem_issue_token('direct', 'payment'));
\set VERBOSITY default
ROLLBACK;
SELECT outcome FROM idem_consume_token('direct', 'payment', idem_issue_token('direct', 'payment'));
SELECT * FROM idem_verify() WHERE tenant_id = 'direct';
