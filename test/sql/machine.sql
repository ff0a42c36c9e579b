--
-- machine: the guard on the built-in tables, and on any other that is
-- attached; the rules; history.
--
-- All of it is rolled back: money that nobody paid would be found by idem_verify().
--
\set ON_ERROR_ROLLBACK on
BEGIN;
SELECT outcome FROM idem_create_order('machine', 'o1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('machine', 'o1', 100, 'CNY', channel => 'alipay', payment_no => 'machine-1', request_key => 'k1');

-- A raw UPDATE may make a legal move; the guard counts the version, and tells.
UPDATE idem_payment SET status = 'closing' WHERE tenant_id = 'machine';
UPDATE idem_payment SET status = 'paid', version = version + 1 WHERE tenant_id = 'machine';
SELECT entity, key, version, from_state, to_state, event, actor, session_role = session_user AS ours, event_id IS NOT NULL AS announced
FROM idem_history WHERE tenant_id = 'machine' ORDER BY entity, version;

-- Nothing leads out of paid, by whatever way.
UPDATE idem_payment SET status = 'pending' WHERE tenant_id = 'machine';
INSERT INTO idem_payment SELECT * FROM idem_payment WHERE tenant_id = 'machine'
ON CONFLICT (tenant_id, payment_no) DO UPDATE SET status = 'closed';
WITH moved AS (UPDATE idem_payment SET status = 'failed' WHERE tenant_id = 'machine' RETURNING 1) SELECT count(*) FROM moved;
UPDATE idem_payment SET status = 'nonsense' WHERE tenant_id = 'machine';
DO $$
BEGIN
	IF current_setting('server_version_num')::int >= 150000 THEN
		EXECUTE 'MERGE INTO idem_payment USING (SELECT 1) AS s ON tenant_id = ''machine'' WHEN MATCHED THEN UPDATE SET status = ''review''';
	ELSE
		UPDATE idem_payment SET status = 'review' WHERE tenant_id = 'machine';
	END IF;
EXCEPTION WHEN SQLSTATE 'ID003' THEN
	RAISE NOTICE '%', SQLERRM;
END $$;

-- ON CONFLICT DO UPDATE of a row that may move is an UPDATE, not a birth.
INSERT INTO idem_order SELECT tenant_id, order_id, 'paid', version, amount, currency, buyer_id, metadata, created_at, expires_at
FROM idem_order WHERE tenant_id = 'machine'
ON CONFLICT (tenant_id, order_id) DO UPDATE SET status = 'paid';
SELECT status, version FROM idem_order WHERE tenant_id = 'machine';

-- Frozen columns, columns set once, versions out of turn.
UPDATE idem_payment SET amount = 1 WHERE tenant_id = 'machine';
UPDATE idem_payment SET payment_no = 'other' WHERE tenant_id = 'machine';
UPDATE idem_payment SET channel = 'wechat' WHERE tenant_id = 'machine';
UPDATE idem_payment SET account = 'a1' WHERE tenant_id = 'machine';
UPDATE idem_payment SET account = 'a2' WHERE tenant_id = 'machine';
UPDATE idem_payment SET account = NULL WHERE tenant_id = 'machine';
UPDATE idem_payment SET version = 99 WHERE tenant_id = 'machine';
UPDATE idem_payment SET version = 1 WHERE tenant_id = 'machine';
SELECT outcome FROM idem_cancel_request_key('machine', 'burned');
UPDATE idem_payment_key SET payment_no = 'machine-1' WHERE tenant_id = 'machine';

-- What changes nothing is stored as it is; what changes anything is counted.
SELECT version FROM idem_payment WHERE tenant_id = 'machine';
UPDATE idem_payment SET status = status, account = 'a1' WHERE tenant_id = 'machine';
SELECT version FROM idem_payment WHERE tenant_id = 'machine';
UPDATE idem_payment SET metadata = '{"note": 1}' WHERE tenant_id = 'machine';
SELECT version FROM idem_payment WHERE tenant_id = 'machine';
SELECT count(*) FROM idem_history WHERE tenant_id = 'machine' AND entity = 'payment';

-- Nothing is deleted, and what happened is not rewritten.
\set VERBOSITY sqlstate
DELETE FROM idem_order WHERE tenant_id = 'machine';
DELETE FROM idem_payment WHERE tenant_id = 'machine';
DELETE FROM idem_payment_key WHERE tenant_id = 'machine';
DELETE FROM idem_history WHERE tenant_id = 'machine';
UPDATE idem_history SET actor = 'nobody' WHERE tenant_id = 'machine';
UPDATE idem_outbox SET type = 'payment.pending' WHERE tenant_id = 'machine';
TRUNCATE idem_order;
TRUNCATE idem_payment;
TRUNCATE idem_payment_key;
TRUNCATE idem_receipt;
TRUNCATE idem_refund;
TRUNCATE idem_anomaly;
TRUNCATE idem_history;

-- Built-in machines are closed, also where replication loads rows.
INSERT INTO idem_machine_move VALUES ('payment', 'paid', 'pending', 'unpay');
UPDATE idem_machine_move SET event = 'x' WHERE machine = 'order';
DELETE FROM idem_machine_state WHERE machine = 'refund';
UPDATE idem_machine SET builtin = false WHERE name = 'anomaly';
INSERT INTO idem_machine VALUES ('mine', true);
TRUNCATE idem_machine_move;
SET session_replication_role = replica;
INSERT INTO idem_machine_move VALUES ('payment', 'paid', 'pending', 'unpay');
RESET session_replication_role;
\set VERBOSITY default

-- The trigger functions are triggers.
SELECT idem_guard();
SELECT idem_guard_rules();

--
-- Births: a restore loads rows as they are, silently; others begin at the beginning.
--
SAVEPOINT births;
INSERT INTO idem_order VALUES ('machine', 'restored', 'shipped', 7, 1, 'CNY', NULL, NULL, now(), NULL);
INSERT INTO idem_order VALUES ('machine', 'broken', 'vanished', 7, 1, 'CNY', NULL, NULL, now(), NULL);
CREATE ROLE regress_idem_machine;
GRANT USAGE ON SCHEMA public TO regress_idem_machine;
GRANT INSERT, UPDATE, SELECT ON idem_order TO regress_idem_machine;
SET LOCAL ROLE regress_idem_machine;
INSERT INTO idem_order VALUES ('machine', 'forged', 'paid', 1, 1, 'CNY', NULL, NULL, now(), NULL);
COPY idem_order (tenant_id, order_id, status, amount, currency, created_at) FROM stdin;
machine	copied	paid	1	CNY	2020-01-01
\.
COPY idem_order (tenant_id, order_id, status, amount, currency, created_at) FROM stdin;
machine	copied	pending	1	CNY	2020-01-01
\.
RESET ROLE;
SELECT key, to_state FROM idem_history WHERE tenant_id = 'machine' AND key IN ('restored', 'copied') ORDER BY key;
ROLLBACK TO births;

--
-- Other triggers: whoever changes the row before or after the guard, what is stored is legal.
--
CREATE FUNCTION pg_temp.meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW := jsonb_populate_record(NEW, NEW.metadata);
	RETURN NEW;
END $$;
SAVEPOINT first;
CREATE TRIGGER aaa BEFORE UPDATE ON idem_order FOR EACH ROW EXECUTE FUNCTION pg_temp.meddle();
UPDATE idem_order SET metadata = '{"status": "pending"}' WHERE tenant_id = 'machine';
UPDATE idem_order SET metadata = '{"status": "shipped"}' WHERE tenant_id = 'machine';
SELECT status, version FROM idem_order WHERE tenant_id = 'machine';
ROLLBACK TO first;
CREATE TRIGGER zzz BEFORE UPDATE ON idem_order FOR EACH ROW EXECUTE FUNCTION pg_temp.meddle();
UPDATE idem_order SET metadata = '{"status": "pending"}' WHERE tenant_id = 'machine';
UPDATE idem_order SET metadata = '{"order_id": "stolen"}' WHERE tenant_id = 'machine';
UPDATE idem_order SET metadata = '{"version": 77}' WHERE tenant_id = 'machine';
UPDATE idem_order SET metadata = '{"status": "shipped"}' WHERE tenant_id = 'machine';
SELECT key, version, from_state, to_state FROM idem_history
WHERE tenant_id = 'machine' AND entity = 'order' ORDER BY version;
ROLLBACK TO first;
ALTER TABLE idem_order DISABLE TRIGGER zz_idem_guard;
UPDATE idem_order SET status = 'pending' WHERE tenant_id = 'machine';
UPDATE idem_order SET status = 'shipped' WHERE tenant_id = 'machine';
ROLLBACK;

--
-- Any table, with rules of one's own
--
BEGIN;
INSERT INTO idem_machine VALUES ('errand');
INSERT INTO idem_machine_state VALUES ('errand', 'new', true), ('errand', 'running', false), ('errand', 'done', false);
INSERT INTO idem_machine_move VALUES ('errand', 'new', 'running', 'start');
CREATE TABLE errand (id int, step text, state varchar(10), version int, note text, PRIMARY KEY (id, step));
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON errand FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'key=id', 'key=step', 'version=version');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON errand FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'key=id', 'key=step', 'version=version', 'outbox=on', 'payload=note');
INSERT INTO errand VALUES (1, 'a', 'new', NULL, 'say "hi"');
INSERT INTO errand VALUES (2, 'a', 'running');
UPDATE errand SET state = 'running';
UPDATE errand SET state = 'done';
-- a rule that is taken back never was
SAVEPOINT rule;
INSERT INTO idem_machine_move VALUES ('errand', 'running', 'done', 'finish');
UPDATE errand SET state = 'done';
ROLLBACK TO rule;
UPDATE errand SET state = 'done';
INSERT INTO idem_machine_move VALUES ('errand', 'running', 'done', 'finish');
ALTER TABLE errand ADD COLUMN added int DEFAULT 1;
UPDATE errand SET state = 'done', added = 2;
SELECT key, version, from_state, to_state, event FROM idem_history WHERE entity = 'errand' ORDER BY version;
SELECT aggregatetype, aggregateid, type, payload - 'at' AS payload FROM idem_outbox WHERE type LIKE 'errand%' ORDER BY created_at;
ALTER TABLE errand DROP COLUMN note;
UPDATE errand SET added = 3;
SELECT version, added FROM errand;
ALTER TABLE errand RENAME COLUMN version TO edition;
UPDATE errand SET added = 4;
ROLLBACK;

-- Nobody's table passes for one of the extension's.
BEGIN;
INSERT INTO idem_machine VALUES ('errand');
INSERT INTO idem_machine_state VALUES ('errand', 'pending', true);
CREATE ROLE regress_idem_machine;
CREATE TABLE forged (tenant_id text, order_id text, payment_no text, status text);
ALTER TABLE forged OWNER TO regress_idem_machine;
SAVEPOINT trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=payment', 'state=status', 'key=payment_no');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=status', 'key=payment_no', 'entity=payment', 'outbox=on');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=status', 'key=payment_no', 'outbox=on', 'aggregate=order', 'aggregate_id=order_id');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=status', 'key=payment_no', 'own=on');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
-- Arguments that make no sense
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION idem_guard('machine=nothing', 'state=status', 'key=payment_no');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION idem_guard('machine=errand', 'status');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record AFTER INSERT ON forged FOR EACH ROW EXECUTE FUNCTION idem_guard('machine=errand');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK TO trigger;
CREATE TRIGGER zz_idem_record BEFORE INSERT ON forged FOR EACH ROW EXECUTE FUNCTION idem_guard('machine=errand', 'state=status', 'key=payment_no');
INSERT INTO forged VALUES ('machine', 'o1', 'p1', 'pending');
ROLLBACK;
\set ON_ERROR_ROLLBACK off
