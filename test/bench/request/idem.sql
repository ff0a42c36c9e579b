\set n :n + 1
BEGIN;
SELECT outcome, attempt FROM idem_begin_request('bench', 'pay', 'k-' || :round || '-' || :client_id || '-' || :n, '{"order_id": "o-12345678", "amount": 9900, "currency": "CNY", "channel": "alipay"}') \gset
SELECT outcome FROM idem_complete_request('bench', 'pay', 'k-' || :round || '-' || :client_id || '-' || :n, :attempt, '{"payment_no": "2026112900001234567", "status": "pending", "qr_code": "https://qr.alipay.com/bax0123456789abcdef"}', 201);
COMMIT;
