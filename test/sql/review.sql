--
-- review: what humans decide about money that fits nothing.
--
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.reported_payment_no AS reported, r.channel, r.trade_no, r.payment_no, r.disposition, r.amount,
		(SELECT f.cause || ' ' || f.status || ' ' || f.amount || coalesce(': ' || f.reason, '') FROM idem_refund f
		 WHERE f.tenant_id = r.tenant_id AND f.refund_no = 'A' || r.receipt_no AND f.amount = r.refund_reserved) AS refund,
		(SELECT string_agg(a.kind || ' ' || a.status || coalesce(' (' || a.resolution || coalesce(': ' || a.reason, '') || ')', ''), ', ' ORDER BY a.anomaly_no)
		 FROM idem_anomaly a WHERE a.tenant_id = r.tenant_id AND a.entity = 'receipt' AND a.key = r.receipt_no) AS anomalies
	FROM idem_receipt r;

-- The receipt of a trade.
CREATE FUNCTION receipt_of(tenant text, trade text) RETURNS text LANGUAGE sql STABLE AS
	$$ SELECT receipt_no FROM idem_receipt WHERE tenant_id = tenant AND trade_no = trade $$;

--
-- Resolve: every state.
--
CREATE TEMP TABLE state (n int, s text);
INSERT INTO state VALUES (1, 'pending'), (2, 'closing'), (3, 'review'), (4, 'paid'), (5, 'paid_late'), (6, 'failed'), (7, 'closed');
SELECT s, r.outcome FROM state, idem_create_payment('review_cells', 'order_' || s, 100, 'CNY', payment_no => 'cell_' || s) r ORDER BY n;
SELECT outcome FROM idem_begin_close('review_cells', 'cell_closing');
SELECT outcome FROM idem_confirm_payment('review_cells', 'cell_review', 'alipay', 'T-review', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('review_cells', 'cell_paid', 'alipay', 'T-paid', 100, 'CNY');
SELECT outcome FROM idem_fail_payment('review_cells', 'cell_paid_late');
SELECT outcome FROM idem_confirm_payment('review_cells', 'cell_paid_late', 'alipay', 'T-paid_late', 99, 'CNY');
SELECT outcome FROM idem_fail_payment('review_cells', 'cell_failed');
SELECT outcome FROM idem_close_payment('review_cells', 'cell_closed');
BEGIN;
SELECT s, r.outcome, r.status, r.refund_no FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'accept', 'close enough') r ORDER BY n;
-- again
SELECT s, r.outcome, r.status, r.refund_no FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'accept', 'close enough') r ORDER BY n;
-- too late to think otherwise
SELECT s, r.outcome, r.status, r.refund_no FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'refund', 'too little') r WHERE s = 'review' ORDER BY n;
SELECT reported, trade_no, payment_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'review_cells' ORDER BY reported;
SELECT version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = 'review_cells' AND key = 'cell_review' ORDER BY version;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.status, r.refund_no IS NOT NULL AS refund FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'refund', 'too little') r ORDER BY n;
SELECT s, r.outcome, r.status, r.refund_no IS NOT NULL AS refund FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'refund', 'too little') r ORDER BY n;
SELECT s, r.outcome, r.status, r.refund_no IS NOT NULL AS refund FROM state, idem_resolve_review('review_cells', 'cell_' || s, 'accept', 'close enough') r WHERE s = 'review' ORDER BY n;
SELECT reported, trade_no, payment_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'review_cells' ORDER BY reported;
SELECT version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = 'review_cells' AND key = 'cell_review' ORDER BY version;
-- The slot is free, the order can be paid.
SELECT outcome FROM idem_create_payment('review_cells', 'order_review', 100, 'CNY', payment_no => 'cell_second');
SELECT outcome, status FROM idem_confirm_payment('review_cells', 'cell_second', 'alipay', 'T-second', 100, 'CNY');
-- What was decided stays decided.
SELECT reported, trade_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_cells' AND trade_no IN ('T-review', 'T-second') ORDER BY trade_no;
ROLLBACK;

-- A repetition writes nothing.
BEGIN;
SELECT outcome FROM idem_resolve_review('review_cells', 'cell_review', 'accept', 'close enough');
COMMIT;
BEGIN;
SELECT outcome FROM idem_resolve_review('review_cells', 'cell_review', 'accept', 'close enough');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;

-- With an order row.
SELECT outcome FROM idem_create_order('review_rows', 'o', 100, 'CNY');
SELECT outcome FROM idem_create_payment('review_rows', 'o', 100, 'CNY', payment_no => 'row_001');
SELECT outcome FROM idem_confirm_payment('review_rows', 'row_001', 'alipay', 'T1', 100, 'USD');
BEGIN;
SELECT * FROM idem_resolve_review('review_rows', 'row_001', 'accept', NULL);
SELECT status, version FROM idem_get_order('review_rows', 'o');
ROLLBACK;
BEGIN;
SELECT outcome, status FROM idem_resolve_review('review_rows', 'row_001', 'refund', NULL);
SELECT status, version FROM idem_get_order('review_rows', 'o');
ROLLBACK;

-- Several receipts in review.
SELECT outcome FROM idem_create_payment('review_several', 'o', 100, 'CNY', payment_no => 'several_1', channel => 'alipay');
SELECT outcome FROM idem_confirm_payment('review_several', 'several_1', 'alipay', 'T1', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('review_several', 'several_1', 'wechat', 'T2', 100, 'CNY');
SELECT outcome FROM idem_confirm_payment('review_several', 'several_1', 'alipay', 'T3', 0, 'CNY');
SELECT outcome FROM idem_create_payment('review_several', 'other', 100, 'CNY', payment_no => 'several_2');
SELECT outcome FROM idem_confirm_payment('review_several', 'several_2', 'alipay', 'T9', 100, 'CNY');
BEGIN;
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', receipt_of('review_several', 'T2'));
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', receipt_of('review_several', 'T2'));
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not');
-- but another one was not accepted
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', receipt_of('review_several', 'T1'));
SELECT trade_no, channel, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'review_several' AND trade_no <> 'T9' ORDER BY trade_no;
SELECT status, channel FROM idem_get_payment('review_several', 'several_1');
ROLLBACK;
BEGIN;
-- makes no sense; is another payment's
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', receipt_of('review_several', 'T3'));
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', receipt_of('review_several', 'T9'));
SELECT outcome, status FROM idem_resolve_review('review_several', 'several_1', 'refund', 'why not', receipt_of('review_several', 'T9'));
ROLLBACK;
BEGIN;
SELECT outcome, status, refund_no = 'A' || receipt_of('review_several', 'T1') AS first FROM idem_resolve_review('review_several', 'several_1', 'refund', 'no');
SELECT outcome, status, refund_no = 'A' || receipt_of('review_several', 'T2') AS named FROM idem_resolve_review('review_several', 'several_1', 'refund', 'no', receipt_of('review_several', 'T2'));
SELECT outcome, status, refund_no IS NULL AS none FROM idem_resolve_review('review_several', 'several_1', 'refund', 'no', receipt_of('review_several', 'T3'));
-- What cannot be sent back stays open.
SELECT trade_no, disposition, amount, refund, anomalies FROM books WHERE tenant_id = 'review_several' AND trade_no <> 'T9' ORDER BY trade_no;
ROLLBACK;
BEGIN;
SELECT outcome, refund_no = 'A' || receipt_of('review_several', 'T2') AS named FROM idem_resolve_review('review_several', 'several_1', 'refund', 'no', receipt_of('review_several', 'T2'));
ROLLBACK;

-- Errors.
\set VERBOSITY terse
SELECT outcome FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not');
SELECT outcome FROM idem_resolve_review('review_several', 'several_1', 'perhaps', 'why not');
SELECT outcome FROM idem_resolve_review('review_several', 'several_1', NULL, 'why not');
SELECT outcome FROM idem_resolve_review('review_several', 'several_1', 'accept', 'why not', 'nowhere');
SELECT outcome FROM idem_resolve_review('review_several', 'nowhere', 'accept', 'why not');
SELECT outcome FROM idem_resolve_review('review_several', '', 'accept', 'why not');
SELECT outcome FROM idem_resolve_review('review_several', NULL, 'accept', 'why not');
SELECT outcome FROM idem_resolve_review('review_cells', 'cell_paid', 'accept', 'why not', 'nowhere');
\set VERBOSITY default

--
-- Adopt: every disposition.
--
SELECT outcome FROM idem_create_payment('review_adopt', 'o1', 100, 'CNY', payment_no => 'adopt_1', channel => 'alipay', account => 'a1');
SELECT outcome FROM idem_create_payment('review_adopt', 'o2', 100, 'CNY', payment_no => 'adopt_2', channel => 'alipay', account => 'a1');
SELECT outcome FROM idem_confirm_payment('review_adopt', 'adopt_1', 'alipay', 'rejected', 100, 'CNY', 'a2');
SELECT outcome FROM idem_confirm_payment('review_adopt', 'nowhere', 'alipay', 'orphan', 100, 'CNY', 'a1');
SELECT outcome FROM idem_confirm_payment('review_adopt', 'nowhere', 'alipay', 'orphan_less', 99, 'CNY', 'a1');
SELECT outcome FROM idem_confirm_payment('review_adopt', 'nowhere', 'alipay', 'orphan_none', NULL, 'CNY', 'a1');
SELECT outcome FROM idem_confirm_payment('review_adopt', '', 'alipay', 'orphan_lost', 100, 'CNY', 'a1');
BEGIN;
SELECT outcome, status, receipt_no = receipt_of('review_adopt', 'rejected') AS receipt, refund_no, version FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'rejected'), 'adopt_1');
SELECT outcome, status, receipt_no = receipt_of('review_adopt', 'rejected') AS receipt, refund_no, version FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'rejected'), 'adopt_1');
SELECT outcome, status, receipt_no FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'rejected'), 'adopt_2');
SAVEPOINT without_a_row;
SELECT outcome FROM idem_create_order('review_adopt', 'o2', 100, 'CNY');
SELECT outcome, order_status FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'rejected'), 'adopt_2');
ROLLBACK TO without_a_row;
-- a second one is surplus
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'adopt_1');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'adopt_1');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan_none'), 'adopt_1');
-- applied, late and others have their payment
SELECT outcome, status FROM idem_adopt_receipt('review_cells', receipt_of('review_cells', 'T-paid'), 'cell_paid');
SELECT outcome, status FROM idem_adopt_receipt('review_cells', receipt_of('review_cells', 'T-paid'), 'cell_pending');
SELECT outcome, status FROM idem_adopt_receipt('review_cells', receipt_of('review_cells', 'T-paid_late'), 'cell_pending');
SELECT reported, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_adopt' ORDER BY trade_no;
ROLLBACK;
-- Wrong in amount: review, and there a human accepts it.
BEGIN;
SELECT outcome, status FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan_less'), 'adopt_2');
SELECT outcome, status FROM idem_resolve_review('review_adopt', 'adopt_2', 'accept', 'he says so');
SELECT reported, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_adopt' AND trade_no = 'orphan_less';
ROLLBACK;
-- Reported without a number.
BEGIN;
SELECT outcome, status FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan_lost'), 'adopt_2');
SELECT reported, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_adopt' AND trade_no = 'orphan_lost';
ROLLBACK;
-- For a payment that had ended, of an order that was cancelled.
BEGIN;
SELECT outcome FROM idem_close_payment('review_adopt', 'adopt_1');
SELECT outcome FROM idem_cancel_order('review_adopt', 'o2');
SELECT outcome, status FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'adopt_1');
SELECT outcome, status, order_status, refund_no IS NOT NULL AS refund FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan_less'), 'adopt_2');
SELECT reported, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_adopt' AND trade_no IN ('orphan', 'orphan_less') ORDER BY trade_no;
ROLLBACK;
-- The payment has a trade of this number on its own account.
BEGIN;
SELECT outcome FROM idem_confirm_payment('review_adopt', 'adopt_1', 'alipay', 'rejected', 100, 'CNY', 'a1');
SELECT outcome, status FROM idem_adopt_receipt('review_adopt', (SELECT receipt_no FROM idem_receipt WHERE tenant_id = 'review_adopt' AND trade_no = 'rejected' AND account = 'a2'), 'adopt_1');
ROLLBACK;
-- Bound to be sent back.
BEGIN;
SELECT outcome FROM idem_refund_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'not ours');
SELECT outcome, status FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'adopt_1');
ROLLBACK;
\set VERBOSITY terse
SELECT outcome FROM idem_adopt_receipt('review_adopt', 'nowhere', 'adopt_1');
SELECT outcome FROM idem_adopt_receipt('review_adopt', receipt_of('review_adopt', 'orphan'), 'nowhere');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_adopt_receipt('review_adopt', receipt_of('review_cells', 'T-paid'), 'adopt_1');
\set VERBOSITY terse
SELECT outcome FROM idem_adopt_receipt('review_adopt', '', 'adopt_1');
SELECT outcome FROM idem_adopt_receipt('review_adopt', 'x', NULL);
\set VERBOSITY default

--
-- Refund: every disposition.
--
BEGIN;
SELECT trade_no, r.outcome, r.refund_no = 'A' || c.receipt_no AS refund, r.status, r.amount, r.remainder
FROM idem_receipt c, idem_refund_receipt(c.tenant_id, c.receipt_no, 'not ours') r WHERE tenant_id = 'review_adopt' ORDER BY trade_no;
SELECT trade_no, r.outcome, r.refund_no = 'A' || c.receipt_no AS refund, r.status, r.amount, r.remainder
FROM idem_receipt c, idem_refund_receipt(c.tenant_id, c.receipt_no, 'not ours') r WHERE tenant_id = 'review_adopt' ORDER BY trade_no;
SELECT reported, trade_no, payment_no, disposition, refund, anomalies FROM books WHERE tenant_id = 'review_adopt' ORDER BY trade_no;
SELECT key LIKE 'A%' AS automatic, version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = 'review_adopt' AND entity = 'refund';
ROLLBACK;
SELECT outcome FROM idem_confirm_payment('review_cells', 'cell_paid', 'alipay', 'T-surplus', 100, 'CNY');
SELECT outcome FROM idem_confirm_payment('review_cells', 'cell_pending', 'alipay', 'T-mismatch', 99, 'CNY');
SELECT trade_no, disposition, r.outcome, r.refund_no, r.status, r.amount, r.remainder
FROM idem_receipt c, idem_refund_receipt(c.tenant_id, c.receipt_no, 'not ours') r WHERE tenant_id = 'review_cells' ORDER BY trade_no;
\set VERBOSITY terse
SELECT outcome FROM idem_refund_receipt('review_adopt', 'nowhere', 'not ours');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_refund_receipt('review_adopt', receipt_of('review_cells', 'T-paid'), 'not ours');
\set VERBOSITY terse
SELECT outcome FROM idem_refund_receipt('review_adopt', '', 'not ours');
SELECT outcome FROM idem_refund_receipt('review_adopt', NULL, 'not ours');
\set VERBOSITY default

--
-- Get.
--
SELECT trade_no, disposition, amount, refund_reserved FROM idem_get_receipts('review_several', 'several_1');
SELECT count(*) FROM idem_get_receipts('review_several', 'nowhere');
SELECT count(*) FROM idem_get_receipts('nobody', 'several_1');

SELECT * FROM idem_verify();
DROP FUNCTION receipt_of(text, text);
