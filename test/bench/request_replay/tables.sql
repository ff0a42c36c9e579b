-- Requests that were completed before, as many as there are payments, here and there.
SELECT attempt AS done_attempt FROM idem_begin_request('bench', 'done', 'done-0', '{"order_id": "o-12345678", "amount": 9900, "currency": "CNY", "channel": "alipay"}') \gset
SELECT idem_complete_request('bench', 'done', 'done-0', :done_attempt, '{"payment_no": "2026112900001234567", "status": "pending", "qr_code": "https://qr.alipay.com/bax0123456789abcdef"}', 201);
INSERT INTO idem_request SELECT tenant_id, scope, 'done-' || i, status, nextval('idem_attempt'), fingerprint, fingerprint_version,
	worker, on_expiry, first_at, lease_until, expires_at, recovery_point, recovery_state, response_status, response
FROM idem_request, generate_series(1, :payments) i WHERE tenant_id = 'bench' AND scope = 'done' AND key = 'done-0';
CREATE TABLE peer.request_done (LIKE idem_request INCLUDING ALL);
INSERT INTO peer.request_done SELECT * FROM idem_request WHERE tenant_id = 'bench' AND scope = 'done';
