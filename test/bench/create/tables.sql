-- The event that idem writes for a payment's birth.
CREATE FUNCTION peer.event(p peer.payment) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object('v', 1, 'tenant_id', p.tenant_id, 'order_id', p.order_id, 'purchase_no', p.purchase_no,
	'payment_no', p.payment_no, 'from', NULL, 'to', p.status, 'event', 'create', 'amount', p.amount, 'currency', p.currency,
	'version', p.version, 'at', p.created_at)
$$;

-- The usual function: look for the key, look for an active payment, insert.
CREATE FUNCTION peer.create_payment(a_tenant_id text, a_order_id text, a_amount bigint, a_currency text, a_request_key text,
	OUT outcome text, OUT payment_no text)
LANGUAGE plpgsql AS $$
DECLARE
	p peer.payment;
	event uuid := gen_random_uuid();
BEGIN
	SELECT k.payment_no INTO payment_no FROM peer.payment k WHERE k.tenant_id = a_tenant_id AND k.request_key = a_request_key;
	IF FOUND THEN
		outcome := 'replayed';
		RETURN;
	END IF;
	SELECT a.payment_no INTO payment_no FROM peer.payment a
	WHERE a.tenant_id = a_tenant_id AND a.order_id = a_order_id AND a.status IN ('pending', 'closing', 'review');
	IF FOUND THEN
		outcome := 'existing';
		RETURN;
	END IF;
	INSERT INTO peer.payment AS new (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, request_key, created_at, expires_at)
	VALUES (a_tenant_id, nextval('peer.payment_no')::text, a_order_id, 1, a_amount, a_currency, 'pending', a_request_key,
		clock_timestamp(), clock_timestamp() + interval '30 minutes')
	ON CONFLICT DO NOTHING RETURNING new.* INTO p;
	IF NOT FOUND THEN
		outcome := 'existing';
		RETURN;
	END IF;
	INSERT INTO peer.outbox (id, tenant_id, aggregatetype, aggregateid, type, payload, created_at)
	VALUES (event, p.tenant_id, 'order', p.order_id, 'payment.pending', peer.event(p), p.created_at);
	INSERT INTO peer.history (tenant_id, entity, key, version, to_state, event, session_role, event_id, at)
	VALUES (p.tenant_id, 'payment', p.payment_no, p.version, p.status, 'create', session_user, event, p.created_at);
	outcome := 'created';
	payment_no := p.payment_no;
END $$;
