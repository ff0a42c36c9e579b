--
-- confirm: money arrives, whatever it fits.
--

-- What is on the books about the money that was reported for a payment.
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.reported_payment_no AS reported, r.channel, r.account, r.trade_no, r.payment_no,
		r.disposition, r.amount, r.currency,
		(SELECT f.cause || ' ' || f.status || ' ' || f.amount FROM idem_refund f
		 WHERE f.tenant_id = r.tenant_id AND f.refund_no = 'A' || r.receipt_no AND f.amount = r.refund_reserved) AS refund,
		(SELECT string_agg(a.kind || ' ' || a.status || coalesce(' (' || a.resolution || ')', '') || ' x' || a.hits, ', ' ORDER BY a.anomaly_no)
		 FROM idem_anomaly a WHERE a.tenant_id = r.tenant_id AND a.entity = 'receipt' AND a.key = r.receipt_no) AS anomalies
	FROM idem_receipt r;

--
-- The plain story: an order, a payment, its money, and the channel that
-- repeats itself.
--
SELECT outcome, status FROM idem_create_order('confirm', 'order_1', 100, 'CNY');
SELECT outcome, status FROM idem_create_payment('confirm', 'order_1', 100, 'CNY', payment_no => 'pay_001', channel => 'alipay', account => 'a1');
SELECT outcome, status, receipt_no IS NOT NULL AS receipt, refund_no, order_status, version, closing_payment_no
FROM idem_confirm_payment('confirm', 'pay_001', 'alipay', 'T1', 100, 'cny', 'a1', '2024-01-01 00:00:00+00');
SELECT outcome, status, receipt_no IS NOT NULL AS receipt, refund_no, order_status, version, closing_payment_no
FROM idem_confirm_payment('confirm', 'pay_001', 'alipay', 'T1', 100, 'CNY', 'a1');
SELECT payment_no, order_id, purchase_no, channel, account, trade_no, reported_payment_no, amount, currency, disposition,
	refund_reserved, refunded, disputed, excess, paid_at = '2024-01-01 00:00:00+00' AS paid_at
FROM idem_get_receipts('confirm', 'pay_001');
SELECT entity, key, version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'confirm' ORDER BY entity COLLATE "C", version;
SELECT aggregatetype, aggregateid, type, payload->>'channel' AS channel, payload->>'account' AS account
FROM idem_outbox WHERE tenant_id = 'confirm' ORDER BY type COLLATE "C";

-- A duplicate is a duplicate whatever else it says, and writes nothing.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm', 'pay_001', 'alipay', 'T1', 999, 'USD');
SELECT outcome, status FROM idem_confirm_payment('confirm', 'pay_001', 'alipay', 'T1', NULL, NULL);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;

-- A payment takes channel and account from its money, once.
SELECT outcome FROM idem_create_payment('confirm', 'order_2', 100, 'CNY', payment_no => 'pay_002');
SELECT outcome FROM idem_confirm_payment('confirm', 'pay_002', 'wechat', 'T2', 100, 'CNY', 'w1');
SELECT status, channel, account, version, next_check_at FROM idem_get_payment('confirm', 'pay_002');

--
-- Every state, every kind of money.  There is no order row.
--
CREATE TEMP TABLE state (n int, s text);
INSERT INTO state VALUES (0, 'unknown'), (1, 'pending'), (2, 'closing'), (3, 'review'), (4, 'paid'), (5, 'paid_late'), (6, 'failed'), (7, 'closed');
SELECT s, r.outcome FROM state, idem_create_payment('confirm_cells', 'order_' || s, 100, 'CNY', channel => 'alipay', account => 'a1', payment_no => 'cell_' || s) r
WHERE n > 0 ORDER BY n;
SELECT outcome, status FROM idem_begin_close('confirm_cells', 'cell_closing');
SELECT outcome, status FROM idem_confirm_payment('confirm_cells', 'cell_review', 'alipay', 'first', 99, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('confirm_cells', 'cell_paid', 'alipay', 'second', 100, 'CNY');
SELECT outcome, status FROM idem_fail_payment('confirm_cells', 'cell_paid_late');
SELECT outcome, status FROM idem_confirm_payment('confirm_cells', 'cell_paid_late', 'alipay', 'third', 99, 'CNY');
SELECT outcome, status FROM idem_fail_payment('confirm_cells', 'cell_failed');
SELECT outcome, status FROM idem_close_payment('confirm_cells', 'cell_closed');

-- The right money.
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.order_status, r.version, r.closing_payment_no
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'T-' || s, 100, 'CNY', 'a1') r ORDER BY n;
SELECT * FROM books WHERE tenant_id = 'confirm_cells' ORDER BY reported, trade_no;
SELECT key, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'confirm_cells' AND entity = 'payment' AND event LIKE 'pay%' ORDER BY key COLLATE "C", version;
-- Told again.
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'T-' || s, 100, 'CNY', 'a1') r ORDER BY n;
-- And once more under another trade number.
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'U-' || s, 100, 'CNY', 'a1') r ORDER BY n;
ROLLBACK;

-- Another amount, another currency, through another channel.
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'A-' || s, 101, 'CNY') r ORDER BY n;
SELECT reported, trade_no, payment_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'confirm_cells' ORDER BY reported, trade_no;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'C-' || s, 100, 'USD') r ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'wechat', 'W-' || s, 100, 'CNY') r ORDER BY n;
ROLLBACK;

-- Another account.
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'R-' || s, 100, 'CNY', 'a2') r ORDER BY n;
SELECT reported, account, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_cells' AND trade_no LIKE 'R-%' ORDER BY reported;
-- Told again: the same receipt, one anomaly that counts.
SELECT s, r.outcome, r.status FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'R-' || s, 100, 'CNY', 'a2') r ORDER BY n;
SELECT reported, disposition, anomalies FROM books WHERE tenant_id = 'confirm_cells' AND trade_no LIKE 'R-%' ORDER BY reported;
ROLLBACK;

-- A trade that is another payment's money: nothing moves, the claim is an anomaly.
BEGIN;
SELECT s, r.outcome, r.status, r.receipt_no, r.refund_no, r.version
FROM state, idem_confirm_payment('confirm_cells', 'cell_' || s, 'alipay', 'second', 100, 'CNY', 'a1') r WHERE s <> 'paid' ORDER BY n;
SELECT reported, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_cells' AND trade_no = 'second';
SELECT kind, entity, key, order_id, hits, detail FROM idem_anomaly WHERE tenant_id = 'confirm_cells' AND entity = 'payment' ORDER BY anomaly_no;
ROLLBACK;

-- Money that is none: recorded as it came, never applied, never sent back.
CREATE TEMP TABLE nonsense (m int, channel text, trade_no text, amount bigint, currency text);
INSERT INTO nonsense VALUES
	(1, 'alipay', 'N1', NULL, 'CNY'), (2, 'alipay', 'N2', 0, 'CNY'), (3, 'alipay', 'N3', -100, 'CNY'), (4, 'alipay', 'N4', 100, NULL),
	(5, 'alipay', 'N5', 100, 'RMB '), (6, 'alipay', 'N6', 100, ''), (7, '', 'N7', 100, 'CNY'), (8, 'alipay', '', 100, 'CNY'),
	(9, 'alipay', 'N9', 9223372036854775807, 'CNY');
BEGIN;
SELECT s, m, r.outcome, r.status, r.receipt_no IS NOT NULL AS receipt, r.refund_no IS NOT NULL AS refund
FROM state, nonsense, idem_confirm_payment('confirm_cells', 'cell_' || s, channel, CASE trade_no WHEN '' THEN '' ELSE trade_no || s END, amount, currency) r
WHERE s IN ('unknown', 'pending', 'paid', 'closed') ORDER BY n, m;
SELECT reported, channel, trade_no, payment_no, disposition, amount, currency, refund, anomalies FROM books
WHERE tenant_id = 'confirm_cells' AND reported NOT IN ('cell_review', 'cell_paid_late') ORDER BY reported, trade_no, channel;
ROLLBACK;
BEGIN;
SELECT outcome, status, receipt_no IS NOT NULL AS receipt FROM idem_confirm_payment('confirm_cells', '', 'alipay', 'N10', 100, 'CNY');
SELECT reported, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_cells' AND trade_no = 'N10';
ROLLBACK;

-- A fact raises for a key that cannot be stored only.
\set VERBOSITY sqlstate
SELECT * FROM idem_confirm_payment(NULL, 'cell_pending', 'alipay', 'E', 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', NULL, 'alipay', 'E', 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', NULL, 'E', 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', 'alipay', NULL, 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', repeat('x', 256), 'alipay', 'E', 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', repeat('x', 256), 'E', 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', 'alipay', repeat('x', 256), 100, 'CNY');
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', 'alipay', 'E', 100, 'CNY', repeat('x', 256));
SELECT * FROM idem_confirm_payment('confirm_cells', 'cell_pending', 'alipay', repeat('é', 128), 100, 'CNY');
\set VERBOSITY default
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_cells', repeat('é', 127), 'alipay', repeat('付', 85), 100, repeat('x', 3000));
SELECT outcome, status FROM idem_confirm_payment('confirm_cells', 'cell_pending', 'alipay', repeat('付', 85), 100, 'CNY');
ROLLBACK;

--
-- With an order row.
--
SELECT s, r.outcome FROM state, idem_create_order('confirm_rows', 'order_' || s, 100, 'CNY') r WHERE s IN ('pending', 'closed') ORDER BY n;
SELECT s, r.outcome FROM state, idem_create_payment('confirm_rows', 'order_' || s, 100, 'CNY', payment_no => 'row_' || s) r
WHERE s IN ('pending', 'closed') ORDER BY n;
SELECT outcome FROM idem_close_payment('confirm_rows', 'row_closed');
BEGIN;
SELECT s, r.outcome, r.status, r.order_status, r.refund_no IS NOT NULL AS refund
FROM state, idem_confirm_payment('confirm_rows', 'row_' || s, 'alipay', 'T-' || s, 100, 'CNY') r WHERE s IN ('pending', 'closed') ORDER BY n;
SELECT order_id, status, version FROM idem_order WHERE tenant_id = 'confirm_rows' ORDER BY order_id;
ROLLBACK;
-- A mismatch leaves the order alone.
BEGIN;
SELECT s, r.outcome, r.status, r.order_status, r.refund_no IS NOT NULL AS refund
FROM state, idem_confirm_payment('confirm_rows', 'row_' || s, 'alipay', 'T-' || s, 99, 'CNY') r WHERE s IN ('pending', 'closed') ORDER BY n;
ROLLBACK;
-- The price changed after the payment was closed: its money is not what the order asks for.
BEGIN;
SELECT outcome FROM idem_update_order('confirm_rows', 'order_closed', 120, 'CNY', 1);
SELECT outcome, status, order_status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_rows', 'row_closed', 'alipay', 'T-closed', 100, 'CNY');
SELECT disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_rows';
ROLLBACK;
-- The order became free of charge: it is paid for.
BEGIN;
SELECT outcome FROM idem_update_order('confirm_rows', 'order_closed', 0, 'CNY', 1);
SELECT outcome, status, order_status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_rows', 'row_closed', 'alipay', 'T-closed', 100, 'CNY');
ROLLBACK;
-- Cancelled before the money came, with the payment closed, closing, or in no state to be closed.
BEGIN;
SELECT s, r.outcome, r.status FROM state, idem_cancel_order('confirm_rows', 'order_' || s) r WHERE s IN ('pending', 'closed') ORDER BY n;
SELECT s, r.outcome, r.status, r.order_status, r.refund_no IS NOT NULL AS refund
FROM state, idem_confirm_payment('confirm_rows', 'row_' || s, 'alipay', 'T-' || s, 100, 'CNY') r WHERE s IN ('pending', 'closed') ORDER BY n;
-- late wins over mismatch, and nonsense is not sent back
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_rows', 'row_closed', 'alipay', 'T-less', 99, 'CNY');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_rows', 'row_closed', 'alipay', 'T-none', 0, 'CNY');
SELECT trade_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'confirm_rows' ORDER BY trade_no;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_submit_payment('confirm_rows', 'row_pending', 'alipay');
SELECT outcome, status, closing_payment_no FROM idem_cancel_order('confirm_rows', 'order_pending');
SELECT outcome, status, order_status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_rows', 'row_pending', 'alipay', 'T-pending', 100, 'CNY');
ROLLBACK;

--
-- Several attempts at one order.
--
-- The first was closed and is paid after all; the second goes to closing, and its money is surplus.
SELECT outcome FROM idem_create_payment('confirm_twice', 'o', 100, 'CNY', channel => 'alipay', payment_no => 'twice_1');
SELECT outcome FROM idem_close_payment('confirm_twice', 'twice_1');
SELECT outcome FROM idem_create_payment('confirm_twice', 'o', 100, 'CNY', channel => 'wechat', payment_no => 'twice_2');
BEGIN;
SELECT outcome, status, version, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome, status, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome, status, refund_no IS NOT NULL AS refund, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T2', 100, 'CNY');
SELECT outcome, status, refund_no IS NOT NULL AS refund, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T2', 100, 'CNY');
SELECT outcome, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T1', 100, 'CNY');
SELECT reported, trade_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_twice' ORDER BY reported;
SELECT payment_no, status FROM idem_payment WHERE tenant_id = 'confirm_twice' ORDER BY payment_no;
ROLLBACK;
-- The same, with the second one closing already.
BEGIN;
SELECT outcome FROM idem_begin_close('confirm_twice', 'twice_2');
SELECT outcome, status, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T1', 100, 'CNY');
SELECT payment_no, status, version FROM idem_payment WHERE tenant_id = 'confirm_twice' ORDER BY payment_no;
ROLLBACK;
-- The same, with the second one in review: its money goes back.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T2', 99, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T3', 0, 'CNY');
SELECT outcome, status, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T1', 100, 'CNY');
SELECT reported, trade_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'confirm_twice' ORDER BY trade_no;
SELECT payment_no, status FROM idem_payment WHERE tenant_id = 'confirm_twice' ORDER BY payment_no;
ROLLBACK;
-- In review, and then the right money comes: the wrong one goes back.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T2', 99, 'CNY');
SELECT outcome, status, refund_no FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T3', 100, 'CNY');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T2', 99, 'CNY');
SELECT trade_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_twice' ORDER BY trade_no;
ROLLBACK;
-- Bought twice: each purchase has its own applied receipt, surplus counts per purchase.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_twice', 'twice_2', 'wechat', 'T1', 100, 'CNY');
SELECT outcome, purchase_no FROM idem_create_payment('confirm_twice', 'o', 100, 'CNY', 'again', true, payment_no => 'twice_3');
SELECT outcome, status, closing_payment_no FROM idem_confirm_payment('confirm_twice', 'twice_1', 'alipay', 'T2', 100, 'CNY');
SELECT outcome, status, refund_no FROM idem_confirm_payment('confirm_twice', 'twice_3', 'alipay', 'T3', 100, 'CNY');
SELECT reported, trade_no, disposition, refund FROM books WHERE tenant_id = 'confirm_twice' ORDER BY trade_no;
ROLLBACK;

--
-- Money before its payment.
--
SELECT outcome, status, receipt_no IS NOT NULL AS receipt, order_status, version FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY');
-- Told again, and with an account: still one receipt.
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY', 'a1');
SELECT reported, account, trade_no, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
SELECT count(*) FROM idem_get_receipts('confirm_orphan', 'orphan_1');
-- The payment comes, and has its money.
BEGIN;
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('confirm_orphan', 'o', 100, 'CNY', payment_no => 'orphan_1');
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY');
SELECT reported, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
SELECT key, version, from_state, to_state, event FROM idem_history WHERE tenant_id = 'confirm_orphan' AND entity = 'payment' ORDER BY version;
ROLLBACK;
-- With an order row.
BEGIN;
SELECT outcome FROM idem_create_order('confirm_orphan', 'o', 100, 'CNY');
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o', 100, 'CNY', payment_no => 'orphan_1');
SELECT status, version FROM idem_get_order('confirm_orphan', 'o');
ROLLBACK;
-- At another price: review.
BEGIN;
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('confirm_orphan', 'o', 120, 'CNY', payment_no => 'orphan_1');
SELECT disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
ROLLBACK;
-- Two of them, and one that makes no sense: one counts.
BEGIN;
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T0', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T2', 100, 'CNY');
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T3', NULL, 'CNY');
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o', 100, 'CNY', payment_no => 'orphan_1');
SELECT trade_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'confirm_orphan' ORDER BY trade_no;
SELECT status, channel, version FROM idem_get_payment('confirm_orphan', 'orphan_1');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_2', 'alipay', 'T0', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_2', 'alipay', 'T2', 100, 'CNY');
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o2', 100, 'CNY', payment_no => 'orphan_2');
SELECT trade_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND reported = 'orphan_2' ORDER BY trade_no;
ROLLBACK;
-- On an account that cannot be the payment's.
BEGIN;
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_2', 'alipay', 'T2', 100, 'CNY', 'a2');
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o2', 100, 'CNY', channel => 'alipay', account => 'a1', payment_no => 'orphan_2');
SELECT account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND reported = 'orphan_2';
ROLLBACK;
-- Reported for another payment the second time: the receipt is used again, as it was recorded.
SELECT outcome FROM idem_create_payment('confirm_orphan', 'o3', 100, 'CNY', payment_no => 'orphan_3');
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T1', 100, 'CNY');
SELECT reported, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o', 100, 'CNY', payment_no => 'orphan_1');
ROLLBACK;
-- With another amount or currency than before: whom to believe is for a human to say.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T1', 120, 'CNY');
SELECT reported, payment_no, disposition, amount, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_2', 'alipay', 'T2', 99, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T2', 100, 'CNY');
SELECT reported, payment_no, disposition, amount, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND trade_no = 'T2';
ROLLBACK;
-- A rejected receipt is used again too.
BEGIN;
SELECT outcome FROM idem_submit_payment('confirm_orphan', 'orphan_3', 'alipay', 'a1');
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T3', 100, 'CNY', 'a2');
SELECT outcome FROM idem_create_payment('confirm_orphan', 'o4', 100, 'CNY', channel => 'alipay', account => 'a2', payment_no => 'orphan_4');
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_4', 'alipay', 'T3', 100, 'CNY', 'a2');
SELECT reported, account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND trade_no = 'T3';
-- and is nobody else's from then on
SELECT outcome, receipt_no FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T3', 100, 'CNY', 'a2');
SELECT reported, account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND trade_no = 'T3';
ROLLBACK;
-- The same trade number on another account is other money.
BEGIN;
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T4', 100, 'CNY', 'a9');
SELECT outcome FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T4', 100, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('confirm_orphan', 'orphan_3', 'alipay', 'T4', 100, 'CNY', 'a8');
SELECT trade_no, account, payment_no, disposition, anomalies FROM books WHERE tenant_id = 'confirm_orphan' AND trade_no = 'T4' ORDER BY account;
ROLLBACK;

-- Sent back by a human: a later report does not bring it to life.
BEGIN;
SELECT r.outcome, r.status FROM idem_receipt, idem_refund_receipt(tenant_id, receipt_no, 'unknown buyer') r WHERE tenant_id = 'confirm_orphan';
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome, status FROM idem_create_payment('confirm_orphan', 'o', 100, 'CNY', payment_no => 'orphan_1');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_confirm_payment('confirm_orphan', 'orphan_1', 'alipay', 'T1', 100, 'CNY');
SELECT reported, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'confirm_orphan';
ROLLBACK;

SELECT * FROM idem_verify();
