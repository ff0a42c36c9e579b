-- Paid payments and their money, here and there alike.
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, channel, created_at)
SELECT 'refund', 'pay-' || i, 'order-' || i, 1, 9900, 'CNY', 'paid', 'alipay', now() FROM generate_series(1, 20000) i;
INSERT INTO idem_receipt (tenant_id, receipt_no, payment_no, order_id, purchase_no, channel, trade_no, reported_payment_no, amount, currency,
	disposition, paid_at, created_at)
SELECT 'refund', 'receipt-' || i, 'pay-' || i, 'order-' || i, 1, 'alipay', 'trade-' || i, 'pay-' || i, 9900, 'CNY', 'applied', now(), now()
FROM generate_series(1, 20000) i;
INSERT INTO peer.payment SELECT * FROM idem_payment WHERE tenant_id = 'refund';
INSERT INTO peer.receipt SELECT * FROM idem_receipt WHERE tenant_id = 'refund';
CREATE TABLE peer.refund (LIKE idem_refund INCLUDING ALL);
