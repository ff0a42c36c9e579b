-- idem_verify(): silent on sound books, and each planted fault is named.
\set SHOW_CONTEXT never
\set QUIET on

/*
 * The scene: rows of the owner, in states that the functions would have led
 * to.  An order paid and bought again, one that is free, one open, one
 * refunded, one cancelled and paid too late; a payment in review, one closed;
 * money that nobody knows.
 */
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at, refunded_from) VALUES
	('verify', 'order-paid', 'paid', 100, 'CNY', now(), NULL),
	('verify', 'order-free', 'completed', 0, 'CNY', now(), NULL),
	('verify', 'order-open', 'pending', 100, 'CNY', now(), NULL),
	('verify', 'order-back', 'refunded', 100, 'CNY', now(), 'paid'),
	('verify', 'order-late', 'cancelled', 100, 'CNY', now(), NULL);
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, version, request_key, channel, created_at) VALUES
	('verify', 'pay-paid', 'order-paid', 1, 100, 'CNY', 'paid', 2, 'key-paid', 'alipay', now()),
	('verify', 'pay-more', 'order-paid', 2, 100, 'CNY', 'closing', 1, NULL, 'alipay', now()),
	('verify', 'pay-open', 'order-open', 1, 100, 'CNY', 'pending', 1, NULL, 'alipay', now()),
	('verify', 'pay-back', 'order-back', 1, 100, 'CNY', 'paid', 1, NULL, 'alipay', now()),
	('verify', 'pay-late', 'order-late', 1, 100, 'CNY', 'paid_late', 1, NULL, 'alipay', now()),
	('verify', 'pay-odd', 'order-odd', 1, 100, 'CNY', 'review', 1, NULL, 'alipay', now()),
	('verify', 'pay-closed', 'order-odd-2', 1, 100, 'CNY', 'closed', 1, NULL, 'alipay', now());
INSERT INTO idem_payment_key (tenant_id, request_key, payment_no, created_at) VALUES
	('verify', 'key-bound', 'pay-paid', now()),
	('verify', 'key-burned', NULL, now());
INSERT INTO idem_receipt (tenant_id, receipt_no, payment_no, order_id, purchase_no, channel, trade_no, reported_payment_no, amount, currency, disposition, refund_reserved, refunded, disputed, excess, created_at) VALUES
	('verify', '9001', 'pay-paid', 'order-paid', 1, 'alipay', 'verify-1', 'pay-paid', 100, 'CNY', 'applied', 0, 0, 30, 0, now()),
	('verify', '9002', 'pay-back', 'order-back', 1, 'alipay', 'verify-2', 'pay-back', 100, 'CNY', 'applied', 100, 100, 20, 20, now()),
	('verify', '9003', 'pay-late', 'order-late', 1, 'alipay', 'verify-3', 'pay-late', 100, 'CNY', 'late', 100, 0, 0, 0, now()),
	('verify', '9004', 'pay-odd', 'order-odd', 1, 'alipay', 'verify-4', 'pay-odd', 99, 'CNY', 'mismatch', 0, 0, 0, 0, now()),
	('verify', '9005', NULL, NULL, NULL, 'alipay', 'verify-5', 'pay-unknown', 100, 'CNY', 'orphan', 0, 0, 0, 0, now());
INSERT INTO idem_refund (tenant_id, refund_no, receipt_no, payment_no, order_id, purchase_no, channel, amount, currency, status, cause, held, created_at) VALUES
	('verify', 'back-1', '9002', 'pay-back', 'order-back', 1, 'alipay', 60, 'CNY', 'succeeded', 'request', false, now()),
	('verify', 'back-2', '9002', 'pay-back', 'order-back', 1, 'alipay', 40, 'CNY', 'succeeded', 'request', false, now()),
	('verify', 'back-0', '9002', 'pay-back', 'order-back', 1, 'alipay', 100, 'CNY', 'failed', 'request', false, now()),
	('verify', 'A9003', '9003', 'pay-late', 'order-late', 1, 'alipay', 100, 'CNY', 'requested', 'late', true, now());
INSERT INTO idem_dispute (tenant_id, channel, account, dispute_no, trade_no, receipt_no, payment_no, order_id, purchase_no, stage, amount, currency, created_at) VALUES
	('verify', 'alipay', '', 'dispute-1', 'verify-1', '9001', 'pay-paid', 'order-paid', 1, 'opened', 30, 'CNY', now()),
	('verify', 'alipay', '', 'dispute-2', 'verify-2', '9002', 'pay-back', 'order-back', 1, 'lost', 20, 'CNY', now()),
	('verify', 'alipay', '', 'dispute-3', 'verify-2', '9002', 'pay-back', 'order-back', 1, 'won', 50, 'CNY', now()),
	('verify', 'alipay', '', 'dispute-0', 'verify-0', NULL, NULL, NULL, NULL, 'opened', 100, 'CNY', now());
INSERT INTO idem_anomaly (tenant_id, anomaly_no, kind, entity, key, status, opened_at, last_hit_at) VALUES
	('verify', 'anomaly-4', 'mismatch', 'receipt', '9004', 'opened', now(), now()),
	('verify', 'anomaly-5', 'orphan', 'receipt', '9005', 'opened', now(), now());
INSERT INTO idem_outbox (id, tenant_id, aggregatetype, aggregateid, type, payload, created_at) VALUES
	('00000000-0000-0000-0000-00000000ef01', 'verify', 'order', 'order-paid', 'payment.pending', '{}', now() - interval '1 second'),
	('00000000-0000-0000-0000-00000000ef02', 'verify', 'order', 'order-paid', 'payment.paid', '{}', now()),
	('00000000-0000-0000-0000-00000000ef03', 'verify', 'shop', '1', 'shop.opened', '{}', now());
INSERT INTO idem_history (tenant_id, entity, key, version, from_state, to_state, event, session_role, event_id, at) VALUES
	('verify', 'payment', 'pay-paid', 1, NULL, 'pending', 'create', 'x', '00000000-0000-0000-0000-00000000ef01', now() - interval '1 second'),
	('verify', 'payment', 'pay-paid', 2, 'pending', 'paid', 'pay', 'x', '00000000-0000-0000-0000-00000000ef02', now());
INSERT INTO idem_notification (tenant_id, channel, notify_id, trade_no, kind, digest, outcome, ack, routed_to, received_at, last_hit_at) VALUES
	('verify', 'alipay', 'n1', 'verify-1', 'paid', '', 'paid', true, NULL, now(), now()),
	('verify', 'alipay', 'n2', 'verify-9', 'paid', '', 'rejected', true, NULL, now(), now()),
	('verify', 'alipay', 'n3', 'verify-9', 'closed', '', 'closed', true, 'verify_2', now(), now()),
	('verify_2', 'alipay', 'n3', 'verify-9', 'closed', '', 'closed', true, NULL, now(), now());
INSERT INTO idem_request (tenant_id, scope, key, status, attempt, fingerprint_version, on_expiry, first_at, lease_until, expires_at, response_status, response) VALUES
	('verify', 'shop', 'begun', 'started', 1, 1, 'unknown', now(), now(), now(), NULL, NULL),
	('verify', 'shop', 'done', 'completed', 1, 1, 'resume', now(), now(), now(), 204, NULL),
	('verify', 'shop', 'free', 'released', 1, 1, 'resume', now(), now(), now(), NULL, NULL);

INSERT INTO idem_campaign (tenant_id, campaign, total, per_user, granted, ceiling, created_at) VALUES
	('verify', 'sale', 5, 4, 3, 5, now());
INSERT INTO idem_campaign_user (tenant_id, campaign, user_id, granted, ceiling) VALUES ('verify', 'sale', 'ann', 3, 4);
INSERT INTO idem_entitlement (tenant_id, grant_key, user_id, benefit, quantity, withheld, revoked, status, payment_no, receipt_no, order_id, purchase_no, campaign, on_refund, free, granted_at) VALUES
	('verify', 'grant-paid', 'ann', 'points', 5, 1, 1, 'partly_revoked', 'pay-paid', '9001', 'order-paid', 1, 'sale', 'proportional', false, now()),
	('verify', 'grant-back', 'ann', 'points', 5, 0, 5, 'revoked', 'pay-back', '9002', 'order-back', 1, NULL, 'proportional', false, now()),
	('verify', 'grant-none', 'ann', 'points', 5, 0, 0, 'granted', 'pay-back', '9002', 'order-back', 1, NULL, 'none', false, now()),
	('verify', 'grant-free', 'ann', 'points', 5, 0, 0, 'granted', NULL, NULL, NULL, NULL, NULL, 'full', true, now());
INSERT INTO idem_revocation (tenant_id, grant_key, revoke_no, asked, quantity, by_refund, created_at) VALUES
	('verify', 'grant-paid', 'by-hand', 1, 1, false, now()),
	('verify', 'grant-back', 'back-1', NULL, 3, true, now()),
	('verify', 'grant-back', 'back-2', NULL, 2, true, now());
INSERT INTO idem_hook (entity, to_state, function, role, on_error) VALUES ('entitlement', 'revoked', 'pg_catalog.jsonb_array_length(jsonb)', session_user, 'record');

INSERT INTO idem_subscription (subscription, slots, start, created_at) VALUES ('verify', 2, 'now', now());
INSERT INTO idem_position (subscription, slot, gen, side, cluster, lo, lo_seq, pos, deliveries, at)
	SELECT 'verify', slot, 1, 0, system_identifier, '10:10:', 1, 1, 0, now() FROM pg_control_system(), generate_series(0, 1) AS slot;
INSERT INTO idem_parked_event (subscription, seq, slot, id, tenant_id, aggregatetype, aggregateid, type, payload, created_at, attempts, next_at, parked_at) VALUES
	('verify', 1, 0, '00000000-0000-0000-0000-00000000ef11', 'verify', 'shop', '1', 'shop.opened', '{}', now(), 1, now(), now()),
	('verify', 2, 0, '00000000-0000-0000-0000-00000000ef12', 'verify', 'shop', '1', 'shop.closed', '{}', now(), 0, NULL, now());
INSERT INTO idem_dead_event (subscription, seq, slot, id, tenant_id, aggregatetype, aggregateid, type, payload, created_at, attempts, dead_at) VALUES
	('verify', 3, 1, '00000000-0000-0000-0000-00000000ef13', 'verify', 'shop', '2', 'shop.opened', '{}', now(), 3, now());

SELECT * FROM idem_verify() WHERE tenant_id = 'verify' OR tenant_id IS NULL;

/*
 * Plant a fault past every trigger, return what the checker says, undo it.
 */
CREATE FUNCTION pg_temp.plant(fault text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET session_replication_role = replica AS $$
BEGIN
	EXECUTE fault;
END $$;
CREATE FUNCTION pg_temp.broken_by(fault text) RETURNS TABLE (invariant text, entity text, key text, detail text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	found jsonb;
BEGIN
	BEGIN
		PERFORM pg_temp.plant(fault);
		SELECT coalesce(jsonb_agg(to_jsonb(v)), '[]') INTO found
			FROM idem_verify() v WHERE v.tenant_id = 'verify' OR v.tenant_id IS NULL;
		RAISE EXCEPTION USING ERRCODE = 'ZZ001';
	EXCEPTION WHEN SQLSTATE 'ZZ001' THEN
		NULL;
	END;
	RETURN QUERY SELECT f.* FROM jsonb_to_recordset(found) AS f (invariant text, entity text, key text, detail text)
		ORDER BY 1, 2, 3, 4;
END $$;

-- order_paid_once
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET amount = 1 WHERE tenant_id = 'verify' AND order_id = 'order-free'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET amount = 0 WHERE tenant_id = 'verify' AND order_id = 'order-paid'$$);

-- order_follows_purchase
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'pending' WHERE tenant_id = 'verify' AND order_id = 'order-paid'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'expired' WHERE tenant_id = 'verify' AND order_id = 'order-back'$$);

-- order_refunded_in_full
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'refunded' WHERE tenant_id = 'verify' AND order_id = 'order-paid'$$);

SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'shipped', refunded_from = NULL WHERE tenant_id = 'verify' AND order_id = 'order-back'$$);

-- order_refunded_from
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET refunded_from = NULL WHERE tenant_id = 'verify' AND order_id = 'order-back'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET refunded_from = 'cancelled' WHERE tenant_id = 'verify' AND order_id = 'order-back'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET refunded_from = 'paid' WHERE tenant_id = 'verify' AND order_id = 'order-paid'$$);

-- one_active_payment (its index has to go first, which is noticed)
SELECT * FROM pg_temp.broken_by($$DROP INDEX idem_payment_active;
	UPDATE idem_payment SET status = 'closing', order_id = 'order-open' WHERE tenant_id = 'verify' AND payment_no = 'pay-closed'$$);

-- payment_paid_once
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'paid' WHERE tenant_id = 'verify' AND payment_no = 'pay-late'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET disposition = 'applied' WHERE tenant_id = 'verify' AND receipt_no = '9003'$$);

-- payment_shows_money
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'closed' WHERE tenant_id = 'verify' AND payment_no = 'pay-late'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'failed' WHERE tenant_id = 'verify' AND payment_no = 'pay-odd'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'paid_late' WHERE tenant_id = 'verify' AND payment_no = 'pay-open'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'review' WHERE tenant_id = 'verify' AND payment_no = 'pay-open'$$);

-- payment_still_payable
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'cancelled' WHERE tenant_id = 'verify' AND order_id = 'order-open'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'expired' WHERE tenant_id = 'verify' AND order_id = 'order-open'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'pending', purchase_no = 1 WHERE tenant_id = 'verify' AND payment_no = 'pay-more'$$);

-- payment_like_order
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET amount = 101 WHERE tenant_id = 'verify' AND order_id = 'order-open'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET currency = 'USD' WHERE tenant_id = 'verify' AND order_id = 'order-open'$$);

-- purchase_after_purchase
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET purchase_no = 3 WHERE tenant_id = 'verify' AND payment_no = 'pay-more'$$);

-- payment_key_leads
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment_key SET payment_no = 'pay-gone' WHERE tenant_id = 'verify' AND request_key = 'key-burned'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment_key SET request_key = 'key-paid' WHERE tenant_id = 'verify' AND request_key = 'key-bound'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment_key SET request_key = 'key-paid' WHERE tenant_id = 'verify' AND request_key = 'key-burned'$$);

-- token_leads
SELECT * FROM pg_temp.broken_by($$INSERT INTO idem_token_used (tenant_id, digest, payment_no, consumed_at)
	VALUES ('verify', sha256('token'), 'pay-gone', now())$$);

-- one_applied_receipt
SELECT * FROM pg_temp.broken_by($$DROP INDEX idem_receipt_applied;
	UPDATE idem_payment SET order_id = 'order-paid', status = 'paid' WHERE tenant_id = 'verify' AND payment_no = 'pay-late';
	UPDATE idem_receipt SET order_id = 'order-paid', disposition = 'applied' WHERE tenant_id = 'verify' AND receipt_no = '9003';
	UPDATE idem_refund SET order_id = 'order-paid' WHERE tenant_id = 'verify' AND receipt_no = '9003'$$);

-- one_receipt_per_trade
SELECT * FROM pg_temp.broken_by($$DROP INDEX idem_receipt_trade;
	UPDATE idem_receipt SET trade_no = 'verify-1' WHERE tenant_id = 'verify' AND receipt_no = '9005'$$);

-- receipt_of_payment
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET order_id = 'order-other' WHERE tenant_id = 'verify' AND receipt_no = '9004'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET purchase_no = 2 WHERE tenant_id = 'verify' AND receipt_no = '9004'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET disposition = 'surplus' WHERE tenant_id = 'verify' AND receipt_no = '9005'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET payment_no = 'pay-gone' WHERE tenant_id = 'verify' AND receipt_no = '9005'$$);

-- receipt_sums
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET refunded = 60 WHERE tenant_id = 'verify' AND receipt_no = '9003'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET refund_reserved = 1 WHERE tenant_id = 'verify' AND receipt_no = '9001'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET status = 'abnormal' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT * FROM pg_temp.broken_by($$ALTER TABLE idem_receipt DROP CONSTRAINT idem_receipt_sums;
	UPDATE idem_receipt SET disputed = 1 WHERE tenant_id = 'verify' AND receipt_no = '9003'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET excess = 1 WHERE tenant_id = 'verify' AND receipt_no = '9001'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET stage = 'won' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-1'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET stage = 'opened' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-3'$$);

-- receipt_cured
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_anomaly WHERE tenant_id = 'verify' AND key = '9004'$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_anomaly WHERE tenant_id = 'verify' AND key = '9005'$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_refund WHERE tenant_id = 'verify' AND refund_no = 'A9003';
	UPDATE idem_receipt SET refund_reserved = 0 WHERE tenant_id = 'verify' AND receipt_no = '9003'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_anomaly SET status = 'resolved' WHERE tenant_id = 'verify' AND key = '9004'$$);
-- a human may have decided otherwise
SELECT * FROM pg_temp.broken_by($$UPDATE idem_anomaly SET status = 'resolved', resolution = 'kept' WHERE tenant_id = 'verify' AND key = '9004'$$);

-- refund_of_receipt
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET receipt_no = '9999' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET payment_no = 'pay-paid' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET currency = 'USD' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);

SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET account = 'other' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);

-- refund_automatic_once
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET refund_no = 'A9999' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET cause = 'cancel' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);

-- refund_held
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET held = true WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT invariant, key, detail ~ '^held, cause late, status processing, submitted (?!never)' AS says_so FROM pg_temp.broken_by(
	$$UPDATE idem_refund SET status = 'processing', submitted_at = now() WHERE tenant_id = 'verify' AND refund_no = 'A9003'$$);

-- dispute_of_receipt
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET receipt_no = '9999' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-3'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET trade_no = 'verify-3' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-3'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET currency = 'USD' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-3'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET payment_no = 'pay-paid' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-3'$$);

-- entitlement_sums
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET revoked = 2 WHERE tenant_id = 'verify' AND grant_key = 'grant-free'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET status = 'granted' WHERE tenant_id = 'verify' AND grant_key = 'grant-back'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET status = 'revoked' WHERE tenant_id = 'verify' AND grant_key = 'grant-free'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_revocation SET quantity = 4 WHERE tenant_id = 'verify' AND revoke_no = 'back-1'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_revocation SET grant_key = 'grant-gone' WHERE tenant_id = 'verify' AND revoke_no = 'by-hand'$$);

-- entitlement_of_receipt
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET receipt_no = '9003' WHERE tenant_id = 'verify' AND grant_key = 'grant-none'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET receipt_no = '9999' WHERE tenant_id = 'verify' AND grant_key = 'grant-none'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET payment_no = 'pay-more' WHERE tenant_id = 'verify' AND grant_key = 'grant-none'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET free = false WHERE tenant_id = 'verify' AND grant_key = 'grant-free'$$);

-- entitlement_follows_refund
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET on_refund = 'proportional' WHERE tenant_id = 'verify' AND grant_key = 'grant-none'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET on_refund = 'full' WHERE tenant_id = 'verify' AND grant_key = 'grant-none'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET revoked = 4, status = 'partly_revoked' WHERE tenant_id = 'verify' AND grant_key = 'grant-back';
	UPDATE idem_revocation SET quantity = 2 WHERE tenant_id = 'verify' AND revoke_no = 'back-1'$$);

-- campaign_counts
SELECT * FROM pg_temp.broken_by($$UPDATE idem_campaign SET granted = 4 WHERE tenant_id = 'verify'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_campaign SET total = 6 WHERE tenant_id = 'verify'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_campaign_user SET granted = 4 WHERE tenant_id = 'verify'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET user_id = 'bob' WHERE tenant_id = 'verify' AND grant_key = 'grant-paid'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_entitlement SET campaign = 'gone' WHERE tenant_id = 'verify' AND grant_key = 'grant-free'$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_campaign WHERE tenant_id = 'verify'$$);

-- hook_stands
SELECT * FROM pg_temp.broken_by($$UPDATE idem_hook SET role = 'regress_nobody'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_hook SET function = 'pg_catalog.jsonb_gone(jsonb)', role = 'pg_monitor'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_hook SET to_state = 'gone', role = 'pg_monitor'$$);

-- hook_failure_shown
SELECT * FROM pg_temp.broken_by($$INSERT INTO idem_hook_failure VALUES ('verify', 'payment', 'pay-paid', 'paid', 2, NULL, '{}', 1, now(), 'P0001', 'no', now())$$);

-- request_answered
SELECT * FROM pg_temp.broken_by($$UPDATE idem_request SET status = 'lost' WHERE tenant_id = 'verify' AND key = 'begun'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_request SET status = 'started' WHERE tenant_id = 'verify' AND key = 'done'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_request SET status = 'failed' WHERE tenant_id = 'verify' AND key = 'begun'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_request SET response = '1' WHERE tenant_id = 'verify' AND key = 'free'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_request SET on_expiry = 'repeat' WHERE tenant_id = 'verify' AND key = 'begun'$$);

-- attempt_drawn
SELECT key = 'shop, begun' AS it, detail ~ '^attempt 9223372036854775807, the last one drawn is \d+$' AS says_so
FROM pg_temp.broken_by($$UPDATE idem_request SET attempt = 9223372036854775807 WHERE tenant_id = 'verify' AND key = 'begun'$$);

-- notification_heard
SELECT * FROM pg_temp.broken_by($$UPDATE idem_notification SET trade_no = 'verify-8' WHERE tenant_id = 'verify' AND notify_id = 'n1'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_notification SET outcome = 'surplus' WHERE tenant_id = 'verify' AND notify_id = 'n2'$$);

-- notification_routed
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_notification WHERE tenant_id = 'verify_2'$$);

-- receipt_reaches_sum
SELECT * FROM pg_temp.broken_by($$UPDATE idem_receipt SET refund_told = 1, refund_told_at = now() WHERE tenant_id = 'verify' AND receipt_no = '9001'$$);

-- number_drawn
SELECT invariant, entity, key FROM pg_temp.broken_by($$UPDATE idem_outbox SET seq = 9000000000000000000 WHERE tenant_id = 'verify' AND type = 'shop.opened'$$);
SELECT invariant, entity, key FROM pg_temp.broken_by($$UPDATE idem_position SET batch = 9000000000000000000 WHERE subscription = 'verify' AND slot = 1$$);

-- slot_of_subscription
SELECT * FROM pg_temp.broken_by($$UPDATE idem_subscription SET slots = 1 WHERE subscription = 'verify'$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_subscription WHERE subscription = 'verify'$$);

-- position_in_slot
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_position WHERE subscription = 'verify' AND slot = 1$$);

-- parked_or_dead
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dead_event SET seq = 2 WHERE subscription = 'verify'$$);

-- parked_comes_again
SELECT * FROM pg_temp.broken_by($$UPDATE idem_parked_event SET next_at = NULL WHERE subscription = 'verify'$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_parked_event WHERE subscription = 'verify' AND seq = 1$$);

-- state_declared
SELECT * FROM pg_temp.broken_by($$UPDATE idem_order SET status = 'lost' WHERE tenant_id = 'verify' AND order_id = 'order-open'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET status = 'lost' WHERE tenant_id = 'verify' AND payment_no = 'pay-closed'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_refund SET status = 'lost' WHERE tenant_id = 'verify' AND refund_no = 'back-0'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_dispute SET stage = 'drawn' WHERE tenant_id = 'verify' AND dispute_no = 'dispute-0'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_anomaly SET status = 'lost', resolution = 'kept' WHERE tenant_id = 'verify' AND key = '9004'$$);

-- history_ends_in_state
SELECT * FROM pg_temp.broken_by($$UPDATE idem_payment SET version = 1 WHERE tenant_id = 'verify' AND payment_no = 'pay-paid'$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET to_state = 'failed', event = 'fail' WHERE tenant_id = 'verify' AND version = 2$$);
SELECT * FROM pg_temp.broken_by($$INSERT INTO idem_history (tenant_id, entity, key, version, to_state, event, session_role, at)
	VALUES ('verify', 'dispute', '{"channel": "alipay", "account": "", "dispute_no": "dispute-1"}', 2, 'opened', 'open', 'x', now() - interval '1 day')$$);

-- history_of_row
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET key = 'pay-gone' WHERE tenant_id = 'verify'$$);

-- history_without_gap
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET from_state = 'closing' WHERE tenant_id = 'verify' AND version = 2$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET version = 2 WHERE tenant_id = 'verify' AND version = 1$$);

-- history_is_legal
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET event = 'close' WHERE tenant_id = 'verify' AND version = 2$$);
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_history WHERE tenant_id = 'verify' AND version = 1;
	DELETE FROM idem_outbox WHERE tenant_id = 'verify' AND type = 'payment.pending';
	UPDATE idem_history SET from_state = NULL WHERE tenant_id = 'verify'$$);

-- move_has_event
SELECT * FROM pg_temp.broken_by($$DELETE FROM idem_outbox WHERE tenant_id = 'verify' AND type = 'payment.paid'$$);
SELECT * FROM pg_temp.broken_by($$INSERT INTO idem_history (tenant_id, entity, key, version, from_state, to_state, event, session_role, at)
	VALUES ('verify', 'payment', 'pay-open', 1, NULL, 'pending', 'create', 'x', clock_timestamp())$$);

-- event_has_move
SELECT * FROM pg_temp.broken_by($$INSERT INTO idem_outbox (id, tenant_id, aggregatetype, aggregateid, type, payload, created_at)
	VALUES ('00000000-0000-0000-0000-00000000ef09', 'verify', 'order', 'order-paid', 'payment.paid', '{}', now())$$);
SELECT * FROM pg_temp.broken_by($$UPDATE idem_history SET event_id = '00000000-0000-0000-0000-00000000ef02' WHERE tenant_id = 'verify' AND version = 1;
	DELETE FROM idem_outbox WHERE tenant_id = 'verify' AND type = 'payment.pending'$$);

-- trigger_stands
SELECT * FROM pg_temp.broken_by($$ALTER TABLE idem_payment DISABLE TRIGGER USER$$);
SELECT * FROM pg_temp.broken_by($$ALTER TABLE idem_order ENABLE REPLICA TRIGGER zz_idem_guard$$);
SELECT * FROM pg_temp.broken_by($$DROP TRIGGER zz_idem_guard ON idem_receipt$$);
SELECT * FROM pg_temp.broken_by($$ALTER EVENT TRIGGER idem_drop_guard DISABLE$$);

-- index_stands
SELECT * FROM pg_temp.broken_by($$DROP INDEX idem_anomaly_open$$);
SELECT * FROM pg_temp.broken_by($$UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem_refund_channel'::regclass$$);

-- sound again
SELECT * FROM idem_verify() WHERE tenant_id = 'verify' OR tenant_id IS NULL;
DELETE FROM idem_hook WHERE entity = 'entitlement';
SELECT outcome FROM idem_unsubscribe('verify');
