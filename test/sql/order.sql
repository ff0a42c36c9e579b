--
-- order: what is bought.  The row is optional and follows purchase 1.
--

-- An order is created once; a repetition finds it.
SELECT outcome, order_id, status, amount, currency, version,
	created_at <= clock_timestamp() AS created, expires_at
FROM idem_create_order('order', 'o1', 1000, 'cny', buyer_id => 'b1', metadata => '{"a": 1}');
SELECT outcome, order_id, status, amount, currency, version
FROM idem_create_order('order', 'o1', 1000, 'CNY', 'b1');
SELECT outcome FROM idem_create_order('order', 'o1', 1000, 'CNY');

-- The same id for something else is a conflict, told by the first difference.
SELECT outcome FROM idem_create_order('order', 'o1', 1001, 'USD', 'b2');
SELECT outcome FROM idem_create_order('order', 'o1', 1000, 'USD', 'b2');
SELECT outcome FROM idem_create_order('order', 'o1', 1000, 'CNY', 'b2');

-- Another tenant's order of the same id is another order.
SELECT outcome FROM idem_create_order('order2', 'o1', 5, 'USD');

-- It shows what is stored; nothing for what is not.
SELECT order_id, status, version, amount, currency, buyer_id, metadata, expires_at
FROM idem_get_order('order', 'o1');
SELECT order_id FROM idem_get_order('order', 'nowhere');

-- Birth is one history row and one event.
SELECT entity, version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'order' AND key = 'o1' ORDER BY version;
SELECT aggregatetype, aggregateid, type FROM idem_outbox WHERE tenant_id = 'order';

-- An expiry is kept, and never lies in the past or at the end of time.
SELECT outcome, expires_at - created_at BETWEEN interval '59 minutes' AND interval '61 minutes' AS an_hour
FROM idem_create_order('order', 'expiring', 1000, 'CNY', expires_in => '1 hour');

--
-- Arguments
--
\set VERBOSITY sqlstate
SELECT outcome FROM idem_create_order(NULL, 'x', 1, 'CNY');
SELECT outcome FROM idem_create_order('', 'x', 1, 'CNY');
SELECT outcome FROM idem_create_order('order', NULL, 1, 'CNY');
SELECT outcome FROM idem_create_order('order', '', 1, 'CNY');
SELECT outcome FROM idem_create_order('order', repeat('x', 256), 1, 'CNY');
SELECT outcome FROM idem_create_order('order', repeat('订', 86), 1, 'CNY');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CNY', '');
SELECT outcome FROM idem_create_order('order', 'x', NULL, 'CNY');
SELECT outcome FROM idem_create_order('order', 'x', -1, 'CNY');
SELECT outcome FROM idem_create_order('order', 'x', 1, NULL);
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CN');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'C1Y');
SELECT outcome FROM idem_create_order('order', 'x', 1, '元');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CNY', expires_in => '0');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CNY', expires_in => '-1 second');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CNY', expires_in => '200 years');
SELECT outcome FROM idem_create_order('order', 'x', 1, 'CNY', wait => '-1 second');
SELECT outcome FROM idem_update_order('order', 'o1', 1, 'CNY', NULL);
SELECT outcome FROM idem_update_order('order', 'o1', -1, 'CNY', 1);
SELECT outcome FROM idem_update_order('order', 'o1', 1, 'yen!', 1);
SELECT outcome FROM idem_update_order('order', 'nowhere', 1, 'CNY', 1);
SELECT outcome FROM idem_update_order('order', NULL, 1, 'CNY', 1);
SELECT outcome FROM idem_cancel_order('order', 'nowhere');
SELECT outcome FROM idem_cancel_order('order', '');
SELECT outcome FROM idem_ship_order('order', 'nowhere');
SELECT outcome FROM idem_ship_order('order', NULL);
SELECT outcome FROM idem_complete_order('order', 'nowhere');
SELECT outcome FROM idem_complete_order('order', repeat('x', 256));
SELECT order_id FROM idem_get_order('order', '');
SELECT order_id FROM idem_get_order(NULL, 'o1');
\set VERBOSITY default
SELECT outcome FROM idem_ship_order('order', 'nowhere');

-- As far as it goes: 255 bytes, whatever they mean, and the greatest amount.
SELECT outcome, octet_length(order_id) AS bytes, amount
FROM idem_create_order('order', repeat('x', 255), 9223372036854775807, 'CNY');
SELECT outcome, octet_length(order_id) AS bytes
FROM idem_create_order('order', repeat('订', 85), 1, 'CNY');

-- Nothing to pay: paid at once, by a second move.
SELECT outcome, status, amount, version FROM idem_create_order('order', 'free', 0, 'CNY');
SELECT outcome, status, version FROM idem_create_order('order', 'free', 0, 'CNY');
SELECT version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'order' AND entity = 'order' AND key = 'free' ORDER BY version;

--
-- A row that comes after its payments
--

-- Purchase 1 was paid before: paid at once.
SELECT outcome FROM idem_create_payment('order', 'late_row', 300, 'CNY', payment_no => 'late_row_1');
SELECT outcome FROM idem_confirm_payment('order', 'late_row_1', 'alipay', 'T-late_row', 300, 'CNY');
SELECT outcome FROM idem_create_order('order', 'late_row', 301, 'CNY');
SELECT outcome, status, version FROM idem_create_order('order', 'late_row', 300, 'CNY');

-- A payment is active: the order is what it says.
SELECT outcome FROM idem_create_payment('order', 'active_row', 300, 'CNY', payment_no => 'active_row_1');
SELECT outcome FROM idem_create_order('order', 'active_row', 301, 'CNY');
SELECT outcome FROM idem_create_order('order', 'active_row', 300, 'USD');
SELECT outcome, status FROM idem_create_order('order', 'active_row', 300, 'CNY');

-- A payment that is over binds nobody.
SELECT outcome FROM idem_create_payment('order', 'failed_row', 300, 'CNY', payment_no => 'failed_row_1');
SELECT outcome FROM idem_fail_payment('order', 'failed_row_1');
SELECT outcome, status FROM idem_create_order('order', 'failed_row', 400, 'CNY');

--
-- Update
--
SELECT outcome FROM idem_create_order('order', 'change', 500, 'CNY');
SELECT * FROM idem_update_order('order', 'change', 600, 'CNY', 2);
SELECT * FROM idem_update_order('order', 'change', 600, 'usd', 1);
SELECT * FROM idem_update_order('order', 'change', 600, 'USD', 1);
SELECT * FROM idem_update_order('order', 'change', 700, 'USD', 1);
SELECT outcome FROM idem_create_payment('order', 'change', 600, 'USD', payment_no => 'change_1');
SELECT * FROM idem_update_order('order', 'change', 700, 'USD', 2);
SELECT * FROM idem_update_order('order', 'change', 700, 'USD', 1);
SELECT outcome FROM idem_close_payment('order', 'change_1');
SELECT * FROM idem_update_order('order', 'change', 0, 'USD', 2, 'a gift');
SELECT * FROM idem_update_order('order', 'change', 0, 'USD', 2);
SELECT * FROM idem_update_order('order', 'change', 1, 'USD', 4);
SELECT status, version, amount, currency FROM idem_get_order('order', 'change');
SELECT version, from_state, to_state, event, reason FROM idem_history
WHERE tenant_id = 'order' AND entity = 'order' AND key = 'change' ORDER BY version;

--
-- Every state, every call.  One order a state, each named after it.
--
CREATE TEMP TABLE state (n int, o text);
INSERT INTO state VALUES (1, 'pending'), (2, 'paid'), (3, 'shipped'), (4, 'completed'),
	(5, 'cancelled'), (6, 'expired'), (7, 'refunded');
SELECT o, r.outcome FROM state, idem_create_order('order', o, 100, 'CNY') r ORDER BY n;
SELECT o, r.outcome FROM state, idem_create_payment('order', o, 100, 'CNY', payment_no => 'state_' || o) r
WHERE o <> 'pending' ORDER BY n;
SELECT o, r.outcome FROM state, idem_confirm_payment('order', 'state_' || o, 'alipay', 'T-' || o, 100, 'CNY') r
WHERE o IN ('paid', 'shipped', 'completed', 'refunded') ORDER BY n;
SELECT outcome, status, version FROM idem_ship_order('order', 'shipped');
SELECT outcome, status, version FROM idem_ship_order('order', 'completed');
SELECT outcome, status, version FROM idem_complete_order('order', 'completed');
SELECT outcome, status, version, closing_payment_no FROM idem_cancel_order('order', 'cancelled', 'no longer wanted');
-- one more, which has no row yet
SELECT outcome FROM idem_create_payment('order', 'refunded_row', 100, 'CNY', payment_no => 'refunded_row_1');
SELECT outcome FROM idem_confirm_payment('order', 'refunded_row_1', 'alipay', 'T-refunded_row', 100, 'CNY');
SELECT outcome FROM idem_begin_close('order', 'state_expired');
SELECT outcome FROM idem_finish_close('order', 'state_expired', 'closed', expire_order => true);
SELECT o, r.outcome FROM unnest('{refunded,refunded_row}'::text[]) o, idem_receipt c, idem_request_refund(tenant_id, payment_no, 'R-' || o, 100, 'CNY') r
WHERE tenant_id = 'order' AND order_id = o ORDER BY 1;
SELECT o, r.outcome FROM unnest('{refunded,refunded_row}'::text[]) o, idem_settle_refund('order', 'R-' || o, 'succeeded') r;
SELECT o, r.status, r.version FROM state, idem_get_order('order', o) r ORDER BY n;

SELECT o, r.outcome, r.status FROM state, idem_create_order('order', o, 100, 'CNY') r ORDER BY n;
-- paid, and all of it gone back, before there was a row
SELECT outcome, status, version FROM idem_create_order('order', 'refunded_row', 100, 'CNY');

BEGIN;
SELECT o, r.* FROM state, idem_update_order('order', o, 100, 'CNY', 99) r ORDER BY n;
SELECT o, r.* FROM state, idem_update_order('order', o, 101, 'CNY', 99) r ORDER BY n;
SELECT o, r.* FROM state, idem_update_order('order', o, 101, 'CNY', 1) r ORDER BY n;
ROLLBACK;

BEGIN;
SELECT o, r.* FROM state, idem_ship_order('order', o) r ORDER BY n;
SELECT o, r.* FROM state, idem_ship_order('order', o) r ORDER BY n;
ROLLBACK;

BEGIN;
SELECT o, r.* FROM state, idem_complete_order('order', o) r ORDER BY n;
SELECT o, r.* FROM state, idem_complete_order('order', o) r ORDER BY n;
ROLLBACK;

BEGIN;
SELECT o, r.outcome, r.status, r.version, r.closing_payment_no, r.refund_no IS NOT NULL AS refund,
	r.refund_status, r.remainder FROM state, idem_cancel_order('order', o) r ORDER BY n;
SELECT o, r.outcome, r.status, r.version, r.closing_payment_no, r.refund_no IS NOT NULL AS refund,
	r.refund_status, r.remainder FROM state, idem_cancel_order('order', o) r ORDER BY n;
ROLLBACK;

-- A free order ships, completes and is cancelled without money.
BEGIN;
SELECT outcome FROM idem_ship_order('order', 'free');
SELECT outcome FROM idem_complete_order('order', 'free');
ROLLBACK;
SELECT * FROM idem_cancel_order('order', 'free');

--
-- Cancel, with a row
--

-- Never submitted: closed.  Submitted: closing, and named until it is closed.
SELECT outcome FROM idem_create_order('order', 'c1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 'c1', 100, 'CNY', payment_no => 'cancel_1');
SELECT * FROM idem_cancel_order('order', 'c1');
SELECT status FROM idem_get_payment('order', 'cancel_1');
SELECT outcome, payment_no FROM idem_create_payment('order', 'c1', 100, 'CNY');

SELECT outcome FROM idem_create_order('order', 'c2', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 'c2', 100, 'CNY', payment_no => 'cancel_2');
SELECT outcome FROM idem_submit_payment('order', 'cancel_2', 'alipay');
SELECT * FROM idem_cancel_order('order', 'c2', 'no longer wanted');
SELECT * FROM idem_cancel_order('order', 'c2');
SELECT outcome FROM idem_finish_close('order', 'cancel_2', 'refused');
SELECT outcome FROM idem_finish_close('order', 'cancel_2', 'closed');
SELECT * FROM idem_cancel_order('order', 'c2');
SELECT entity, key, version, from_state, to_state, event, reason FROM idem_history
WHERE tenant_id = 'order' AND key IN ('c2', 'cancel_2') ORDER BY entity, version;

-- Its money, should it come, is late.
SELECT outcome, status, order_status FROM idem_confirm_payment('order', 'cancel_2', 'alipay', 'T-cancel_2', 100, 'CNY');

-- Paid: all that is not on its way back is refunded; repeated, the same refund.
SELECT outcome FROM idem_create_order('order', 'c3', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 'c3', 100, 'CNY', payment_no => 'cancel_3');
SELECT outcome, order_status FROM idem_confirm_payment('order', 'cancel_3', 'alipay', 'T-cancel_3', 100, 'CNY');
CREATE TEMP TABLE cancelled AS SELECT * FROM idem_cancel_order('order', 'c3', 'sold out');
SELECT outcome, status, version, closing_payment_no, refund_status, remainder FROM cancelled;
SELECT r.outcome, r.refund_no = c.refund_no AS same_refund, r.refund_status, r.remainder
FROM cancelled c, idem_cancel_order('order', 'c3') r;
SELECT f.refund_no = 'A' || f.receipt_no AS automatic, f.payment_no, f.amount, f.currency, f.status, f.cause, f.reason
FROM idem_refund f JOIN cancelled c USING (refund_no) WHERE tenant_id = 'order';
SELECT payment_no, amount, refund_reserved, refunded, disposition FROM idem_receipt
WHERE tenant_id = 'order' AND payment_no = 'cancel_3';
SELECT outcome FROM idem_ship_order('order', 'c3');

-- In review: a human decides first.
SELECT outcome FROM idem_create_order('order', 'c4', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 'c4', 100, 'CNY', payment_no => 'cancel_4');
SELECT outcome FROM idem_confirm_payment('order', 'cancel_4', 'alipay', 'T-cancel_4', 99, 'CNY');
SELECT * FROM idem_cancel_order('order', 'c4');

-- Paid, and bought again: the money of the second purchase decides, too.
SELECT outcome FROM idem_create_order('order', 'c5', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 'c5', 100, 'CNY', payment_no => 'cancel_5');
SELECT outcome FROM idem_confirm_payment('order', 'cancel_5', 'alipay', 'T-cancel_5', 100, 'CNY');
SELECT outcome, purchase_no FROM idem_create_payment('order', 'c5', 100, 'CNY', 'c5 again', true, payment_no => 'cancel_5b');
BEGIN;
SELECT outcome FROM idem_confirm_payment('order', 'cancel_5b', 'alipay', 'T-cancel_5b', 99, 'CNY');
SELECT outcome, status, refund_status FROM idem_cancel_order('order', 'c5');
ROLLBACK;
SELECT outcome, status, refund_status, remainder FROM idem_cancel_order('order', 'c5');
SELECT status FROM idem_get_payment('order', 'cancel_5b');

--
-- Cancel, without a row
--
SELECT outcome FROM idem_create_payment('order', 'n1', 100, 'CNY', payment_no => 'norow_1');
SELECT * FROM idem_cancel_order('order', 'n1', 'no longer wanted');
SELECT status, version, amount, currency FROM idem_get_order('order', 'n1');
SELECT version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'order' AND entity = 'order' AND key = 'n1' ORDER BY version;
SELECT * FROM idem_cancel_order('order', 'n1');
SELECT outcome, status FROM idem_create_order('order', 'n1', 100, 'CNY', 'b1');

SELECT outcome FROM idem_create_payment('order', 'n2', 100, 'CNY', payment_no => 'norow_2');
SELECT outcome FROM idem_submit_payment('order', 'norow_2', 'alipay');
SELECT * FROM idem_cancel_order('order', 'n2');

SELECT outcome FROM idem_create_payment('order', 'n3', 100, 'CNY', payment_no => 'norow_3');
SELECT outcome FROM idem_confirm_payment('order', 'norow_3', 'alipay', 'T-norow_3', 100, 'CNY');
SELECT outcome, status, version, refund_status, remainder FROM idem_cancel_order('order', 'n3');
SELECT version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'order' AND entity = 'order' AND key = 'n3' ORDER BY version;

SELECT outcome FROM idem_create_payment('order', 'n4', 100, 'CNY', payment_no => 'norow_4');
SELECT outcome FROM idem_confirm_payment('order', 'norow_4', 'alipay', 'T-norow_4', 99, 'CNY');
SELECT * FROM idem_cancel_order('order', 'n4');
SELECT order_id FROM idem_get_order('order', 'n4');

-- Nothing active: the amount is that of the latest payment.
SELECT outcome FROM idem_create_payment('order', 'n5', 100, 'CNY', payment_no => 'norow_5');
SELECT outcome FROM idem_fail_payment('order', 'norow_5');
SELECT outcome FROM idem_create_payment('order', 'n5', 200, 'USD', payment_no => 'norow_5b');
SELECT outcome FROM idem_fail_payment('order', 'norow_5b');
SELECT * FROM idem_cancel_order('order', 'n5');
SELECT status, amount, currency FROM idem_get_order('order', 'n5');

-- Bought twice: the row follows purchase 1, the second purchase is closed.
SELECT outcome FROM idem_create_payment('order', 'n6', 100, 'CNY', payment_no => 'norow_6');
SELECT outcome FROM idem_confirm_payment('order', 'norow_6', 'alipay', 'T-norow_6', 100, 'CNY');
SELECT outcome, purchase_no FROM idem_create_payment('order', 'n6', 200, 'CNY', 'again', true, payment_no => 'norow_6b');
SELECT outcome FROM idem_submit_payment('order', 'norow_6b', 'alipay');
SELECT outcome, status, closing_payment_no, refund_status, remainder FROM idem_cancel_order('order', 'n6');
SELECT status, amount FROM idem_get_order('order', 'n6');

--
-- Shipping when the money goes back
--
SELECT outcome FROM idem_create_order('order', 's1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('order', 's1', 100, 'CNY', payment_no => 'ship_1');
SELECT outcome FROM idem_confirm_payment('order', 'ship_1', 'alipay', 'T-ship_1', 100, 'CNY');
BEGIN;
UPDATE idem_receipt SET refund_reserved = 100 WHERE tenant_id = 'order' AND payment_no = 'ship_1';
SELECT * FROM idem_ship_order('order', 's1');
SELECT * FROM idem_complete_order('order', 's1');
UPDATE idem_receipt SET refund_reserved = 99 WHERE tenant_id = 'order' AND payment_no = 'ship_1';
SELECT * FROM idem_ship_order('order', 's1');
UPDATE idem_receipt SET refund_reserved = 100 WHERE tenant_id = 'order' AND payment_no = 'ship_1';
SELECT * FROM idem_complete_order('order', 's1');
ROLLBACK;

--
-- Repetitions are free: no transaction number, no lock kept.
--
BEGIN;
SELECT outcome FROM idem_create_order('order', 'o1', 1000, 'CNY', 'b1');
SELECT outcome FROM idem_update_order('order', 'o1', 1000, 'CNY', 7);
SELECT outcome FROM idem_ship_order('order', 'shipped');
SELECT outcome FROM idem_ship_order('order', 'completed');
SELECT outcome FROM idem_complete_order('order', 'completed');
SELECT outcome FROM idem_cancel_order('order', 'c3');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid()
	AND (locktype = 'advisory' OR mode = 'RowShareLock');
COMMIT;

-- A call that was rolled back did not happen, its names are free.
BEGIN;
SAVEPOINT before;
SELECT outcome FROM idem_create_order('order', 'undone', 100, 'CNY');
ROLLBACK TO before;
SELECT outcome, amount FROM idem_create_order('order', 'undone', 200, 'CNY');
SELECT count(*) AS names FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;

--
-- Who may
--
CREATE ROLE regress_idem_order_client;
SELECT outcome FROM idem_allow('regress_idem_order_client', 'client', 'order');
SET ROLE regress_idem_order_client;
\set VERBOSITY sqlstate
SELECT outcome, status FROM idem_cancel_order('order', 's1');
SELECT outcome FROM idem_ship_order('order', 's1');
SELECT outcome FROM idem_create_order('order2', 'o2', 1, 'CNY');
\set VERBOSITY default
SELECT outcome FROM idem_create_order('order', 'o2', 1, 'CNY');
SELECT outcome, status FROM idem_cancel_order('order', 'o2');
SELECT status FROM idem_get_order('order', 'o2');
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_idem_order_client', 'client', 'order');
DROP OWNED BY regress_idem_order_client;
DROP ROLE regress_idem_order_client;

-- Nothing is broken.
SELECT * FROM idem_verify() WHERE tenant_id LIKE 'order%';
