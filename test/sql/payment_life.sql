--
-- payment_life: what happens to a payment between its creation and its money.
--

-- The scene: one payment a state, each named after it.  *_sent were submitted.
CREATE TEMP TABLE state (n int, s text);
INSERT INTO state VALUES (1, 'pending'), (2, 'pending_sent'), (3, 'closing'), (4, 'closing_sent'),
	(5, 'review'), (6, 'paid'), (7, 'paid_late'), (8, 'failed'), (9, 'closed');
SELECT s, r.outcome, r.payment_no, r.status FROM state,
	idem_create_payment('life', 'order_' || s, 100, 'CNY', 'key_' || s, payment_no => 'life_' || s) r ORDER BY n;
SELECT s, r.outcome FROM state, idem_submit_payment('life', 'life_' || s, 'alipay', 'a1') r
WHERE s LIKE '%sent' ORDER BY n;
SELECT s, r.* FROM state, idem_attach_channel_data('life', 'life_' || s, '{"qr": "1"}') r
WHERE s LIKE '%sent' ORDER BY n;
SELECT s, r.* FROM state, idem_begin_close('life', 'life_' || s, 'too slow') r
WHERE s LIKE 'closing%' ORDER BY n;
SELECT outcome FROM idem_confirm_payment('life', 'life_review', 'alipay', 'T-review', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('life', 'life_paid', 'alipay', 'T-paid', 100, 'CNY');
SELECT * FROM idem_fail_payment('life', 'life_paid_late');
SELECT outcome FROM idem_confirm_payment('life', 'life_paid_late', 'alipay', 'T-paid_late', 99, 'CNY');
SELECT * FROM idem_fail_payment('life', 'life_failed', 'card declined');
SELECT * FROM idem_close_payment('life', 'life_closed', 'second tab');
SELECT s, r.status, r.version, r.channel, r.account, r.channel_data, r.submitted_at IS NOT NULL AS submitted
FROM state, idem_get_payment('life', 'life_' || s) r ORDER BY n;
SELECT key, version, from_state, to_state, event, reason FROM idem_history
WHERE tenant_id = 'life' AND entity = 'payment' ORDER BY key COLLATE "C", version;

--
-- Submit: every state; the same channel, another account, another channel.
--
BEGIN;
SELECT s, r.outcome, r.status, r.expires_at IS NOT NULL AS expires, r.channel_data
FROM state, idem_submit_payment('life', 'life_' || s, 'alipay', 'a1') r ORDER BY n;
SELECT s, r.outcome, r.status, r.channel_data
FROM state, idem_submit_payment('life', 'life_' || s, 'alipay') r ORDER BY n;
SELECT s, r.outcome, r.status, r.channel_data
FROM state, idem_submit_payment('life', 'life_' || s, 'alipay', 'a2') r ORDER BY n;
SELECT s, r.outcome, r.status, r.channel_data
FROM state, idem_submit_payment('life', 'life_' || s, 'wechat') r ORDER BY n;
ROLLBACK;

-- A channel that the creator named is kept; an account is taken over once.
SELECT outcome FROM idem_create_payment('life', 'bound', 100, 'CNY', channel => 'wechat', payment_no => 'life_bound');
SELECT outcome, status FROM idem_submit_payment('life', 'life_bound', 'alipay');
SELECT outcome, status FROM idem_submit_payment('life', 'life_bound', 'wechat', 'w1');
SELECT outcome FROM idem_submit_payment('life', 'life_bound', 'wechat', 'w2');
SELECT outcome FROM idem_submit_payment('life', 'life_bound', 'wechat');
SELECT channel, account, version,
	next_check_at > clock_timestamp() AND next_check_at < expires_at AS check_due FROM idem_get_payment('life', 'life_bound');
-- One that was submitted without an account is not at one that is named later.
BEGIN;
SELECT outcome FROM idem_create_payment('life', 'unbound', 100, 'CNY', payment_no => 'life_unbound');
SELECT outcome FROM idem_submit_payment('life', 'life_unbound', 'wechat');
SELECT outcome FROM idem_submit_payment('life', 'life_unbound', 'wechat', 'w1');
SELECT outcome FROM idem_submit_payment('life', 'life_unbound', 'wechat');
ROLLBACK;

-- Expired: too late for the channel, submitted before or not.
SELECT outcome FROM idem_create_payment('life', 'short', 100, 'CNY', expires_in => '1 microsecond', payment_no => 'life_short');
SELECT outcome, status FROM idem_submit_payment('life', 'life_short', 'alipay');
SELECT outcome FROM idem_attach_channel_data('life', 'life_short', '{}');
BEGIN;
UPDATE idem_payment SET expires_at = created_at WHERE tenant_id = 'life' AND payment_no = 'life_bound';
SELECT outcome, status FROM idem_submit_payment('life', 'life_bound', 'wechat', 'w1');
ROLLBACK;

--
-- Channel data: new, the same, other; every state.
--
BEGIN;
SELECT s, r.* FROM state, idem_attach_channel_data('life', 'life_' || s, '{"qr": "1"}') r ORDER BY n;
SELECT s, r.* FROM state, idem_attach_channel_data('life', 'life_' || s, '{"qr": "2"}') r ORDER BY n;
SELECT outcome, channel_data FROM idem_create_payment('life', 'order_pending', 100, 'CNY', 'key_pending');
SELECT outcome, channel_data FROM idem_create_payment('life', 'order_pending', 100, 'CNY', 'another');
ROLLBACK;

--
-- Begin to close
--
BEGIN;
SELECT s, r.* FROM state, idem_begin_close('life', 'life_' || s) r ORDER BY n;
SELECT s, r.* FROM state, idem_begin_close('life', 'life_' || s) r ORDER BY n;
ROLLBACK;

--
-- Finish: every state, every word of the channel.
--
BEGIN;
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'closed') r ORDER BY n;
-- once more, after the grace, and no sooner than the payment expires
SELECT s, p.next_check_at = p.expires_at + interval '10 minutes' AS last_check
FROM state, idem_get_payment('life', 'life_' || s) p WHERE s LIKE 'closing%' ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'already_paid') r ORDER BY n;
SELECT s, p.next_check_at <= clock_timestamp() AS due
FROM state, idem_get_payment('life', 'life_' || s) p WHERE s LIKE 'clos%' ORDER BY n;
-- due is due: nothing more is written
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'already_paid') r WHERE s LIKE 'clos%' ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'not_exist') r ORDER BY n;
SELECT s, p.next_check_at = p.expires_at + interval '10 minutes' AS check_after_grace
FROM state, idem_get_payment('life', 'life_' || s) p WHERE s LIKE 'closing%' ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'refused') r ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.* FROM state, idem_finish_close('life', 'life_' || s, 'unknown') r ORDER BY n;
SELECT s, p.next_check_at > clock_timestamp() AND p.next_check_at < clock_timestamp() + interval '2 minutes' AS check_again
FROM state, idem_get_payment('life', 'life_' || s) p WHERE s LIKE 'closing%' ORDER BY n;
ROLLBACK;

-- "Does not exist" is proof once the payment expired and the grace is over.
SELECT outcome FROM idem_begin_close('life', 'life_short');
SELECT outcome, status FROM idem_finish_close('life', 'life_short', 'not_exist');
SET idem.close_grace = 0;
SELECT outcome, status FROM idem_finish_close('life', 'life_short', 'not_exist');
RESET idem.close_grace;
-- One that never expires is never proved so.
SELECT outcome FROM idem_create_payment('life', 'forever', 100, 'CNY', expires_in => NULL, payment_no => 'life_forever');
SELECT outcome FROM idem_begin_close('life', 'life_forever');
SELECT outcome, status FROM idem_finish_close('life', 'life_forever', 'not_exist');
SELECT next_check_at > clock_timestamp() + interval '9 minutes' AS after_the_grace FROM idem_get_payment('life', 'life_forever');
SELECT outcome, status FROM idem_finish_close('life', 'life_forever', 'closed');

-- The channel refuses to close: reopened while the order can be paid.
SELECT outcome FROM idem_create_order('life', 'unpayable', 100, 'CNY');
SELECT outcome FROM idem_create_payment('life', 'unpayable', 100, 'CNY', payment_no => 'life_unpayable');
SELECT outcome FROM idem_submit_payment('life', 'life_unpayable', 'alipay');
SELECT outcome, closing_payment_no FROM idem_cancel_order('life', 'unpayable');
SELECT * FROM idem_finish_close('life', 'life_unpayable', 'refused');
SELECT next_check_at <= clock_timestamp() AS due FROM idem_get_payment('life', 'life_unpayable');
-- nor once the order ran out of time
SELECT outcome FROM idem_create_order('life', 'ran_out', 100, 'CNY');
SELECT outcome FROM idem_create_payment('life', 'ran_out', 100, 'CNY', payment_no => 'life_ran_out');
SELECT outcome FROM idem_begin_close('life', 'life_ran_out');
BEGIN;
UPDATE idem_order SET expires_at = created_at WHERE tenant_id = 'life' AND order_id = 'ran_out';
SELECT outcome, status FROM idem_finish_close('life', 'life_ran_out', 'refused');
ROLLBACK;
SELECT outcome, status FROM idem_finish_close('life', 'life_ran_out', 'refused');
-- nor when another payment paid the purchase
SELECT outcome FROM idem_create_payment('life', 'two_tabs', 100, 'CNY', payment_no => 'life_tab_1');
SELECT outcome FROM idem_close_payment('life', 'life_tab_1');
SELECT outcome FROM idem_create_payment('life', 'two_tabs', 100, 'CNY', payment_no => 'life_tab_2');
SELECT outcome FROM idem_submit_payment('life', 'life_tab_2', 'wechat');
SELECT outcome, closing_payment_no FROM idem_confirm_payment('life', 'life_tab_1', 'alipay', 'T-tab_1', 100, 'CNY');
SELECT outcome, status FROM idem_finish_close('life', 'life_tab_2', 'refused');

-- Closing ends an order only if asked to, and if nothing else of it is active.
SELECT outcome FROM idem_create_order('life', 'expire', 100, 'CNY');
SELECT outcome FROM idem_create_payment('life', 'expire', 100, 'CNY', payment_no => 'life_expire_1');
SELECT outcome FROM idem_begin_close('life', 'life_expire_1');
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'unknown', true);
SELECT status FROM idem_get_order('life', 'expire');
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'closed');
SELECT status FROM idem_get_order('life', 'expire');
SELECT outcome FROM idem_create_payment('life', 'expire', 100, 'CNY', payment_no => 'life_expire_2');
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'closed', true);
SELECT status FROM idem_get_order('life', 'expire');
SELECT outcome FROM idem_close_payment('life', 'life_expire_2');
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'closed', true);
SELECT status, version FROM idem_get_order('life', 'expire');
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'closed', true);
SELECT version, from_state, to_state, event FROM idem_history
WHERE tenant_id = 'life' AND entity = 'order' AND key = 'expire' ORDER BY version;
-- without a row there is nothing to expire
SELECT outcome FROM idem_finish_close('life', 'life_closed', 'closed', true);

--
-- Close at once
--
BEGIN;
SELECT s, r.* FROM state, idem_close_payment('life', 'life_' || s) r ORDER BY n;
SELECT s, r.* FROM state, idem_close_payment('life', 'life_' || s) r ORDER BY n;
ROLLBACK;

--
-- Cancel the request key: every state, repeated; a key that nobody used.
--
BEGIN;
SELECT s, r.* FROM state, idem_cancel_request_key('life', 'key_' || s, 'lost') r ORDER BY n;
SELECT s, r.* FROM state, idem_cancel_request_key('life', 'key_' || s) r ORDER BY n;
ROLLBACK;
SELECT * FROM idem_cancel_request_key('life', 'lost');
SELECT * FROM idem_cancel_request_key('life', 'lost');
SELECT outcome, payment_no FROM idem_create_payment('life', 'lost', 100, 'CNY', 'lost');
SELECT payment_no FROM idem_find_payment('life', 'lost');
-- A second key that was bound to the same payment gives up the same payment.
BEGIN;
SELECT outcome, payment_no FROM idem_create_payment('life', 'order_pending', 100, 'CNY', 'other_key');
SELECT * FROM idem_cancel_request_key('life', 'other_key');
SELECT outcome, payment_no, status FROM idem_create_payment('life', 'order_pending', 100, 'CNY', 'key_pending');
ROLLBACK;

--
-- Failure, a fact
--
BEGIN;
SELECT s, r.* FROM state, idem_fail_payment('life', 'life_' || s) r ORDER BY n;
SELECT s, r.* FROM state, idem_fail_payment('life', 'life_' || s) r ORDER BY n;
ROLLBACK;
SELECT * FROM idem_fail_payment('life', 'life_nowhere');
SELECT * FROM idem_fail_payment('life', 'life_nowhere');
SELECT * FROM idem_fail_payment('life', '');
SELECT kind, entity, key, status, hits FROM idem_anomaly
WHERE tenant_id = 'life' AND kind = 'orphan' ORDER BY key COLLATE "C";

--
-- Find: the active one, else the paid one of the current purchase, else the latest.
--
SELECT outcome FROM idem_create_payment('life', 'find', 100, 'CNY', payment_no => 'life_find_1');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome FROM idem_close_payment('life', 'life_find_1');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome FROM idem_create_payment('life', 'find', 100, 'CNY', payment_no => 'life_find_2');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome FROM idem_close_payment('life', 'life_find_2');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome, status FROM idem_confirm_payment('life', 'life_find_1', 'alipay', 'T-find_1', 100, 'CNY');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome, purchase_no FROM idem_create_payment('life', 'find', 100, 'CNY', 'find again', true, payment_no => 'life_find_3');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT outcome FROM idem_close_payment('life', 'life_find_3');
SELECT payment_no, status FROM idem_find_payment('life', 'find');
SELECT payment_no FROM idem_find_payment('life', 'nowhere');
SELECT payment_no FROM idem_get_payment('life', 'nowhere');
SELECT payment_no FROM idem_get_payment('another tenant', 'life_find_1');

--
-- Repetitions are free: no transaction number, no lock kept.
--
BEGIN;
SELECT outcome FROM idem_submit_payment('life', 'life_pending_sent', 'alipay');
SELECT outcome FROM idem_attach_channel_data('life', 'life_pending_sent', '{"qr": "1"}');
SELECT outcome FROM idem_begin_close('life', 'life_closing');
SELECT outcome FROM idem_finish_close('life', 'life_closed', 'closed');
SELECT outcome FROM idem_finish_close('life', 'life_paid', 'closed', true);
SELECT outcome FROM idem_finish_close('life', 'life_expire_1', 'closed', true);
SELECT outcome FROM idem_close_payment('life', 'life_closed');
SELECT outcome FROM idem_cancel_request_key('life', 'lost');
SELECT outcome FROM idem_cancel_request_key('life', 'key_paid');
SELECT outcome FROM idem_fail_payment('life', 'life_failed');
SELECT outcome FROM idem_fail_payment('life', 'life_paid');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid()
	AND (locktype = 'advisory' OR mode = 'RowShareLock');
COMMIT;

--
-- Arguments
--
\set VERBOSITY sqlstate
SELECT outcome FROM idem_submit_payment('life', 'life_nowhere', 'alipay');
SELECT outcome FROM idem_submit_payment(NULL, 'life_pending', 'alipay');
SELECT outcome FROM idem_submit_payment('', 'life_pending', 'alipay');
SELECT outcome FROM idem_submit_payment('life', NULL, 'alipay');
SELECT outcome FROM idem_submit_payment('life', '', 'alipay');
SELECT outcome FROM idem_submit_payment('life', repeat('x', 256), 'alipay');
SELECT outcome FROM idem_submit_payment('life', 'life_pending', NULL);
SELECT outcome FROM idem_submit_payment('life', 'life_pending', '');
SELECT outcome FROM idem_submit_payment('life', 'life_pending', repeat('x', 256));
SELECT outcome FROM idem_submit_payment('life', 'life_pending', 'alipay', '');
SELECT outcome FROM idem_attach_channel_data('life', 'life_nowhere', '{}');
SELECT outcome FROM idem_attach_channel_data('life', 'life_pending', NULL);
SELECT outcome FROM idem_attach_channel_data('life', '', '{}');
SELECT outcome FROM idem_begin_close('life', 'life_nowhere');
SELECT outcome FROM idem_begin_close('life', NULL);
SELECT outcome FROM idem_begin_close('life', '');
SELECT outcome FROM idem_finish_close('life', 'life_nowhere', 'closed');
SELECT outcome FROM idem_finish_close('life', 'life_closing', NULL);
SELECT outcome FROM idem_finish_close('life', 'life_closing', 'gone');
SELECT outcome FROM idem_finish_close('life', '', 'closed');
SELECT outcome FROM idem_close_payment('life', 'life_nowhere');
SELECT outcome FROM idem_close_payment('life', '');
SELECT outcome FROM idem_cancel_request_key('life', NULL);
SELECT outcome FROM idem_cancel_request_key('life', '');
SELECT outcome FROM idem_cancel_request_key('life', repeat('x', 256));
SELECT outcome FROM idem_fail_payment('life', NULL);
SELECT outcome FROM idem_fail_payment('life', repeat('x', 256));
SELECT payment_no FROM idem_get_payment('life', '');
SELECT payment_no FROM idem_find_payment('life', NULL);
\set VERBOSITY default
SELECT outcome FROM idem_begin_close('life', 'life_nowhere');
SELECT outcome FROM idem_finish_close('life', 'life_closing', 'gone');

-- Keys are bytes: 255 of them fit, whatever they mean.
SELECT * FROM idem_cancel_request_key('life', repeat('钥', 85));
SELECT outcome FROM idem_submit_payment('life', 'life_pending', repeat('道', 85));
SELECT octet_length(channel) AS bytes FROM idem_get_payment('life', 'life_pending');

-- Nothing is broken.
SELECT * FROM idem_verify() WHERE tenant_id = 'life';
