-- Each SQLSTATE that a caller can meet, by its code alone.
\set VERBOSITY sqlstate
SELECT outcome FROM idem_create_order('errors', 'o1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('errors', 'o1', 100, 'CNY', request_key => 'k1', payment_no => 'errors-1');

-- ID001 key_conflict: key, number, order and active payment of something else
SELECT idem_create_payment('errors', 'o2', 100, 'CNY', request_key => 'k1');
SELECT idem_create_payment('errors', 'o2', 100, 'CNY', payment_no => 'errors-1');
SELECT idem_create_payment('errors', 'o1', 101, 'CNY');
SELECT idem_create_order('errors', 'o1', 101, 'CNY');

-- ID003 illegal_transition, ID004 stale_version, ID007 protected: raw SQL
SELECT outcome FROM idem_confirm_payment('errors', 'errors-1', 'alipay', 't1', 100, 'CNY');
UPDATE idem_payment SET status = 'pending' WHERE tenant_id = 'errors';
UPDATE idem_payment SET status = 'nonsense' WHERE tenant_id = 'errors';
UPDATE idem_payment SET metadata = '1', version = version + 2 WHERE tenant_id = 'errors';
UPDATE idem_payment SET amount = 1 WHERE tenant_id = 'errors';
UPDATE idem_payment SET channel = 'wechat' WHERE tenant_id = 'errors';
DELETE FROM idem_payment WHERE tenant_id = 'errors';
TRUNCATE idem_payment;
TRUNCATE idem_request;
DELETE FROM idem_receipt WHERE tenant_id = 'errors';
UPDATE idem_history SET to_state = 'x' WHERE tenant_id = 'errors';
UPDATE idem_machine_move SET to_state = 'pending' WHERE machine = 'payment' AND from_state = 'paid_late';
INSERT INTO idem_machine_move VALUES ('payment', 'paid', 'pending', 'rob');

-- ID005 fenced: a lease that was released, and one that was taken over
SELECT r.outcome FROM idem_acquire_lease('errors', 'l', 'w1') a, idem_release_lease('errors', 'l', a.fence) r;
SELECT idem_assert_lease('errors', 'l', 1);
SELECT outcome FROM idem_acquire_lease('errors', 'l', 'w2');
SELECT idem_renew_lease('errors', 'l', 1, '1 minute');
-- ID005 fenced: an attempt that gave its request back
SELECT r.outcome FROM idem_begin_request('errors', 's', 'k') b, idem_fail_request('errors', 's', 'k', b.attempt) r;
SELECT c.* FROM idem_request r, idem_complete_request(tenant_id, scope, key, attempt, '1') c WHERE tenant_id = 'errors';

-- ID006 not_found
SELECT idem_submit_payment('errors', 'nothing', 'alipay');
SELECT idem_ship_order('errors', 'nothing');
SELECT idem_adopt_receipt('errors', 'nothing', 'errors-1');
SELECT idem_assert_lease('errors', 'nothing', 1);

-- 23505: a second active payment, whoever inserts it, and a second applied receipt
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
VALUES ('errors', 'raw-1', 'raw', 1, 100, 'CNY', 'pending', now());
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
VALUES ('errors', 'raw-2', 'raw', 1, 100, 'CNY', 'closing', now());
INSERT INTO idem_receipt (tenant_id, receipt_no, payment_no, order_id, purchase_no, reported_payment_no, amount, currency, disposition, created_at)
VALUES ('errors', 'r2', 'errors-1', 'o1', 1, 'errors-1', 100, 'CNY', 'applied', now());

-- 23514: what no column may hold
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
VALUES ('errors', 'raw-3', 'raw-3', 1, 0, 'CNY', 'pending', now());
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
VALUES ('', 'raw-3', 'raw-3', 1, 1, 'CNY', 'pending', now());
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, created_at)
VALUES (repeat('x', 256), 'raw-3', 'raw-3', 1, 1, 'CNY', 'pending', now());
UPDATE idem_receipt SET refunded = 1 WHERE tenant_id = 'errors';
UPDATE idem_receipt SET refund_reserved = 101 WHERE tenant_id = 'errors';

-- 22004, 22023: nonsense arguments of a request
SELECT idem_create_payment('errors', NULL, 100, 'CNY');
SELECT idem_create_payment('errors', 'o', 100, 'RMB Yuan');
SELECT idem_finish_close('errors', 'errors-1', 'perhaps');
SELECT idem_resolve_review('errors', 'errors-1', 'perhaps', 'reason');

-- ID008 tenant_denied, and 42501 without EXECUTE
CREATE ROLE regress_errors;
SET ROLE regress_errors;
SELECT idem_create_payment('errors', 'o', 100, 'CNY');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_errors', 'client', 'another');
SET ROLE regress_errors;
SELECT idem_create_payment('errors', 'o', 100, 'CNY');
SELECT outcome FROM idem_create_payment('another', 'o', 100, 'CNY');
SELECT * FROM idem_payment;
SELECT idem_allow('regress_errors', 'client');
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_errors', 'client', 'another');
DROP OWNED BY regress_errors;
DROP ROLE regress_errors;

-- ID002 token_rejected
SELECT idem_create_payment('errors', 'o', 100, 'CNY', token => 'x');

-- 25006: nothing is written in a read-only transaction, and repetitions write nothing
BEGIN READ ONLY;
SELECT outcome FROM idem_create_payment('errors', 'o1', 100, 'CNY', request_key => 'k1');
SAVEPOINT s;
SELECT idem_create_payment('errors', 'o3', 100, 'CNY');
ROLLBACK TO s;
SELECT idem_next_no();
ROLLBACK;
SELECT * FROM idem_verify();
