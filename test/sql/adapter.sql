--
-- adapter: bodies as the channels send them.
--
\set SHOW_CONTEXT never
CREATE TEMP VIEW heard AS
	SELECT tenant_id, channel, account, notify_id, payment_no, trade_no, kind, biz_no, event, amount, currency, refund_amount, refund_currency, channel_refund_no,
		occurred_at AT TIME ZONE 'UTC' AS occurred_at, problem, outcome, ack, hits FROM idem_notification;
CREATE FUNCTION pg_temp.patched(body jsonb, patch jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT body || patch';

--
-- Alipay.
--
SELECT outcome FROM idem_create_payment('adapt_a', 'o', 8888, 'CNY', channel => 'alipay', account => '2088000000000001', payment_no => 'alipay_1');
\set paid '{"notify_time": "2024-05-01 12:00:05", "notify_type": "trade_status_sync", "notify_id": "2024050100222120005", "app_id": "2021000000000001", "charset": "utf-8", "version": "1.0", "sign_type": "RSA2", "sign": "one", "trade_no": "2024050122001400000000000001", "out_trade_no": "alipay_1", "buyer_id": "2088000000000009", "seller_id": "2088000000000001", "trade_status": "TRADE_SUCCESS", "total_amount": "88.88", "receipt_amount": "88.88", "gmt_create": "2024-05-01 11:59:58", "gmt_payment": "2024-05-01 12:00:04"}'
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, tenant_id FROM idem_alipay_notification(:'paid');
-- resent: another notify_time, another signature
SELECT outcome, ack, status, payment_no, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_time": "2024-05-01 12:04:05", "sign": "two"}'));
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"total_amount": "0.01"}'));
SELECT outcome, ack, status FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "n2", "trade_status": "TRADE_FINISHED"}'));
-- a part of it went back: the payment's event, and the sum so far
SELECT outcome, ack, status, receipt_no IS NOT NULL AS receipt FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "n3", "refund_fee": "30.00", "gmt_refund": "2024-05-02 09:00:00.123", "out_biz_no": "console-1"}'));
SELECT outcome, ack, status FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "n4", "refund_fee": "88.88", "gmt_refund": "2024-05-03 09:00:00", "out_biz_no": "console-2", "trade_status": "TRADE_CLOSED"}'));
-- no refund at all
SELECT outcome, ack, status FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "n5", "refund_fee": "0.00"}'));
-- closed for want of a payer
SELECT outcome, ack, status FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "n6", "trade_status": "TRADE_CLOSED", "gmt_payment": null, "gmt_close": "2024-05-01 12:30:00"}'));
SELECT notify_id, account, kind, biz_no, event, amount, currency, refund_amount, refund_currency, occurred_at, outcome, hits FROM heard WHERE tenant_id = 'adapt_a' ORDER BY notify_id;
SELECT refund_no, amount, status, cause FROM idem_refund WHERE tenant_id = 'adapt_a' ORDER BY refund_no;
SELECT amount, refunded FROM idem_receipt WHERE tenant_id = 'adapt_a';

-- Sums are exact, or none.
CREATE TEMP TABLE sums (n int, sum jsonb);
INSERT INTO sums VALUES
	(1, '"88.88"'), (2, '"0.1"'), (3, '"100"'), (4, '"88.880"'), (5, '"88.888"'), (6, '"1e3"'), (7, '" 1"'), (8, '"-0.01"'), (9, '"92233720368547758.07"'), (10, '"92233720368547758.08"'),
	(11, '""'), (12, '"."'), (13, '".5"'), (14, '"+1."'), (15, '88.88'), (16, '0.30000000000000004'), (17, 'true'), (18, '["1"]'), (19, 'null'), (20, '"1.2.3"'), (21, '"1,000.00"'),
	(22, '"-92233720368547758.08"'), (23, '1e3'), (24, '"00000000000000000000000000000000000000001"');
SELECT DISTINCT outcome FROM sums, idem_alipay_notification(jsonb_set(:'paid', '{total_amount}', sum) || jsonb_build_object('notify_id', 'sum-' || n, 'out_trade_no', 'nobody-' || n));
SELECT sum, amount FROM sums LEFT JOIN idem_notification ON notify_id = 'sum-' || n ORDER BY n;
SELECT DISTINCT outcome FROM unnest('{cny,jpy,kwd,KRW,xx}'::text[]) AS c (currency),
	idem_alipay_notification(pg_temp.patched(:'paid', jsonb_build_object('notify_id', 'cur-' || currency, 'out_trade_no', 'nobody', 'total_amount', '12', 'trans_currency', currency)));
SELECT amount, currency FROM idem_notification WHERE notify_id LIKE 'cur-%' ORDER BY currency;
-- And moments.
CREATE TEMP TABLE moments (n int, at text);
INSERT INTO moments VALUES
	(1, '2024-02-29 08:00:00'), (2, '2023-02-29 08:00:00'), (3, '2024-05-01T00:00:00Z'), (4, '2024-05-01T08:00:00+08:00'), (5, '2024-05-01T08:00:00.123456789-0330'), (6, '2024-13-01 00:00:00'),
	(7, '2024-05-01 24:00:00'), (8, '2024-05-01'), (9, 'yesterday'), (10, '2024-05-01 08:00:00 CST'), (11, '0000-01-01 00:00:00'), (12, ''), (13, '2024-05-01 08:00:00.'), (14, '2024-05-01 08:00:00+99:00');
SELECT DISTINCT outcome FROM moments, idem_alipay_notification(pg_temp.patched(:'paid', jsonb_build_object('notify_id', 'at-' || n, 'out_trade_no', 'nobody', 'gmt_payment', at)));
SELECT at, occurred_at AS utc FROM moments LEFT JOIN heard ON notify_id = 'at-' || n ORDER BY n;

-- The account is what the tenant calls so: seller_id or app_id.
SELECT outcome FROM idem_create_payment('adapt_b', 'o', 8888, 'CNY', channel => 'alipay', account => '2021000000000001', payment_no => 'alipay_2');
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "b1", "out_trade_no": "alipay_2", "trade_no": "b"}'));
SELECT account, outcome FROM heard WHERE tenant_id = 'adapt_b';
SELECT outcome FROM idem_set_channel_account('adapt_c', 'alipay', '2021000000000003');
SELECT outcome FROM idem_create_payment('adapt_c', 'o', 8888, 'CNY', payment_no => 'alipay_3');
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "c1", "out_trade_no": "alipay_3", "trade_no": "c", "app_id": "2021000000000003"}'));
SELECT account, outcome FROM heard WHERE tenant_id = 'adapt_c';
-- another merchant's: its tenant hears of it, and rejects it
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "c2", "out_trade_no": "alipay_3", "trade_no": "c2", "app_id": "2021000000000004"}'));
-- by account alone
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "c3", "out_trade_no": "nobody", "trade_no": "c3", "app_id": "2021000000000003"}'));

-- Nobody's: told to come again, and routed when it does.
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "d1", "out_trade_no": "alipay_4", "trade_no": "d"}'));
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "d1", "out_trade_no": "alipay_4", "trade_no": "d"}'));
SELECT outcome FROM idem_create_payment('adapt_d', 'o', 8888, 'CNY', payment_no => 'alipay_4');
SELECT outcome, ack, status, payment_no, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "d1", "out_trade_no": "alipay_4", "trade_no": "d"}'));
SELECT outcome, ack, status, payment_no, tenant_id FROM idem_alipay_notification(pg_temp.patched(:'paid', '{"notify_id": "d1", "out_trade_no": "alipay_4", "trade_no": "d"}'));
SELECT tenant_id, outcome, hits, routed_to FROM idem_notification WHERE notify_id = 'd1' ORDER BY tenant_id;
SELECT kind, status, resolution, hits FROM idem_anomaly WHERE tenant_id = 'unrouted' AND key LIKE '%/d1';

--
-- WeChat Pay v3.
--
SELECT outcome FROM idem_create_payment('adapt_w', 'o', 8888, 'CNY', channel => 'wechat', account => '1900000001', payment_no => 'wechat_1');
\set paid '{"id": "EV-2024050112000500001", "create_time": "2024-05-01T12:00:05+08:00", "resource_type": "encrypt-resource", "event_type": "TRANSACTION.SUCCESS", "summary": "paid", "resource": {"transaction_id": "4200000000202405010000000001", "amount": {"payer_total": 8888, "total": 8888, "currency": "CNY", "payer_currency": "CNY"}, "mchid": "1900000001", "trade_state": "SUCCESS", "bank_type": "OTHERS", "success_time": "2024-05-01T12:00:04+08:00", "payer": {"openid": "o0000000000000000000000000001"}, "out_trade_no": "wechat_1", "appid": "wx0000000000000001", "trade_state_desc": "paid", "trade_type": "JSAPI"}}'
\set refund '{"id": "EV-2024050212000500002", "create_time": "2024-05-02T12:00:05+08:00", "resource_type": "encrypt-resource", "event_type": "REFUND.SUCCESS", "summary": "refunded", "resource": {"mchid": "1900000001", "out_trade_no": "wechat_1", "transaction_id": "4200000000202405010000000001", "out_refund_no": "console-1", "refund_id": "50000000000000000000000000001", "refund_status": "SUCCESS", "success_time": "2024-05-02T12:00:04+08:00", "amount": {"total": 8888, "refund": 3000, "payer_total": 8888, "payer_refund": 3000}}}'
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, tenant_id FROM idem_wechat_notification(:'paid');
SELECT outcome, ack, status, payment_no, tenant_id FROM idem_wechat_notification(:'paid');
SELECT outcome, ack, status, receipt_no IS NOT NULL AS receipt, tenant_id FROM idem_wechat_notification(:'refund');
SELECT outcome, ack, status, tenant_id FROM idem_wechat_notification(:'refund');
SELECT outcome, ack, status FROM idem_wechat_notification(pg_temp.patched(:'refund', '{"id": "EV-3", "event_type": "REFUND.CLOSED"}'));
SELECT outcome, ack, status FROM idem_wechat_notification(pg_temp.patched(:'refund', '{"id": "EV-4", "event_type": "REFUND.ABNORMAL"}'));
-- the state in the resource is what counts
SELECT outcome, ack FROM idem_wechat_notification(jsonb_set(pg_temp.patched(:'paid', '{"id": "EV-5"}'), '{resource,trade_state}', '"NOTPAY"'));
SELECT outcome, ack, status FROM idem_wechat_notification(jsonb_set(pg_temp.patched(:'paid', '{"id": "EV-6"}'), '{resource,trade_state}', '"PAYERROR"'));
SELECT outcome, ack, status FROM idem_wechat_notification(jsonb_set(pg_temp.patched(:'paid', '{"id": "EV-7"}'), '{resource,trade_state}', '"CLOSED"'));
SELECT outcome, ack FROM idem_wechat_notification(pg_temp.patched(:'paid', '{"id": "EV-8", "event_type": "COUPON.USE"}'));
-- the resource alone
SELECT outcome, ack, status FROM idem_wechat_notification(:'paid'::jsonb->'resource');
SELECT outcome, ack, status FROM idem_wechat_notification(:'refund'::jsonb->'resource');
-- sums are whole fen
SELECT outcome, ack, status FROM idem_wechat_notification(jsonb_set(pg_temp.patched(:'paid', '{"id": "EV-9"}'), '{resource,amount}', '{"total": 88.88}'));
SELECT CASE WHEN notify_id LIKE 'sha256:%' THEN 'digest' ELSE notify_id END AS notify_id, account, kind, biz_no, event, amount, currency, refund_amount, refund_currency, channel_refund_no, occurred_at, outcome, hits
FROM heard WHERE tenant_id = 'adapt_w' ORDER BY 1, event;

--
-- Stripe.
--
SELECT outcome FROM idem_create_payment('adapt_s', 'o', 8888, 'USD', channel => 'stripe', payment_no => 'stripe_1');
\set paid '{"id": "evt_000000000000000000000001", "object": "event", "api_version": "2024-04-10", "created": 1714536004, "livemode": true, "pending_webhooks": 2, "request": {"id": null, "idempotency_key": null}, "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_000000000000000000000001", "object": "payment_intent", "amount": 8888, "amount_received": 8888, "currency": "usd", "created": 1714535990, "latest_charge": "ch_000000000000000000000001", "metadata": {"payment_no": "stripe_1"}, "status": "succeeded"}}}'
\set charge '{"id": "evt_000000000000000000000002", "object": "event", "created": 1714622404, "pending_webhooks": 1, "type": "charge.refunded", "data": {"object": {"id": "ch_000000000000000000000001", "object": "charge", "amount": 8888, "amount_captured": 8888, "amount_refunded": 3000, "currency": "usd", "metadata": {"payment_no": "stripe_1"}, "payment_intent": "pi_000000000000000000000001", "refunded": false, "status": "succeeded"}, "previous_attributes": {"amount_refunded": 0}}}'
\set refund '{"id": "evt_000000000000000000000003", "object": "event", "created": 1714708805, "pending_webhooks": 1, "type": "refund.updated", "data": {"object": {"id": "re_000000000000000000000002", "object": "refund", "amount": 2000, "charge": "ch_000000000000000000000001", "created": 1714708800, "currency": "usd", "metadata": {}, "payment_intent": "pi_000000000000000000000001", "reason": null, "status": "succeeded"}}}'
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, tenant_id FROM idem_stripe_event(:'paid');
SELECT outcome, ack, status, payment_no, tenant_id FROM idem_stripe_event(pg_temp.patched(:'paid', '{"pending_webhooks": 1}'));
SELECT outcome, ack FROM idem_stripe_event(pg_temp.patched(:'paid', '{"id": "evt_9", "type": "payment_intent.payment_failed"}'));
SELECT outcome, ack, status FROM idem_stripe_event(pg_temp.patched(:'paid', '{"id": "evt_8", "type": "payment_intent.canceled"}'));
SELECT outcome, ack, status, receipt_no IS NOT NULL AS receipt, tenant_id FROM idem_stripe_event(:'charge');
-- without metadata only a connected account leads to the tenant
SELECT outcome, ack, tenant_id FROM idem_stripe_event(:'refund');
SELECT outcome FROM idem_set_channel_account('adapt_s', 'stripe', 'acct_0000000000000001');
SELECT outcome, ack, status, tenant_id FROM idem_stripe_event(pg_temp.patched(:'refund', '{"account": "acct_0000000000000001"}'));
SELECT outcome, ack, status FROM idem_stripe_event(jsonb_set(pg_temp.patched(:'refund', '{"id": "evt_7", "account": "acct_0000000000000001"}'), '{data,object,status}', '"pending"'));
SELECT refund_no, channel_refund_no, amount, status, cause FROM idem_refund WHERE tenant_id = 'adapt_s' AND refund_no LIKE 'Cre%';
SELECT amount, refunded FROM idem_receipt WHERE tenant_id = 'adapt_s';
SELECT notify_id, account, payment_no, trade_no, kind, biz_no, event, amount, currency, refund_amount, refund_currency, channel_refund_no, occurred_at, outcome, hits FROM heard WHERE tenant_id = 'adapt_s' ORDER BY notify_id;

--
-- What cannot be read is recorded, never raised, and leaves its id to what can.
--
SELECT n, a.outcome, a.ack, w.outcome, w.ack, s.outcome, s.ack, s.tenant_id
FROM (VALUES (1, NULL), (2, 'null'), (3, '1'), (4, '"x"'), (5, '[]'), (6, '[{}]'), (7, '{}'), (8, '{"id": "unread", "notify_id": "unread", "resource": 1, "data": 1}'), (9, '{"resource": {}, "data": {"object": []}}')) AS v (n, body),
	idem_alipay_notification(body::jsonb) AS a, idem_wechat_notification(body::jsonb) AS w, idem_stripe_event(body::jsonb) AS s ORDER BY n;
SELECT outcome, ack, tenant_id FROM idem_wechat_notification('{"id": "EV-10", "event_type": "TRANSACTION.SUCCESS", "resource": {"algorithm": "AEAD_AES_256_GCM", "ciphertext": "x", "nonce": "y", "associated_data": "transaction"}}');
SELECT DISTINCT channel, problem, ack FROM heard WHERE problem IS NOT NULL ORDER BY channel, problem;
SELECT DISTINCT kind, entity, status FROM idem_anomaly WHERE tenant_id = 'unrouted' AND detail ? 'problem';
SELECT outcome, ack, tenant_id FROM idem_wechat_notification('{"id": "EV-10", "event_type": "TRANSACTION.SUCCESS", "resource": {"out_trade_no": "wechat_1", "transaction_id": "4200000000202405010000000001", "mchid": "1900000001", "trade_state": "SUCCESS", "amount": {"total": 8888, "currency": "CNY"}}}');
-- nor is anything else that is odd
SELECT outcome, ack, tenant_id FROM idem_alipay_notification(jsonb_build_object('trade_status', repeat('x', 10000), 'out_trade_no', repeat('y', 10000), 'trade_no', 1e30, 'notify_id', true, 'seller_id', '{}'::jsonb));
SELECT outcome, ack, tenant_id FROM idem_stripe_event('{"id": 1, "type": "x", "created": 1e30, "account": "", "data": {"object": {"object": "refund", "amount": -5, "currency": 1, "created": -1, "metadata": []}}}');

SELECT * FROM idem_verify() WHERE tenant_id LIKE 'adapt%' OR tenant_id IN ('unrouted') OR tenant_id IS NULL;
