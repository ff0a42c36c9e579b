\set n :n + 1
BEGIN;
INSERT INTO peer.request (tenant_id, scope, key, status, fingerprint, fingerprint_version, on_expiry, first_at, lease_until, expires_at) VALUES ('bench', 'pay', 'k-' || :round || '-' || :client_id || '-' || :n, 'started', sha256(convert_to('{"order_id": "o-12345678", "amount": 9900, "currency": "CNY", "channel": "alipay"}', 'UTF8')), 1, 'resume', clock_timestamp(), clock_timestamp() + interval '30 seconds', clock_timestamp() + interval '24 hours') ON CONFLICT DO NOTHING RETURNING attempt \gset
UPDATE peer.request SET status = 'completed', response = '{"payment_no": "2026112900001234567", "status": "pending", "qr_code": "https://qr.alipay.com/bax0123456789abcdef"}', response_status = 201 WHERE tenant_id = 'bench' AND scope = 'pay' AND key = 'k-' || :round || '-' || :client_id || '-' || :n AND attempt = :attempt;
COMMIT;
