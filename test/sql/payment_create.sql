-- idem_create_payment: what a request is answered, by the order of precedence.
\pset null '-'

-- The answer without what differs from run to run.
CREATE VIEW created AS
SELECT outcome, payment_no IS NOT NULL AS handle, blocking_no IS NOT NULL AS blocked,
       status, order_id, purchase_no, amount, currency, request_key, channel, account,
       version, expires_at - created_at AS lives
  FROM idem_create_payment('x', 'x', 1, 'XXX') WHERE false;
CREATE FUNCTION show(p idem_create_payment_result) RETURNS SETOF created
LANGUAGE sql AS $$
SELECT p.outcome, p.payment_no IS NOT NULL, p.blocking_no IS NOT NULL,
       p.status, p.order_id, p.purchase_no, p.amount, p.currency, p.request_key, p.channel,
       p.account, p.version, p.expires_at - p.created_at
$$;

-- created, then existing, under any other key; a replay for a key that is known
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k1') p, show(p) s;
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k1') p, show(p) s;
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'cny', request_key => 'k2') p, show(p) s;
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k2') p, show(p) s;
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'CNY') p, show(p) s;
SELECT count(*) AS payments, count(DISTINCT payment_no) AS numbers FROM idem_payment WHERE tenant_id = 'create';
SELECT p.request_key AS made_by, k.request_key AS bound, p.payment_no = k.payment_no AS leads_to_it
  FROM idem_payment p JOIN idem_payment_key k USING (tenant_id) WHERE tenant_id = 'create' ORDER BY 1;

-- the same key for something else; DETAIL names the first field that differs
SELECT idem_create_payment('create', 'o2', 1, 'USD', request_key => 'k1');
SELECT idem_create_payment('create', 'o1', 1, 'USD', request_key => 'k1');
SELECT idem_create_payment('create', 'o1', 9900, 'USD', request_key => 'k1');
SELECT idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k1', repurchase => true);
SELECT idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k1', payment_no => 'another');
-- what is not named does not differ; expires_in and metadata are not compared
SELECT s.* FROM idem_create_payment('create', 'o1', 9900, 'CNY', request_key => 'k1', channel => 'alipay',
                                    account => 'm1', expires_in => '1 hour', metadata => '{"a": 1}') p, show(p) s;

-- another key, another amount or currency than the active payment
SELECT idem_create_payment('create', 'o1', 9901, 'CNY', request_key => 'k3');
SELECT idem_create_payment('create', 'o1', 9900, 'USD');

-- another tenant is another world
SELECT s.outcome, s.amount FROM idem_create_payment('create-2', 'o1', 5, 'EUR', request_key => 'k1') p, show(p) s;

-- channels: both name one
SELECT s.* FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c1', channel => 'alipay',
                                    account => 'm1', payment_no => 'create-o3') p, show(p) s;
SELECT s.* FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c2', channel => 'wechat') p, show(p) s;
SELECT blocking_no FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c2', channel => 'wechat');
SELECT outcome, payment_no FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c3');
SELECT outcome, payment_no FROM idem_create_payment('create', 'o3', 100, 'CNY', channel => 'alipay');
SELECT idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c1', channel => 'wechat');
SELECT idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c1', account => 'm2');
SELECT count(*) AS other_channel_binds_no_key FROM idem_payment_key WHERE tenant_id = 'create' AND request_key = 'c2';

-- the caller's own number: repeated, taken, malformed
SELECT outcome, payment_no FROM idem_create_payment('create', 'o3', 100, 'CNY', payment_no => 'create-o3');
SELECT idem_create_payment('create', 'o4', 100, 'CNY', payment_no => 'create-o3');
SELECT idem_create_payment('create', 'o4', 100, 'CNY', payment_no => 'short');
SELECT idem_create_payment('create', 'o4', 100, 'CNY', payment_no => 'no spaces');
SELECT idem_create_payment('create', 'o4', 100, 'CNY', payment_no => repeat('x', 33));

-- channel data comes back with the handle
SELECT outcome FROM idem_attach_channel_data('create', 'create-o3', '{"qr": "1"}');
SELECT outcome, channel_data FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c1');

-- closing, closed, and a new attempt in the same purchase
SELECT outcome FROM idem_begin_close('create', 'create-o3');
SELECT outcome, payment_no, channel_data, blocking_no, status
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c4');
SELECT outcome, payment_no, channel_data, blocking_no, status
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c1');
SELECT outcome FROM idem_finish_close('create', 'create-o3', 'closed');
SELECT idem_create_payment('create', 'o3', 100, 'CNY', payment_no => 'create-o3');
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c4', payment_no => 'create-o3b');

-- paid: a new key is told so, the old ones replay, both without a handle
SELECT outcome, status FROM idem_confirm_payment('create', 'create-o3b', 'alipay', 't3', 100, 'CNY');
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c5');
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'c4');
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('create', 'o3', 100, 'CNY', payment_no => 'create-o3b');

-- repurchase opens the next purchase, once per key; an unpaid one is not skipped
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r1', repurchase => true, payment_no => 'create-o3c');
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r1', repurchase => true);
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r2', repurchase => true);
SELECT idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r1');
SELECT outcome FROM idem_confirm_payment('create', 'create-o3c', 'alipay', 't3c', 100, 'CNY');
SELECT outcome, purchase_no, blocking_no FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r3');
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o3', 100, 'CNY', request_key => 'r4', repurchase => true, payment_no => 'create-o3d');
SELECT idem_create_payment('create', 'o3', 100, 'CNY', repurchase => true);
-- a first purchase may be asked for as a repurchase: there is nothing paid to come after
SELECT outcome, purchase_no FROM idem_create_payment('create', 'o5', 100, 'CNY', request_key => 'r5', repurchase => true);

-- expired and never submitted: closed, and a new one created by the same call
SELECT outcome FROM idem_create_payment('create', 'o6', 100, 'CNY', payment_no => 'create-o6');
UPDATE idem_payment SET expires_at = now() - interval '1 second' WHERE tenant_id = 'create' AND payment_no = 'create-o6';
SELECT outcome, payment_no, purchase_no
  FROM idem_create_payment('create', 'o6', 100, 'CNY', request_key => 'x1', payment_no => 'create-o6b');
SELECT payment_no, status FROM idem_payment WHERE tenant_id = 'create' AND order_id = 'o6' ORDER BY 1;
-- expired and submitted: the channel may know of it
SELECT outcome FROM idem_submit_payment('create', 'create-o6b', 'wechat');
UPDATE idem_payment SET expires_at = now() - interval '1 second' WHERE tenant_id = 'create' AND payment_no = 'create-o6b';
SELECT outcome, payment_no, blocking_no, status FROM idem_create_payment('create', 'o6', 100, 'CNY', request_key => 'x2');
SELECT outcome, payment_no, blocking_no, status FROM idem_create_payment('create', 'o6', 100, 'CNY', request_key => 'x2');
SELECT key, from_state, to_state, event, reason FROM idem_history
 WHERE tenant_id = 'create' AND entity = 'payment' AND key LIKE 'create-o6%' ORDER BY key, version;

-- two calls in one statement: the second knows what the first has done
SELECT outcome FROM idem_create_payment('create', 'o13', 100, 'CNY', payment_no => 'create-o13');
SELECT (idem_close_payment('create', 'create-o13')).outcome,
       (idem_create_payment('create', 'o13', 100, 'CNY', payment_no => 'create-o13b')).payment_no;

-- no setting of the caller's leads a plan astray that is kept ever after
BEGIN;
SET LOCAL enable_tidscan = off;
SET LOCAL random_page_cost = 1000000;
DISCARD PLANS;
SELECT seq_scan AS before FROM pg_stat_xact_user_tables WHERE relname = 'idem_payment' \gset
SELECT outcome FROM idem_close_payment('create', 'create-o13b');
SELECT seq_scan - :before AS read_from_end_to_end FROM pg_stat_xact_user_tables WHERE relname = 'idem_payment';
ROLLBACK;
DISCARD PLANS;

-- in review
SELECT outcome FROM idem_create_payment('create', 'o7', 100, 'CNY', payment_no => 'create-o7');
SELECT outcome FROM idem_confirm_payment('create', 'create-o7', 'alipay', 't7', 99, 'CNY');
SELECT outcome, payment_no, blocking_no FROM idem_create_payment('create', 'o7', 100, 'CNY', request_key => 'v1');

-- a burned key
SELECT outcome FROM idem_cancel_request_key('create', 'b1');
SELECT s.* FROM idem_create_payment('create', 'o8', 100, 'CNY', request_key => 'b1') p, show(p) s;
SELECT count(*) FROM idem_payment WHERE tenant_id = 'create' AND order_id = 'o8';

-- the order's row: its amount, its expiry, its end
SELECT outcome FROM idem_create_order('create', 'o9', 100, 'CNY', expires_in => '10 minutes');
SELECT idem_create_payment('create', 'o9', 101, 'CNY');
SELECT idem_create_payment('create', 'o9', 100, 'USD');
SELECT outcome, expires_at - created_at < interval '10 minutes' AS not_later_than_the_order
  FROM idem_create_payment('create', 'o9', 100, 'CNY');
SELECT outcome FROM idem_cancel_order('create', 'o9');
SELECT s.* FROM idem_create_payment('create', 'o9', 100, 'CNY', request_key => 'e1') p, show(p) s;
SELECT outcome FROM idem_create_order('create', 'o10', 100, 'CNY');
UPDATE idem_order SET expires_at = now() - interval '1 second' WHERE tenant_id = 'create' AND order_id = 'o10';
SELECT outcome FROM idem_create_payment('create', 'o10', 100, 'CNY');
-- an order that was paid in time does not expire, and its expiry binds no further purchase
BEGIN;
SELECT outcome FROM idem_create_order('create', 'o10b', 100, 'CNY', expires_in => '10 minutes');
SELECT outcome FROM idem_create_payment('create', 'o10b', 100, 'CNY', payment_no => 'create-o10b');
SELECT outcome FROM idem_confirm_payment('create', 'create-o10b', 'alipay', 't10b', 100, 'CNY');
UPDATE idem_order SET expires_at = now() - interval '1 second' WHERE tenant_id = 'create' AND order_id = 'o10b';
SELECT outcome FROM idem_create_payment('create', 'o10b', 100, 'CNY');
SELECT outcome, purchase_no, expires_at - created_at AS lives
  FROM idem_create_payment('create', 'o10b', 100, 'CNY', request_key => 'e2', repurchase => true);
ROLLBACK;

-- money that came before: adopted by the create that brings its number
SELECT outcome, receipt_no IS NOT NULL AS kept FROM idem_confirm_payment('create', 'create-o11', 'alipay', 't11', 100, 'CNY');
SELECT outcome, payment_no, blocking_no, status
  FROM idem_create_payment('create', 'o11', 100, 'CNY', request_key => 'a1', payment_no => 'create-o11');
SELECT outcome FROM idem_confirm_payment('create', 'create-o12', 'alipay', 't12', 99, 'CNY');
SELECT outcome, payment_no, blocking_no, status
  FROM idem_create_payment('create', 'o12', 100, 'CNY', request_key => 'a2', payment_no => 'create-o12');
-- on an account that nobody named: the payment's own
BEGIN;
SELECT outcome FROM idem_confirm_payment('create', 'create-o12b', 'alipay', 't12b', 100, 'CNY');
INSERT INTO idem_channel_account VALUES ('create', 'alipay', 'a1');
SELECT outcome, status FROM idem_create_payment('create', 'o12b', 100, 'CNY', channel => 'alipay', account => 'a1', payment_no => 'create-o12b');
ROLLBACK;

-- nonsense
SELECT idem_create_payment(NULL, 'o', 1, 'CNY');
SELECT idem_create_payment('', 'o', 1, 'CNY');
SELECT idem_create_payment('create', NULL, 1, 'CNY');
SELECT idem_create_payment('create', '', 1, 'CNY');
SELECT idem_create_payment('create', repeat('x', 256), 1, 'CNY');
SELECT idem_create_payment('create', repeat(U&'\6C49', 86), 1, 'CNY');
SELECT idem_create_payment('create', 'o', NULL, 'CNY');
SELECT idem_create_payment('create', 'o', 0, 'CNY');
SELECT idem_create_payment('create', 'o', -1, 'CNY');
SELECT idem_create_payment('create', 'o', 1, NULL);
SELECT idem_create_payment('create', 'o', 1, 'C');
SELECT idem_create_payment('create', 'o', 1, 'C1Y');
SELECT idem_create_payment('create', 'o', 1, 'CNY', request_key => '');
SELECT idem_create_payment('create', 'o', 1, 'CNY', channel => '');
SELECT idem_create_payment('create', 'o', 1, 'CNY', expires_in => '0');
SELECT idem_create_payment('create', 'o', 1, 'CNY', expires_in => '-1 second');
SELECT idem_create_payment('create', 'o', 1, 'CNY', expires_in => '100000 years');
SELECT idem_create_payment('create', 'o', 1, 'CNY', wait => '-1 second');
SELECT idem_create_payment('create', 'o', 1, 'CNY', token => 'x');
-- and what is none: 255 bytes, several bytes to a character, the largest amount, no expiry
SELECT outcome, amount, expires_at FROM idem_create_payment('create', repeat('x', 255), 9223372036854775807, 'CNY', expires_in => NULL);
SELECT outcome FROM idem_create_payment('create', repeat(U&'\6C49', 85), 1, 'CNY', request_key => U&'\952E', wait => '0');

DROP FUNCTION show(idem_create_payment_result);
DROP VIEW created;
SELECT * FROM idem_verify();
