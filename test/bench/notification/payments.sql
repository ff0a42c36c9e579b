-- Payments of a tenant that wait for their money, numbered from 1.
INSERT INTO :payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, channel, created_at, expires_at)
SELECT :'tenant', 'pay-' || i, 'order-' || i, 1, 9900, 'CNY', 'pending', 'alipay', now(), now() + interval '30 minutes'
FROM generate_series(1, :n) i;
CHECKPOINT;
