--
-- refund: request, submit, cancel, retry.
--
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.payment_no, r.disposition, r.amount, r.refund_reserved AS reserved, r.refunded, r.disputed, r.excess,
		(SELECT string_agg(CASE WHEN refund_no = 'A' || receipt_no THEN 'A' ELSE refund_no END || ' ' || cause || ' ' || status || ' ' || f.amount, ', ' ORDER BY f.created_at)
		 FROM idem_refund f WHERE f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no) AS refunds
	FROM idem_receipt r;

--
-- Every state of a refund: 60 of 100 in each.
--
CREATE TEMP TABLE state (n int, s text, result text);
INSERT INTO state VALUES (1, 'requested', NULL), (2, 'processing', NULL), (3, 'succeeded', 'succeeded'), (4, 'failed', 'failed'),
	(5, 'closed', 'closed'), (6, 'abnormal', 'abnormal'), (7, 'cancelled', NULL), (8, 'reversed', 'succeeded');
SELECT r.outcome, count(*) FROM state, idem_create_payment('refund_cells', 'order_' || s, 100, 'CNY', payment_no => 'pay_' || s) r GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_confirm_payment('refund_cells', 'pay_' || s, 'alipay', 'T_' || s, 100, 'CNY', 'm1') r GROUP BY 1;
SELECT s, r.* FROM state, idem_request_refund('refund_cells', 'pay_' || s, 'r_' || s, 60, 'cny', 'broken') r ORDER BY n;
SELECT s, r.* FROM state, idem_submit_refund('refund_cells', 'r_' || s) r WHERE s NOT IN ('requested', 'cancelled') ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('refund_cells', 'r_' || s, result) r WHERE result IS NOT NULL ORDER BY n;
SELECT * FROM idem_settle_refund('refund_cells', 'r_reversed', 'reversed');
SELECT * FROM idem_cancel_refund('refund_cells', 'r_cancelled');
SELECT payment_no, reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'refund_cells' ORDER BY payment_no;

-- Request again: the first one, as it is now.
BEGIN;
SELECT s, r.* FROM state, idem_request_refund('refund_cells', 'pay_' || s, 'r_' || s, 60, 'CNY', 'broken') r ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
ROLLBACK;
-- The rest of each receipt, and one unit more than that.
BEGIN;
SELECT s, r.* FROM state, idem_request_refund('refund_cells', 'pay_' || s, 'r2_' || s, 41, 'CNY') r ORDER BY n;
SELECT s, r.* FROM state, idem_request_refund('refund_cells', 'pay_' || s, 'r3_' || s, 40, 'CNY') r ORDER BY n;
SELECT s, r.* FROM state, idem_request_refund('refund_cells', 'pay_' || s, 'r4_' || s, 60, 'CNY') r ORDER BY n;
ROLLBACK;
-- Submit
BEGIN;
SELECT s, r.* FROM state, idem_submit_refund('refund_cells', 'r_' || s) r WHERE s <> 'requested' ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.* FROM state, idem_submit_refund('refund_cells', 'r_' || s) r WHERE s = 'requested' ORDER BY n;
SELECT submitted_at IS NOT NULL AS submitted, next_check_at - submitted_at AS asked_after, held FROM idem_refund WHERE tenant_id = 'refund_cells' AND refund_no = 'r_requested';
ROLLBACK;
-- Cancel
BEGIN;
SELECT s, r.* FROM state, idem_cancel_refund('refund_cells', 'r_' || s) r WHERE s <> 'requested' ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.* FROM state, idem_cancel_refund('refund_cells', 'r_' || s) r WHERE s = 'requested' ORDER BY n;
SELECT reserved, refunds FROM books WHERE tenant_id = 'refund_cells' AND payment_no = 'pay_requested';
ROLLBACK;
-- Retry
BEGIN;
SELECT s, r.* FROM state, idem_retry_refund('refund_cells', 'r_' || s) r WHERE s NOT IN ('failed', 'abnormal') ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.* FROM state, idem_retry_refund('refund_cells', 'r_' || s) r WHERE s IN ('failed', 'abnormal') ORDER BY n;
SELECT payment_no, reserved, refunds FROM books WHERE tenant_id = 'refund_cells' AND payment_no IN ('pay_failed', 'pay_abnormal') ORDER BY 1;
SELECT kind, key, status, resolution FROM idem_anomaly WHERE tenant_id = 'refund_cells' AND kind = 'refund_abnormal';
ROLLBACK;

-- Refund on a not-paid or review order: refused; but the money in review can be sent back by its number.
CREATE TEMP TABLE unpaid (n int, s text);
INSERT INTO unpaid VALUES (1, 'pending'), (2, 'closing'), (3, 'review'), (4, 'paid_late'), (5, 'failed'), (6, 'closed');
SELECT r.outcome, count(*) FROM unpaid, idem_create_payment('refund_unpaid', 'order_' || s, 100, 'CNY', payment_no => 'pay_' || s) r GROUP BY 1;
SELECT outcome FROM idem_begin_close('refund_unpaid', 'pay_closing');
SELECT outcome FROM idem_confirm_payment('refund_unpaid', 'pay_review', 'alipay', 'T_review', 99, 'CNY');
SELECT outcome FROM idem_fail_payment('refund_unpaid', 'pay_paid_late');
SELECT outcome FROM idem_confirm_payment('refund_unpaid', 'pay_paid_late', 'alipay', 'T_paid_late', 99, 'CNY');
SELECT outcome FROM idem_fail_payment('refund_unpaid', 'pay_failed');
SELECT outcome FROM idem_close_payment('refund_unpaid', 'pay_closed');
SELECT s, r.* FROM unpaid, idem_request_refund('refund_unpaid', 'pay_' || s, 'r_' || s, 10, 'CNY') r ORDER BY n;
SELECT c.payment_no, c.disposition, r.* FROM idem_receipt c, idem_request_refund('refund_unpaid', c.payment_no, 'r_' || c.payment_no, 10, 'CNY', receipt_no => c.receipt_no) r
WHERE c.tenant_id = 'refund_unpaid' ORDER BY 1;
-- Accepting it is no longer possible; the decision to refund sends back the rest.
SELECT outcome, status FROM idem_resolve_review('refund_unpaid', 'pay_review', 'accept', 'fine');
SELECT outcome, status, refund_no IS NOT NULL AS refund FROM idem_resolve_review('refund_unpaid', 'pay_review', 'refund', 'wrong');
SELECT payment_no, disposition, amount, reserved, refunds FROM books WHERE tenant_id = 'refund_unpaid' ORDER BY 1;

-- All of it is on its way back already: the decision closes the matter.
SELECT outcome FROM idem_create_payment('refund_unpaid', 'order_all', 100, 'CNY', payment_no => 'pay_all');
SELECT outcome FROM idem_confirm_payment('refund_unpaid', 'pay_all', 'alipay', 'T_all', 98, 'CNY');
SELECT r.outcome, r.remainder FROM idem_receipt c, idem_request_refund(tenant_id, payment_no, 'r_all', 98, 'CNY', receipt_no => receipt_no) r WHERE tenant_id = 'refund_unpaid' AND trade_no = 'T_all';
SELECT outcome, status, refund_no FROM idem_resolve_review('refund_unpaid', 'pay_all', 'refund', 'wrong');
SELECT a.kind, a.status, a.resolution FROM idem_anomaly a JOIN idem_receipt r ON r.tenant_id = a.tenant_id AND r.receipt_no = a.key WHERE a.tenant_id = 'refund_unpaid' AND r.trade_no = 'T_all';

-- Partial refunds to the last unit: the order is refunded with the last one.
SELECT outcome FROM idem_create_order('refund_parts', 'o', 100, 'CNY');
SELECT outcome FROM idem_create_payment('refund_parts', 'o', 100, 'CNY', payment_no => 'parts_1');
SELECT outcome FROM idem_confirm_payment('refund_parts', 'parts_1', 'alipay', 'T1', 100, 'CNY');
CREATE TEMP TABLE part (n int, amount bigint);
INSERT INTO part VALUES (1, 33), (2, 33), (3, 33), (4, 1);
SELECT p.n, r.outcome, r.remainder FROM (SELECT * FROM part ORDER BY n) p, idem_request_refund('refund_parts', 'parts_1', 'part_' || p.n, p.amount, 'CNY') r;
SELECT * FROM idem_request_refund('refund_parts', 'parts_1', 'part_5', 1, 'CNY');
SELECT p.n, r.outcome, r.refund_no FROM (SELECT * FROM part ORDER BY n) p, idem_submit_refund('refund_parts', 'part_' || p.n) r;
SELECT p.n, r.* FROM (SELECT * FROM part WHERE n <= 3 ORDER BY n) p, idem_settle_refund('refund_parts', 'part_' || p.n, 'succeeded') r;
SELECT status FROM idem_get_order('refund_parts', 'o');
SELECT * FROM idem_settle_refund('refund_parts', 'part_4', 'succeeded');
SELECT status FROM idem_get_order('refund_parts', 'o');
SELECT reserved, refunded, refunds FROM books WHERE tenant_id = 'refund_parts';
SELECT version, from_state, to_state, event FROM idem_history WHERE tenant_id = 'refund_parts' AND entity = 'order' ORDER BY version;
SELECT outcome, status FROM idem_create_payment('refund_parts', 'o', 100, 'CNY');

-- A repurchase has its own money: the first purchase's refund moves the order, the second one's does not.
SELECT outcome FROM idem_create_order('refund_twice', 'o', 70, 'CNY');
SELECT outcome FROM idem_create_payment('refund_twice', 'o', 70, 'CNY', payment_no => 'twice_1');
SELECT outcome FROM idem_confirm_payment('refund_twice', 'twice_1', 'alipay', 'T1', 70, 'CNY');
SELECT outcome FROM idem_create_payment('refund_twice', 'o', 70, 'CNY', 'again', true, payment_no => 'twice_2');
SELECT outcome FROM idem_confirm_payment('refund_twice', 'twice_2', 'alipay', 'T2', 70, 'CNY');
SELECT outcome, remainder FROM idem_request_refund('refund_twice', 'twice_2', 'r2', 70, 'CNY');
SELECT outcome, status, remainder FROM idem_settle_refund('refund_twice', 'r2', 'succeeded');
SELECT status FROM idem_get_order('refund_twice', 'o');
SELECT outcome, remainder FROM idem_request_refund('refund_twice', 'twice_1', 'r1', 70, 'CNY');
SELECT outcome, status, remainder FROM idem_settle_refund('refund_twice', 'r1', 'succeeded');
SELECT status, refunded_from FROM idem_get_order('refund_twice', 'o');

-- The order is refunded from wherever it was, and a reversal leads back there. A cancelled one stays cancelled.
CREATE TEMP TABLE fulfilled (n int, s text);
INSERT INTO fulfilled VALUES (1, 'paid'), (2, 'shipped'), (3, 'completed'), (4, 'cancelled');
SELECT r.outcome, count(*) FROM fulfilled, idem_create_order('refund_back', s, 100, 'CNY') r GROUP BY 1;
SELECT r.outcome, count(*) FROM fulfilled, idem_create_payment('refund_back', s, 100, 'CNY', payment_no => 'back_' || s) r GROUP BY 1;
SELECT r.outcome, count(*) FROM fulfilled, idem_confirm_payment('refund_back', 'back_' || s, 'alipay', s, 100, 'CNY') r GROUP BY 1;
SELECT outcome FROM idem_ship_order('refund_back', 'shipped');
SELECT outcome FROM idem_complete_order('refund_back', 'completed');
SELECT s, r.outcome FROM fulfilled, idem_request_refund('refund_back', 'back_' || s, 'r_' || s, 100, 'CNY') r WHERE s <> 'cancelled' ORDER BY n;
SELECT outcome, status, refund_no IS NOT NULL AS refund, refund_status, remainder FROM idem_cancel_order('refund_back', 'cancelled');
SELECT s, r.* FROM fulfilled, idem_refund f, idem_settle_refund('refund_back', refund_no, 'succeeded') r WHERE tenant_id = 'refund_back' AND order_id = s ORDER BY n;
SELECT s, o.status, o.refunded_from FROM fulfilled, idem_get_order('refund_back', s) o ORDER BY n;
SELECT s, r.* FROM fulfilled, idem_refund f, idem_settle_refund('refund_back', refund_no, 'reversed') r WHERE tenant_id = 'refund_back' AND order_id = s ORDER BY n;
SELECT s, o.status, o.refunded_from, o.version FROM fulfilled, idem_get_order('refund_back', s) o ORDER BY n;
SELECT key, version, from_state, to_state, event FROM idem_history WHERE tenant_id = 'refund_back' AND entity = 'order' AND event LIKE '%refund' ORDER BY key, version;
-- What came again can be refunded again, and moves the order again.
SELECT outcome, remainder FROM idem_request_refund('refund_back', 'back_shipped', 'r2_shipped', 100, 'CNY');
SELECT outcome, status FROM idem_settle_refund('refund_back', 'r2_shipped', 'succeeded');
SELECT status, refunded_from FROM idem_get_order('refund_back', 'shipped');

-- A row that comes after its money went back is refunded at once; the cancellation of a refunded order is refused.
SELECT outcome FROM idem_create_payment('refund_late_row', 'o', 100, 'CNY', payment_no => 'late_row_1');
SELECT outcome FROM idem_confirm_payment('refund_late_row', 'late_row_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_request_refund('refund_late_row', 'late_row_1', 'r', 100, 'CNY');
SELECT outcome FROM idem_settle_refund('refund_late_row', 'r', 'succeeded');
SELECT outcome, status FROM idem_create_order('refund_late_row', 'o', 100, 'CNY');
SELECT outcome, status, refund_no, refund_status, remainder FROM idem_cancel_order('refund_late_row', 'o');
SELECT outcome, status FROM idem_settle_refund('refund_late_row', 'r', 'reversed');
SELECT status FROM idem_get_order('refund_late_row', 'o');
SELECT outcome, status, refund_no IS NOT NULL AS refund, refund_status, remainder FROM idem_cancel_order('refund_late_row', 'o');

-- Retry takes the reserve again, if it can.
SELECT outcome FROM idem_create_payment('refund_retry', 'o', 100, 'CNY', payment_no => 'retry_1');
SELECT outcome FROM idem_confirm_payment('refund_retry', 'retry_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome, remainder FROM idem_request_refund('refund_retry', 'retry_1', 'r1', 60, 'CNY');
SELECT outcome FROM idem_submit_refund('refund_retry', 'r1');
SELECT outcome, status, remainder FROM idem_settle_refund('refund_retry', 'r1', 'failed');
SELECT outcome, remainder FROM idem_request_refund('refund_retry', 'retry_1', 'r2', 41, 'CNY');
SELECT outcome, status, refund_no FROM idem_retry_refund('refund_retry', 'r1');
SELECT outcome, remainder FROM idem_cancel_refund('refund_retry', 'r2');
SELECT outcome, status, refund_no FROM idem_retry_refund('refund_retry', 'r1');
SELECT outcome, status, remainder FROM idem_settle_refund('refund_retry', 'r1', 'succeeded');
SELECT refund_no, from_state, to_state, event FROM idem_history JOIN idem_refund USING (tenant_id) WHERE tenant_id = 'refund_retry' AND entity = 'refund' AND key = refund_no
ORDER BY refund_no, idem_history.version;

-- More was promised than there is, at the channel's console: what is not yet sent is not sent.
SELECT outcome FROM idem_create_payment('refund_over', 'o', 100, 'CNY', payment_no => 'over_1');
SELECT outcome FROM idem_confirm_payment('refund_over', 'over_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_request_refund('refund_over', 'over_1', 'r1', 60, 'CNY');
SELECT outcome FROM idem_request_refund('refund_over', 'over_1', 'r2', 20, 'CNY');
SELECT outcome FROM idem_submit_refund('refund_over', 'r2');
SELECT outcome FROM idem_settle_refund('refund_over', 'r2', 'abnormal');
SELECT outcome, remainder FROM idem_settle_refund('refund_over', 'console', 'succeeded', amount => 30, payment_no => 'over_1');
SELECT reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'refund_over';
SELECT outcome, status, refund_no FROM idem_submit_refund('refund_over', 'r1');
SELECT outcome, status, refund_no FROM idem_retry_refund('refund_over', 'r2');
SELECT outcome, status, remainder FROM idem_cancel_refund('refund_over', 'r1');
SELECT outcome, status, refund_no FROM idem_retry_refund('refund_over', 'r2');
SELECT reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'refund_over';

--
-- Errors
--
\set ON_ERROR_ROLLBACK on
-- the same number for something else: the first field that differs
SELECT * FROM idem_request_refund('refund_cells', 'pay_failed', 'r_requested', 61, 'USD');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_requested', 60, 'CNY', receipt_no => 'other');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_requested', 61, 'USD');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_requested', 60, 'USD');
\echo :LAST_ERROR_SQLSTATE
-- nothing of that name, or of another tenant, or of another payment
SELECT * FROM idem_request_refund('refund_cells', 'pay_unknown', 'r_new', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_unpaid', 'pay_requested', 'r_new', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', 1, 'CNY', receipt_no => 'unknown');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT idem_request_refund('refund_cells', 'pay_requested', 'r_new', 1, 'CNY', receipt_no => receipt_no) FROM idem_receipt WHERE tenant_id = 'refund_cells' AND payment_no = 'pay_failed' \gset
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default
SELECT * FROM idem_submit_refund('refund_unpaid', 'r_requested');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_cancel_refund('refund_cells', 'r_unknown');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_retry_refund('refund_cells', 'r_unknown');
\echo :LAST_ERROR_SQLSTATE
-- nonsense
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'A123', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', 0, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', -1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', NULL, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', 1, 'EURO');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', 'r_new', 1, 'USD');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', '', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_request_refund('refund_cells', 'pay_requested', NULL, 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_submit_refund('refund_cells', '');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_cancel_refund('refund_cells', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idem_retry_refund('refund_cells', repeat('x', 256));
\echo :LAST_ERROR_SQLSTATE
-- these are not automatic numbers
SELECT n, outcome FROM unnest('{A,A12b,a12,1A}'::text[]) n, idem_request_refund('refund_cells', 'pay_requested', n, 1, 'CNY') ORDER BY n;

SELECT * FROM idem_verify();
