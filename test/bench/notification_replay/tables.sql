-- Notifications that came before, here and there alike.
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, channel, created_at, expires_at)
SELECT 'again', 'pay-' || i, 'order-' || i, 1, 9900, 'CNY', 'pending', 'alipay', now(), now() + interval '30 minutes'
FROM generate_series(1, 20000) i;
SELECT count(outcome) FROM generate_series(1, 20000) i,
	idem_receive_notification('again', 'alipay', 'notify-' || i, 'pay-' || i, 'trade-' || i, 'TRADE_SUCCESS', 9900, 'CNY');
CREATE TABLE peer.heard (LIKE idem_notification INCLUDING ALL);
INSERT INTO peer.heard SELECT * FROM idem_notification WHERE tenant_id = 'again';
