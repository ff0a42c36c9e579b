-- What idem is measured against: the same tables without idem, with the same
-- columns, checks and indexes, and the statements that people write by hand.

CREATE SCHEMA peer;
CREATE TABLE peer.payment (LIKE idem_payment INCLUDING ALL);
CREATE TABLE peer.history (LIKE idem_history INCLUDING ALL);
CREATE TABLE peer.outbox (LIKE idem_outbox INCLUDING ALL);
CREATE SEQUENCE peer.outbox_seq;
ALTER TABLE peer.outbox ALTER seq SET DEFAULT nextval('peer.outbox_seq'), ALTER xid SET DEFAULT pg_current_xact_id(),
	ALTER slot SET DEFAULT 0;
CREATE SEQUENCE peer.payment_no CACHE 32;
CREATE TABLE peer.receipt (LIKE idem_receipt INCLUDING ALL);
CREATE SEQUENCE peer.receipt_no CACHE 32;

-- Payments that were there before, here and there alike.
INSERT INTO peer.payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, request_key, created_at, expires_at)
SELECT 'read', (10 ^ 15 + i)::bigint, 'read-' || i, 1, 9900, 'CNY', 'pending', 'read-' || i, now(), now() + interval '1 day'
FROM generate_series(1, :payments) i;
INSERT INTO idem_payment SELECT * FROM peer.payment;
