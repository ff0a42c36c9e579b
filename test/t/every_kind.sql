-- Orders, payments, receipts, refunds and anomalies in every state that calls
-- of the API lead to.  Each call carries a key or a number of its own, so that
-- a second run repeats every call and changes nothing.

-- paid, shipped, completed
SELECT outcome FROM idem_create_order('kinds', 'done', 100, 'CNY', buyer_id => 'b-1', metadata => '{"cart": [1, 2]}');
SELECT outcome FROM idem_create_payment('kinds', 'done', 100, 'CNY', 'key-done', channel => 'alipay', payment_no => 'pay-done');
SELECT outcome FROM idem_attach_channel_data('kinds', 'pay-done', '{"qr": "https://qr.example/1"}');
SELECT outcome FROM idem_submit_payment('kinds', 'pay-done', 'alipay');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-done', 'alipay', 'trade-done', 100, 'CNY');
SELECT outcome FROM idem_ship_order('kinds', 'done');
SELECT outcome FROM idem_complete_order('kinds', 'done');

-- still to be paid, with a channel's data and a second key bound to it
SELECT outcome FROM idem_create_payment('kinds', 'waiting', 250, 'EUR', 'key-waiting', channel => 'stripe', expires_in => '1 year', payment_no => 'pay-waiting');
SELECT outcome FROM idem_create_payment('kinds', 'waiting', 250, 'EUR', 'key-waiting-2', channel => 'stripe');

-- bought twice
SELECT outcome FROM idem_create_payment('kinds', 'twice', 70, 'CNY', 'key-twice-1', payment_no => 'pay-twice-1');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-twice-1', 'wechat', 'trade-twice-1', 70, 'CNY');
SELECT outcome FROM idem_create_payment('kinds', 'twice', 70, 'CNY', 'key-twice-2', repurchase => true, payment_no => 'pay-twice-2');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-twice-2', 'wechat', 'trade-twice-2', 70, 'CNY');

-- closing, closed, failed
SELECT outcome FROM idem_create_payment('kinds', 'closing', 30, 'CNY', 'key-closing', channel => 'alipay', payment_no => 'pay-closing');
SELECT outcome FROM idem_submit_payment('kinds', 'pay-closing', 'alipay');
SELECT outcome FROM idem_begin_close('kinds', 'pay-closing', 'the customer changed her mind');
SELECT outcome FROM idem_create_payment('kinds', 'closed', 30, 'CNY', 'key-closed', payment_no => 'pay-closed');
SELECT outcome FROM idem_close_payment('kinds', 'pay-closed');
SELECT outcome FROM idem_create_payment('kinds', 'failed', 30, 'CNY', 'key-failed', payment_no => 'pay-failed');
SELECT outcome FROM idem_fail_payment('kinds', 'pay-failed', 'card declined');

-- one more trade on a paid payment: surplus, to be refunded
SELECT outcome FROM idem_create_payment('kinds', 'surplus', 80, 'CNY', 'key-surplus', payment_no => 'pay-surplus');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-surplus', 'alipay', 'trade-surplus-1', 80, 'CNY');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-surplus', 'alipay', 'trade-surplus-2', 80, 'CNY');

-- money for a cancelled order: late, to be refunded
SELECT outcome FROM idem_create_order('kinds', 'late', 90, 'CNY');
SELECT outcome FROM idem_create_payment('kinds', 'late', 90, 'CNY', 'key-late', payment_no => 'pay-late');
SELECT outcome FROM idem_cancel_order('kinds', 'late', 'out of stock');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-late', 'alipay', 'trade-late', 90, 'CNY');

-- a paid order cancelled: refunded in full
SELECT outcome FROM idem_create_order('kinds', 'cancelled', 60, 'CNY');
SELECT outcome FROM idem_create_payment('kinds', 'cancelled', 60, 'CNY', 'key-cancelled', payment_no => 'pay-cancelled');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-cancelled', 'alipay', 'trade-cancelled', 60, 'CNY');
SELECT outcome FROM idem_cancel_order('kinds', 'cancelled', 'the customer asked');

-- the wrong amount: in review; and one that was decided
SELECT outcome FROM idem_create_payment('kinds', 'review', 40, 'CNY', 'key-review', payment_no => 'pay-review');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-review', 'alipay', 'trade-review', 39, 'CNY');
SELECT outcome FROM idem_create_payment('kinds', 'decided', 40, 'CNY', 'key-decided', payment_no => 'pay-decided');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-decided', 'alipay', 'trade-decided', 41, 'CNY');
SELECT outcome FROM idem_resolve_review('kinds', 'pay-decided', 'accept', 'one cent is fine');

-- money for nothing we know, a burned key, an order that costs nothing
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-of-nobody', 'alipay', 'trade-orphan', 10, 'CNY');
SELECT outcome FROM idem_cancel_request_key('kinds', 'key-burned', 'never heard of it again');
SELECT outcome FROM idem_create_order('kinds', 'free', 0, 'CNY');

-- refunds in every state, of one receipt; the order that they refund
SELECT outcome FROM idem_create_payment('kinds', 'refunds', 1000, 'CNY', 'key-refunds', payment_no => 'pay-refunds');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-refunds', 'alipay', 'trade-refunds', 1000, 'CNY');
SELECT outcome FROM unnest('{requested,processing,succeeded,failed,closed,abnormal,cancelled,reversed}'::text[]) s, idem_request_refund('kinds', 'pay-refunds', 'refund-' || s, 10, 'CNY', s);
SELECT outcome FROM unnest('{processing,succeeded,failed,closed,abnormal,reversed}'::text[]) s, idem_submit_refund('kinds', 'refund-' || s);
SELECT outcome FROM unnest('{succeeded,failed,closed,abnormal}'::text[]) s, idem_settle_refund('kinds', 'refund-' || s, s, 'channel-' || s, 10, '2024-01-01 12:00 UTC');
SELECT outcome FROM idem_settle_refund('kinds', 'refund-reversed', 'succeeded', 'channel-reversed');
SELECT outcome FROM idem_settle_refund('kinds', 'refund-reversed', 'reversed');
SELECT outcome FROM idem_cancel_refund('kinds', 'refund-cancelled');
SELECT outcome FROM idem_settle_refund('kinds', NULL, 'succeeded', 'channel-console', 10, payment_no => 'pay-refunds');
SELECT outcome FROM idem_create_order('kinds', 'refunded', 50, 'CNY');
SELECT outcome FROM idem_create_payment('kinds', 'refunded', 50, 'CNY', 'key-refunded', payment_no => 'pay-refunded');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-refunded', 'alipay', 'trade-refunded', 50, 'CNY');
SELECT outcome FROM idem_ship_order('kinds', 'refunded');
SELECT outcome FROM idem_request_refund('kinds', 'pay-refunded', 'refund-all', 50, 'CNY');
SELECT outcome FROM idem_settle_refund('kinds', 'refund-all', 'succeeded');

-- one that the brake holds, more than there was, and disputes at every stage
INSERT INTO idem_channel_account (tenant_id, channel, account, auto_refund) VALUES ('kinds', 'bank', 'slow', 'hold') ON CONFLICT DO NOTHING;
SELECT outcome FROM idem_create_payment('kinds', 'held', 20, 'CNY', 'key-held', payment_no => 'pay-held', channel => 'bank', account => 'slow');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-held', 'bank', 'trade-held-1', 20, 'CNY');
SELECT outcome FROM idem_confirm_payment('kinds', 'pay-held', 'bank', 'trade-held-2', 20, 'CNY');
SELECT outcome FROM idem_settle_refund('kinds', 'refund-over', 'succeeded', amount => 21, payment_no => 'pay-held', trade_no => 'trade-held-1');
SELECT outcome FROM unnest('{opened,won,lost}'::text[]) s, idem_record_dispute('kinds', 'alipay', '', 'trade-refunds', 'dispute-' || s, s, 5, 'CNY', '2024-01-01 12:00 UTC');
SELECT outcome FROM idem_record_dispute('kinds', 'alipay', '', 'trade-of-nobody', 'dispute-orphan', 'opened', 5, 'CNY');

-- requests: answered, failed for good, free again, in work, left behind
SELECT outcome, response_status, response FROM idem_begin_request('kinds', 'shop', 'done', '{"n": 1}', ttl => '10 years');
SELECT c.outcome FROM idem_request r, idem_complete_request(tenant_id, scope, key, attempt, '{"id" : 7}', 201) c WHERE tenant_id = 'kinds' AND key = 'done';
SELECT outcome, response_status, response FROM idem_begin_request('kinds', 'shop', 'bad', '{"n": -1}', ttl => '10 years');
SELECT c.outcome FROM idem_request r, idem_fail_request(tenant_id, scope, key, attempt, '{"error": "n"}', 422, false) c WHERE tenant_id = 'kinds' AND key = 'bad';
SELECT b.outcome FROM (SELECT WHERE NOT EXISTS (SELECT FROM idem_request WHERE tenant_id = 'kinds' AND key = 'free')) n, idem_begin_request('kinds', 'shop', 'free') b;
SELECT c.outcome FROM idem_request r, idem_fail_request(tenant_id, scope, key, attempt) c WHERE tenant_id = 'kinds' AND key = 'free';
SELECT outcome FROM idem_begin_request('kinds', 'shop', 'work', lease => '10 years');
SELECT c.outcome FROM idem_request r, idem_checkpoint_request(tenant_id, scope, key, attempt, 'sent', '{"to": "bank"}') c WHERE tenant_id = 'kinds' AND key = 'work';
SELECT outcome FROM idem_begin_request('kinds', 'shop', 'left', lease => '1 microsecond', on_expiry => 'unknown');

-- what channels told: paid, again, tampered with, of nobody's payment, unmapped, unrouted and routed, unreadable; and what we call things
SELECT outcome FROM idem_set_channel_event('till', 'sold', false, 'paid');
SELECT outcome FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'none');
SELECT outcome FROM idem_set_channel_account('kinds', 'till', 'till-1', 'hold');
SELECT outcome FROM idem_create_payment('kinds', 'told', 70, 'CNY', 'key-told', payment_no => 'pay-told');
SELECT outcome FROM idem_receive_notification('kinds', 'till', 'told-1', 'pay-told', 'trade-told', 'sold', 70, 'CNY', 'till-1', payload => '{"sold": true}');
SELECT outcome FROM idem_receive_notification('kinds', 'till', 'told-2', 'pay-told', 'trade-told', 'sold', 70, 'CNY', 'till-1');
SELECT outcome FROM idem_receive_notification('kinds', 'till', 'told-1', 'pay-told', 'trade-told', 'sold', 7, 'CNY', 'till-1');
SELECT outcome FROM idem_receive_notification('kinds', 'till', 'told-3', 'pay-untold', 'trade-untold', 'sold', 70, 'CNY', 'till-1');
SELECT outcome FROM idem_receive_notification('kinds', 'till', 'told-4', 'pay-told', 'trade-told', 'stolen', 70, 'CNY', 'till-1');
SELECT outcome FROM idem_receive_notification('kinds', 'alipay', 'told-5', 'pay-told', 'trade-told', 'TRADE_FINISHED', 70, 'CNY');
SELECT outcome FROM idem_receive_notification('unrouted', 'till', 'told-6', 'pay-told', 'trade-told', 'sold', 70, 'CNY', 'till-1');
SELECT outcome FROM idem_reroute_notification('till', 'till-1', 'told-6', 'kinds');
SELECT outcome, tenant_id FROM idem_stripe_event('{"id": "told-7", "type": "payment_intent.succeeded", "data": {"object": {"object": "payment_intent"}}}');
SELECT outcome, tenant_id FROM idem_wechat_notification('{"id": "told-8"}');

-- granted for money, of a campaign, for nothing; revoked in part and in full
SELECT outcome FROM idem_set_campaign('kinds', 'spring', 10, 5);
SELECT outcome, quantity FROM idem_grant_entitlement('kinds', 'grant-done', 'ann', 'points', 3, 'pay-done', 'spring');
SELECT outcome, quantity FROM idem_grant_entitlement('kinds', 'grant-free', 'ann', 'points', 3, free => true);
SELECT outcome, quantity FROM idem_grant_entitlement('kinds', 'grant-gone', 'bob', 'points', 3, campaign => 'spring');
SELECT outcome, remaining FROM idem_revoke_entitlement('kinds', 'grant-free', 'by-hand', 1);

-- a hook that fails
SELECT outcome FROM idem_set_hook('entitlement', 'revoked', 'pg_catalog.jsonb_array_length(jsonb)');
SELECT outcome, remaining FROM idem_revoke_entitlement('kinds', 'grant-gone', 'by-hand');
