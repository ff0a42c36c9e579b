--
-- brake: automatic refunds that wait for a human.
--
CREATE TEMP VIEW refunds AS
	SELECT tenant_id, order_id, cause, status, held, next_check_at IS NOT NULL AS scheduled FROM idem_refund;
CREATE TEMP VIEW holds AS
	SELECT tenant_id, status, hits, detail - '{stored,system_identifier}'::text[] AS detail FROM idem_anomaly WHERE kind = 'auto_refund_held';

-- An order paid twice: the second receipt goes back by itself.
CREATE FUNCTION pay_twice(tenant text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	payment text := 'brake_' || n;
	outcome text;
BEGIN
	PERFORM idem_create_payment(tenant, 'order_' || n, 100, 'CNY', payment_no => payment, channel => 'alipay', account => 'm1');
	PERFORM idem_confirm_payment(tenant, payment, 'alipay', n || '/1', 100, 'CNY', 'm1');
	SELECT c.outcome INTO outcome FROM idem_confirm_payment(tenant, payment, 'alipay', n || '/2', 100, 'CNY', 'm1') c;
	RETURN outcome;
END $$;

--
-- The setting. What is held is requested and reserved, whatever made it.
--
SET idem.auto_refund = hold;
SELECT pay_twice('brake_setting', 1);
SELECT outcome FROM idem_create_order('brake_setting', 'order_2', 100, 'CNY');
SELECT outcome FROM idem_create_payment('brake_setting', 'order_2', 100, 'CNY', payment_no => 'brake_2');
SELECT outcome FROM idem_confirm_payment('brake_setting', 'brake_2', 'alipay', '2/1', 100, 'CNY');
SELECT outcome, refund_no IS NOT NULL AS refund, refund_status, remainder FROM idem_cancel_order('brake_setting', 'order_2');
SELECT outcome, refund_no IS NOT NULL AS refund, refund_status, remainder FROM idem_cancel_order('brake_setting', 'order_2');
SELECT outcome FROM idem_confirm_payment('brake_setting', 'brake_2', 'alipay', '2/2', 50, 'CNY');
SELECT outcome FROM idem_create_payment('brake_setting', 'order_3', 100, 'CNY', payment_no => 'brake_3');
SELECT outcome FROM idem_confirm_payment('brake_setting', 'brake_3', 'alipay', '3/1', 99, 'CNY');
SELECT outcome, refund_no IS NOT NULL AS refund FROM idem_resolve_review('brake_setting', 'brake_3', 'refund', 'wrong');
SELECT outcome FROM idem_confirm_payment('brake_setting', 'brake_4', 'alipay', '4/1', 99, 'CNY');
SELECT r.outcome, r.refund_no IS NOT NULL AS refund, r.status FROM idem_receipt, idem_refund_receipt(tenant_id, receipt_no, 'whose?') r WHERE tenant_id = 'brake_setting' AND trade_no = '4/1';
-- what a caller requests is the caller's decision
SELECT outcome, status FROM idem_request_refund('brake_setting', 'brake_1', 'mine', 10, 'CNY');
SELECT order_id, cause, status, held, scheduled FROM refunds WHERE tenant_id = 'brake_setting' ORDER BY order_id, cause;
SELECT trade_no, disposition, refund_reserved FROM idem_receipt WHERE tenant_id = 'brake_setting' ORDER BY trade_no;
SELECT count(*) AS anomalies FROM holds WHERE tenant_id = 'brake_setting';
RESET idem.auto_refund;

--
-- A held refund, every call. The setting is on again: what is held stays held.
--
CREATE TEMP TABLE held AS SELECT order_id, refund_no, receipt_no FROM idem_refund WHERE tenant_id = 'brake_setting' AND cause IN ('surplus', 'cancel');
BEGIN;
SELECT order_id, r.outcome, r.status, r.refund_no FROM held, idem_submit_refund('brake_setting', refund_no) r ORDER BY 1;
SELECT order_id, r.outcome, r.status, r.refund_no FROM held, idem_retry_refund('brake_setting', refund_no) r ORDER BY 1;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT order_id, r.* FROM held, idem_cancel_refund('brake_setting', refund_no) r ORDER BY 1;
SELECT order_id, r.outcome FROM held, idem_submit_refund('brake_setting', refund_no) r ORDER BY 1;
SELECT r.* FROM idem_release_refunds('brake_setting', ARRAY(SELECT refund_no FROM held)) r;
ROLLBACK;
CREATE TEMP TABLE result (n int, result text);
INSERT INTO result VALUES (1, 'timeout'), (2, 'abnormal'), (3, 'failed'), (4, 'closed'), (5, 'succeeded'), (6, 'reversed');
CREATE FUNCTION settled(no text, result text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	story text;
BEGIN
	SELECT s.outcome || ' ' || s.status INTO story FROM idem_settle_refund('brake_setting', no, result) s;
	SELECT story || CASE WHEN f.held THEN ', held' ELSE ', not held' END INTO story FROM idem_refund f WHERE tenant_id = 'brake_setting' AND refund_no = no;
	RAISE EXCEPTION USING MESSAGE = story, ERRCODE = 'ZZ001';
EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
	RETURN story;
END $$;
SELECT result, settled(refund_no, result) FROM held, result WHERE order_id = 'order_1' ORDER BY n;
-- released, once
SELECT r.* FROM idem_release_refunds('brake_setting', ARRAY(SELECT refund_no FROM held UNION ALL SELECT refund_no FROM held)) r;
BEGIN;
SELECT r.* FROM idem_release_refunds('brake_setting', ARRAY(SELECT refund_no FROM held)) r;
SELECT r.* FROM idem_release_refunds('brake_setting', '{}') r;
SELECT r.* FROM idem_release_refunds('brake_setting', '{mine}') r;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
ROLLBACK;
SELECT order_id, r.outcome, r.status, r.refund_no IS NOT NULL AS refund, r.trade_no FROM held, idem_submit_refund('brake_setting', refund_no) r ORDER BY 1;
SELECT order_id, cause, status, held, scheduled FROM refunds WHERE tenant_id = 'brake_setting' ORDER BY order_id, cause;

--
-- The account's row
--
INSERT INTO idem_channel_account (tenant_id, channel, account, auto_refund) VALUES ('brake_account', 'alipay', 'm1', 'hold'), ('brake_account', 'alipay', 'm2', 'on');
SELECT pay_twice('brake_account', 1);
SELECT outcome FROM idem_confirm_payment('brake_account', 'brake_9', 'alipay', '9/1', 99, 'CNY', 'm2');
SELECT r.outcome FROM idem_receipt, idem_refund_receipt(tenant_id, receipt_no, 'whose?') r WHERE tenant_id = 'brake_account' AND trade_no = '9/1';
SELECT order_id, cause, held FROM refunds WHERE tenant_id = 'brake_account' ORDER BY order_id;

--
-- Too many in an hour: the next one opens the anomaly, all that follow are held.
--
SET idem.auto_refund_hourly = 2;
SELECT n, pay_twice('brake_burst', n) FROM generate_series(1, 5) n ORDER BY n;
SELECT order_id, cause, status, held FROM refunds WHERE tenant_id = 'brake_burst' ORDER BY order_id;
SELECT * FROM holds WHERE tenant_id = 'brake_burst';
-- another tenant has nothing to do with it
SELECT pay_twice('brake_burst_other', 1);
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_burst_other';
-- resolved: the hold has ended, the count begins anew, and what is held stays so until it is let go
SELECT r.outcome FROM idem_anomaly, idem_resolve_anomaly(tenant_id, anomaly_no, 'looked', 'a promotion') r WHERE tenant_id = 'brake_burst' AND kind = 'auto_refund_held';
SELECT n, pay_twice('brake_burst', n) FROM generate_series(6, 8) n ORDER BY n;
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_burst' ORDER BY order_id;
SELECT status, hits FROM holds WHERE tenant_id = 'brake_burst' ORDER BY status;
-- older ones do not count
SELECT r.outcome FROM idem_anomaly, idem_resolve_anomaly(tenant_id, anomaly_no, 'looked', 'a promotion') r WHERE tenant_id = 'brake_burst' AND kind = 'auto_refund_held' AND status = 'opened';
INSERT INTO idem_receipt (tenant_id, receipt_no, channel, account, trade_no, reported_payment_no, amount, currency, disposition, refund_reserved, created_at)
	SELECT 'brake_burst', n, 'alipay', 'm1', 'old/' || n, 'old', 1, 'CNY', 'orphan', 1, now() FROM generate_series(1, 9) n;
INSERT INTO idem_refund (tenant_id, refund_no, receipt_no, channel, account, amount, currency, status, cause, created_at)
	SELECT 'brake_burst', 'A' || n, n, 'alipay', 'm1', 1, 'CNY', 'requested', 'orphan', now() - interval '61 minutes' FROM generate_series(1, 9) n;
SELECT pay_twice('brake_burst', 9);
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_burst' AND order_id = 'order_9';
-- none at all
SET idem.auto_refund_hourly = 0;
SELECT pay_twice('brake_none', 1);
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_none';
SELECT * FROM holds WHERE tenant_id = 'brake_none';
RESET idem.auto_refund_hourly;

--
-- The tables came from another cluster.
--
SELECT count(*) AS clusters, bool_and(system_identifier = (SELECT c.system_identifier::text FROM pg_control_system() c)) AS this_one, min(since) FROM idem_cluster;
SELECT n, pay_twice('brake_moved', n) FROM generate_series(1, 1) n;
SELECT outcome FROM idem_create_payment('brake_moved', 'order_2', 100, 'CNY', payment_no => 'brake_2', channel => 'alipay', account => 'm1');
SELECT outcome FROM idem_create_payment('brake_moved_too', 'order_3', 100, 'CNY', payment_no => 'brake_3', channel => 'alipay', account => 'm1');
BEGIN;
UPDATE idem_cluster SET system_identifier = '1';
-- the first one is held, and says why
SELECT n, pay_twice('brake_moved', n) FROM generate_series(2, 3) n ORDER BY n;
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_moved' ORDER BY order_id;
SELECT a.status, a.entity, a.key, a.detail->>'why' AS why, a.detail->>'stored' AS stored, a.detail->>'system_identifier' = (SELECT c.system_identifier::text FROM pg_control_system() c) AS this_one
FROM idem_anomaly a WHERE tenant_id = 'brake_moved' AND kind = 'auto_refund_held';
SELECT system_identifier = (SELECT c.system_identifier::text FROM pg_control_system() c) AS this_one, since BETWEEN now() AND clock_timestamp() AS since_now FROM idem_cluster;
-- another tenant: what is older than the move is held, too, what is newer is not
SELECT pay_twice('brake_moved_too', 4);
SELECT pay_twice('brake_moved_too', 3);
SELECT pay_twice('brake_moved_too', 5);
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_moved_too' ORDER BY order_id;
SELECT tenant_id, status, hits FROM holds WHERE tenant_id LIKE 'brake_moved%' ORDER BY tenant_id;
-- looked at by a human, once is enough
SELECT tenant_id, r.outcome FROM idem_anomaly, idem_resolve_anomaly(tenant_id, anomaly_no, 'looked', 'restored on purpose') r WHERE tenant_id LIKE 'brake_moved%' AND kind = 'auto_refund_held' ORDER BY 1;
SELECT pay_twice('brake_moved', 6);
SELECT outcome FROM idem_confirm_payment('brake_moved_too', 'brake_3', 'alipay', '3/3', 100, 'CNY', 'm1');
SELECT order_id, held FROM refunds WHERE tenant_id = 'brake_moved' AND order_id = 'order_6';
SELECT order_id, held, count(*) FROM refunds WHERE tenant_id = 'brake_moved_too' AND order_id = 'order_3' GROUP BY 1, 2 ORDER BY 2;
ROLLBACK;

--
-- What the tables and functions refuse.
--
\set VERBOSITY terse
DELETE FROM idem_cluster;
TRUNCATE idem_cluster;
UPDATE idem_channel_account SET auto_refund = 'off' WHERE tenant_id = 'brake_account';
SET idem.auto_refund = off;
SET idem.auto_refund_hourly = -1;
SELECT idem_release_refunds('brake_setting', '{mine,unknown}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_release_refunds('brake_setting', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT idem_release_refunds('brake_setting', '{mine,NULL}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_release_refunds('brake_setting', ARRAY[repeat('x', 256)]);
\echo :LAST_ERROR_SQLSTATE

SELECT * FROM idem_verify();
DROP FUNCTION pay_twice;
DROP FUNCTION settled;
