--
-- receipt: what the tables stand for, and confirmations that meet rows which
-- only their owner can write.
--
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.reported_payment_no AS reported, r.account, r.trade_no, r.payment_no, r.disposition,
		(SELECT f.cause || ' ' || f.status || ' ' || f.amount FROM idem_refund f
		 WHERE f.tenant_id = r.tenant_id AND f.refund_no = 'A' || r.receipt_no AND f.amount = r.refund_reserved) AS refund,
		(SELECT string_agg(a.kind || ' ' || a.status || coalesce(' (' || a.resolution || ')', '') || ' x' || a.hits, ', ' ORDER BY a.anomaly_no)
		 FROM idem_anomaly a WHERE a.tenant_id = r.tenant_id AND a.entity = 'receipt' AND a.key = r.receipt_no) AS anomalies
	FROM idem_receipt r;

--
-- Accounts. Once a channel has one here, money on any other is rejected.
--
INSERT INTO idem_channel_account VALUES ('accounts', 'alipay', 'a1'), ('accounts', 'alipay', 'a2'), ('others', 'wechat', 'w1');
CREATE TEMP TABLE given (n int, own text, account text);
INSERT INTO given VALUES (1, NULL, NULL), (2, NULL, 'a1'), (3, NULL, 'a9'), (4, 'a1', NULL), (5, 'a1', 'a1'), (6, 'a1', 'a2'), (7, 'a9', NULL), (8, 'a9', 'a9'), (9, 'a1', '');
SELECT n, r.outcome FROM given, idem_create_payment('accounts', 'o' || n, 100, 'CNY', payment_no => 'account_' || n, channel => 'alipay', account => own) r ORDER BY n;
SELECT given.*, r.outcome, r.status FROM given, idem_confirm_payment('accounts', 'account_' || n, 'alipay', 'T' || n, 100, 'CNY', account) r ORDER BY n;
SELECT reported, account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'accounts' ORDER BY reported;
SELECT payment_no, status, channel, account FROM idem_payment WHERE tenant_id = 'accounts' ORDER BY payment_no;
-- A channel without rows takes any; so does the same channel of another tenant.
SELECT outcome FROM idem_create_payment('accounts', 'o20', 100, 'CNY', payment_no => 'account_20');
SELECT outcome FROM idem_confirm_payment('accounts', 'account_20', 'wechat', 'T20', 100, 'CNY', 'w9');
SELECT outcome FROM idem_create_payment('others', 'o20', 100, 'CNY', payment_no => 'account_20');
SELECT outcome FROM idem_confirm_payment('others', 'account_20', 'alipay', 'T20', 100, 'CNY', 'a9');
-- An unknown payment on an unknown account is rejected before it is an orphan; once the account is known it is judged anew.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('accounts', 'account_30', 'alipay', 'T30', 100, 'CNY', 'a9');
INSERT INTO idem_channel_account VALUES ('accounts', 'alipay', 'a9');
SELECT outcome, status FROM idem_confirm_payment('accounts', 'account_30', 'alipay', 'T30', 100, 'CNY', 'a9');
SELECT account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'accounts' AND trade_no = 'T30';
DELETE FROM idem_channel_account WHERE account = 'a9';
SELECT outcome, status FROM idem_confirm_payment('accounts', 'account_30', 'alipay', 'T30', 100, 'CNY', 'a9');
SELECT account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'accounts' AND trade_no = 'T30';
ROLLBACK;
-- What is on the books as received stays a duplicate only as long as the account is the right one.
BEGIN;
SELECT outcome FROM idem_confirm_payment('accounts', 'account_5', 'alipay', 'T5', 100, 'CNY', 'a1');
DELETE FROM idem_channel_account WHERE account = 'a1';
SELECT outcome, receipt_no FROM idem_confirm_payment('accounts', 'account_5', 'alipay', 'T5', 100, 'CNY', 'a1');
ROLLBACK;
-- An account belongs to a channel: money that came through another one is not on the payment's own, and on none that is known.
BEGIN;
SELECT n, outcome FROM (VALUES (1, 'a1'), (2, NULL), (3, 'a1')) AS own (n, account), idem_create_payment('abroad', 'o' || n, 100, 'CNY', payment_no => 'abroad_' || n, channel => 'alipay', account => account) r ORDER BY n;
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_1', 'wechat', 'T1', 100, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_1', 'wechat', 'T1', 100, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_2', 'wechat', 'T2', 100, 'CNY', 'w1');
SELECT outcome FROM idem_confirm_payment('abroad', 'abroad_4', 'wechat', 'T4', 100, 'CNY');
-- named once more by another account than the payment's, it is refused, and still one receipt
SELECT outcome, receipt_no FROM idem_confirm_payment('abroad', 'abroad_1', 'wechat', 'T1', 100, 'CNY', 'w1');
-- an account of that channel may be called as the payment's own is; what was named before is remembered
INSERT INTO idem_channel_account VALUES ('abroad', 'wechat', 'a1'), ('abroad', 'wechat', 'w1');
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_3', 'wechat', 'T3', 100, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_3', 'wechat', 'T3', 100, 'CNY', 'a1');
SELECT outcome, status FROM idem_confirm_payment('abroad', 'abroad_2', 'wechat', 'T2', 100, 'CNY');
SELECT outcome, status FROM idem_create_payment('abroad', 'o4', 100, 'CNY', payment_no => 'abroad_4', channel => 'alipay', account => 'a1');
SELECT reported, account, trade_no, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'abroad' ORDER BY trade_no;
SELECT payment_no, status, channel, account FROM idem_payment WHERE tenant_id = 'abroad' ORDER BY payment_no;
ROLLBACK;
-- An operator may know better than the rows.
BEGIN;
SELECT n, r.outcome, r.status, r.order_status FROM given, idem_receipt c, idem_adopt_receipt(c.tenant_id, c.receipt_no, c.reported_payment_no) r
WHERE c.tenant_id = 'accounts' AND c.disposition = 'rejected' AND c.reported_payment_no = 'account_' || n ORDER BY n;
SELECT reported, account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'accounts' ORDER BY reported;
SELECT payment_no, status, channel, account FROM idem_payment WHERE tenant_id = 'accounts' ORDER BY payment_no;
ROLLBACK;

--
-- An order that ended, in every way, for every purchase, with every payment.
--
BEGIN;
CREATE TEMP TABLE ended (n int, status text, purchase_no int, payment text);
INSERT INTO ended SELECT row_number() OVER (), status, purchase_no, payment
FROM unnest('{pending,paid,shipped,completed,cancelled,expired,refunded}'::text[]) WITH ORDINALITY AS s (status, i),
	unnest('{1,2}'::int[]) AS purchase_no, unnest('{pending,closing,failed,closed,paid_late}'::text[]) WITH ORDINALITY AS p (payment, j)
ORDER BY i, purchase_no, j;
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at)
	SELECT 'ended', 'o' || n, status, 100, 'CNY', now() FROM ended;
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
	SELECT 'ended', 'ended_' || n, 'o' || n, purchase_no, 100, 'CNY', payment, now() FROM ended;
SELECT e.status, purchase_no, payment, r.outcome, r.status, r.refund_no IS NOT NULL AS refund, r.order_status
FROM ended e, idem_confirm_payment('ended', 'ended_' || n, 'alipay', 'T' || n, 100, 'CNY') r ORDER BY n;
-- Paid for a row that does not follow this purchase, or that was paid already by other means: the row stays.
SELECT e.status, o.status, count(*) FROM ended e JOIN idem_order o ON o.tenant_id = 'ended' AND o.order_id = 'o' || n GROUP BY 1, 2 ORDER BY 1, 2;
ROLLBACK;

-- The row's amount counts while it is pending and the purchase is its own.
BEGIN;
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at)
	VALUES ('dear', 'o1', 'pending', 120, 'CNY', now()), ('dear', 'o2', 'pending', 100, 'USD', now()), ('dear', 'o3', 'pending', 120, 'CNY', now());
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
	VALUES ('dear', 'dear_1', 'o1', 1, 100, 'CNY', 'pending', now()), ('dear', 'dear_2', 'o2', 1, 100, 'CNY', 'closed', now()), ('dear', 'dear_3', 'o3', 2, 100, 'CNY', 'pending', now());
SELECT n, r.outcome, r.status, r.order_status FROM generate_series(1, 3) n, idem_confirm_payment('dear', 'dear_' || n, 'alipay', 'T' || n, 100, 'CNY') r ORDER BY n;
ROLLBACK;

-- Money in review whose order ended meanwhile: all of it is late.
BEGIN;
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
	VALUES ('late', 'late_1', 'o', 1, 100, 'CNY', 'pending', now());
SELECT outcome, status FROM idem_confirm_payment('late', 'late_1', 'alipay', 'T1', 99, 'CNY');
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at) VALUES ('late', 'o', 'expired', 100, 'CNY', now());
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('late', 'late_1', 'alipay', 'T2', 100, 'CNY');
SELECT trade_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'late' ORDER BY trade_no;

--
-- What the table itself refuses.
--
\set VERBOSITY terse
\set ON_ERROR_ROLLBACK on
CREATE TEMP TABLE model AS SELECT * FROM idem_receipt WHERE tenant_id = 'late' AND trade_no = 'T2';
UPDATE model SET receipt_no = 'r', disposition = 'orphan', payment_no = NULL, order_id = NULL, purchase_no = NULL, refund_reserved = 0;
INSERT INTO idem_receipt SELECT * FROM model;	-- the trade
UPDATE model SET account = 'other', payment_no = 'late_1';
INSERT INTO idem_receipt SELECT * FROM model;	-- the trade on this payment
UPDATE model SET trade_no = 'T3', disposition = 'applied', payment_no = 'account_20', order_id = 'o20', purchase_no = 1, tenant_id = 'others';
INSERT INTO idem_receipt SELECT * FROM model;	-- a second applied one
UPDATE model SET disposition = 'lost';
INSERT INTO idem_receipt SELECT * FROM model;
UPDATE idem_receipt SET refunded = 1 WHERE tenant_id = 'others';
UPDATE idem_receipt SET refund_reserved = 101 WHERE tenant_id = 'others';
UPDATE idem_receipt SET refund_reserved = 100, disputed = 1 WHERE tenant_id = 'others';
UPDATE idem_receipt SET amount = 200 WHERE tenant_id = 'others';
UPDATE idem_receipt SET trade_no = 'x' WHERE tenant_id = 'others';
UPDATE idem_receipt SET payment_no = 'x' WHERE tenant_id = 'others';
DELETE FROM idem_receipt;
TRUNCATE idem_receipt;
DELETE FROM idem_refund;
UPDATE idem_refund SET amount = 1 WHERE tenant_id = 'late';
UPDATE idem_refund SET status = 'reversed' WHERE tenant_id = 'late';
DELETE FROM idem_anomaly;
UPDATE idem_anomaly SET kind = 'other' WHERE tenant_id = 'late';

-- Each refund and each anomaly was told once.
SELECT tenant_id, entity, from_state, to_state, event, count(*) FROM idem_history
WHERE tenant_id IN ('accounts', 'late') AND entity IN ('refund', 'anomaly') GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 4, 5;
SELECT aggregatetype, aggregateid, type, payload->>'payment_no' AS payment_no, payload->>'amount' AS amount, payload->>'kind' AS kind
FROM idem_outbox WHERE tenant_id = 'late' AND type LIKE 'refund.%' ORDER BY payload->>'amount';
ROLLBACK;

SELECT * FROM idem_verify();
