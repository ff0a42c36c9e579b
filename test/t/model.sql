-- A naive twin of orders, payments and receipts, written from the contract.
--
-- Plain tables and plain statements: no locks, no looks, no triggers, and
-- nobody else in the room.  Every function stands in the schema model under the
-- name of the one it doubles, takes the same arguments and returns the same
-- row; its branches stand in the order in which the contract judges.
--
-- The twin invents no numbers: where one is generated it takes the one that
-- the extension has given to the thing in question.  So numbers are equal, or
-- the twin has a thing that the extension has not.

CREATE SCHEMA model;

CREATE TABLE model.orders (LIKE idem_order INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, order_id));
CREATE TABLE model.payments (LIKE idem_payment INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, payment_no));
-- every request key; the extension keeps one that made a payment in the payment
CREATE TABLE model.keys (LIKE idem_payment_key INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, request_key));
CREATE TABLE model.receipts (LIKE idem_receipt INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, receipt_no));
CREATE TABLE model.refunds (LIKE idem_refund INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, refund_no));
CREATE TABLE model.anomalies (LIKE idem_anomaly INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, anomaly_no));
CREATE TABLE model.moves (tenant_id text COLLATE "C", entity text COLLATE "C", key text COLLATE "C", version int,
	from_state text COLLATE "C", to_state text COLLATE "C", event text COLLATE "C", reason text);
CREATE INDEX ON model.moves (tenant_id);

-- ---- the room -------------------------------------------------------------------

-- The time of this step, and why its rows move.
CREATE FUNCTION model.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT current_setting('model.now')::timestamptz $$;

CREATE FUNCTION model.because(reason text) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('model.reason', coalesce('=' || reason, ''), false) $$;

CREATE FUNCTION model.moved(t text, machine text, key text, version int, from_state text, to_state text, event text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF event IS NULL THEN
		SELECT m.event INTO STRICT event FROM idem_machine_move m
		WHERE m.machine = moved.machine AND m.from_state = moved.from_state AND m.to_state = moved.to_state;
	END IF;
	INSERT INTO model.moves VALUES (t, machine, key, version, from_state, to_state, event,
		substr(nullif(current_setting('model.reason'), ''), 2));
END $$;

CREATE FUNCTION model.raise(code text, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '%', what USING ERRCODE = code;
END $$;

-- The arguments of requests.
CREATE FUNCTION model.check_key(name text, key text, needed boolean DEFAULT true) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF key IS NULL AND needed THEN PERFORM model.raise('22004', name); END IF;
	IF octet_length(key) NOT BETWEEN 1 AND 255 THEN PERFORM model.raise('22023', name); END IF;
END $$;

CREATE FUNCTION model.check_money(amount bigint, currency text, least_amount bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF amount IS NULL OR currency IS NULL THEN PERFORM model.raise('22004', 'money'); END IF;
	IF amount < least_amount OR currency !~ '^[A-Za-z]{3}$' THEN PERFORM model.raise('22023', 'money'); END IF;
END $$;

CREATE FUNCTION model.check_span(span interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF span <= '0' THEN PERFORM model.raise('22023', 'span'); END IF;
END $$;

-- ---- numbers ------------------------------------------------------------------

-- What the extension has just given to a thing that the twin has not yet.
CREATE FUNCTION model.new_payment_no(t text, o text) RETURNS text LANGUAGE sql AS $$
	SELECT c.payment_no FROM idem_payment c
	WHERE c.tenant_id = t AND c.order_id = o AND NOT EXISTS (SELECT FROM model.payments m WHERE m.tenant_id = t AND m.payment_no = c.payment_no)
	ORDER BY c.created_at LIMIT 1 $$;

CREATE FUNCTION model.new_anomaly_no(t text, kind text, entity text, key text) RETURNS text LANGUAGE sql AS $$
	SELECT c.anomaly_no FROM idem_anomaly c
	WHERE c.tenant_id = t AND c.kind = new_anomaly_no.kind AND c.entity = new_anomaly_no.entity AND c.key = new_anomaly_no.key
		AND NOT EXISTS (SELECT FROM model.anomalies m WHERE m.tenant_id = t AND m.anomaly_no = c.anomaly_no) $$;

-- ---- rows ---------------------------------------------------------------------

CREATE FUNCTION model.order_of(t text, o text) RETURNS model.orders LANGUAGE sql AS $$
	SELECT * FROM model.orders WHERE tenant_id = t AND order_id = o $$;

CREATE FUNCTION model.payment_of(t text, p text) RETURNS model.payments LANGUAGE sql AS $$
	SELECT * FROM model.payments WHERE tenant_id = t AND payment_no = p $$;

CREATE FUNCTION model.payment_named(t text, p text) RETURNS model.payments LANGUAGE plpgsql AS $$
DECLARE payment model.payments;
BEGIN
	payment := model.payment_of(t, p);
	IF payment.payment_no IS NULL THEN PERFORM model.raise('ID006', 'payment'); END IF;
	RETURN payment;
END $$;

CREATE FUNCTION model.active(t text, o text) RETURNS model.payments LANGUAGE sql AS $$
	SELECT * FROM model.payments WHERE tenant_id = t AND order_id = o AND status IN ('pending', 'closing', 'review') $$;

CREATE FUNCTION model.latest(t text, o text) RETURNS model.payments LANGUAGE sql AS $$
	SELECT * FROM model.payments WHERE tenant_id = t AND order_id = o ORDER BY purchase_no DESC, created_at DESC LIMIT 1 $$;

CREATE FUNCTION model.applied(t text, o text, purchase int) RETURNS model.receipts LANGUAGE sql AS $$
	SELECT * FROM model.receipts WHERE tenant_id = t AND order_id = o AND purchase_no = purchase AND disposition = 'applied' $$;

CREATE FUNCTION model.order_to(t text, o text, state text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE was model.orders := model.order_of(t, o);
BEGIN
	UPDATE model.orders SET status = state, version = version + 1, refunded_from = CASE state WHEN 'refunded' THEN was.status END
	WHERE tenant_id = t AND order_id = o;
	PERFORM model.moved(t, 'order', o, was.version + 1, was.status, state);
END $$;

-- The order of purchase 1 is refunded when all of the money that paid it went
-- back, and is what it was before when some of it comes again.
CREATE FUNCTION model.order_follows(t text, o text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	was model.orders := model.order_of(t, o);
	paid model.receipts := model.applied(t, o, 1);
	gone boolean := coalesce(paid.refunded > 0 AND paid.refunded >= paid.amount, false);
BEGIN
	IF paid.receipt_no IS NULL THEN RETURN; END IF;
	IF gone AND was.status IN ('paid', 'shipped', 'completed') THEN
		PERFORM model.order_to(t, o, 'refunded');
	ELSIF NOT gone AND was.status = 'refunded' THEN
		PERFORM model.order_to(t, o, was.refunded_from);
	END IF;
END $$;

CREATE FUNCTION model.payment_to(t text, p text, state text, check_at timestamptz DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE was model.payments := model.payment_of(t, p);
BEGIN
	UPDATE model.payments SET status = state, version = version + 1,
		next_check_at = CASE WHEN state = 'review' THEN next_check_at ELSE check_at END
	WHERE tenant_id = t AND payment_no = p;
	PERFORM model.moved(t, 'payment', p, was.version + 1, was.status, state);
END $$;

-- One more check is due after a channel's word.
CREATE FUNCTION model.once_more(expires_at timestamptz) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT greatest(model.now(), expires_at) + '10 minutes' $$;

CREATE FUNCTION model.is_payable(o model.orders) RETURNS boolean LANGUAGE sql AS $$
	SELECT o.order_id IS NULL OR o.status IN ('paid', 'shipped', 'completed')
		OR (o.status = 'pending' AND coalesce(o.expires_at > model.now(), true)) $$;

-- ---- anomalies and refunds -----------------------------------------------------------

CREATE FUNCTION model.open_anomaly(t text, kind text, entity text, key text, o text, detail jsonb) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE number text;
BEGIN
	UPDATE model.anomalies SET hits = hits + 1, version = version + 1, last_hit_at = model.now()
	WHERE tenant_id = t AND kind = open_anomaly.kind AND entity = open_anomaly.entity AND key = open_anomaly.key AND status = 'opened';
	IF FOUND THEN RETURN; END IF;
	number := coalesce(model.new_anomaly_no(t, kind, entity, key), format('only in the model: %s %s', open_anomaly.kind, open_anomaly.key));
	INSERT INTO model.anomalies (tenant_id, anomaly_no, kind, entity, key, status, order_id, detail, opened_at, last_hit_at)
	VALUES (t, number, open_anomaly.kind, open_anomaly.entity, open_anomaly.key, 'opened', o, open_anomaly.detail, model.now(), model.now());
	PERFORM model.moved(t, 'anomaly', number, 1, NULL, 'opened', 'open');
END $$;

CREATE FUNCTION model.resolve_anomaly(t text, kinds text[], entity text, key text, how text, why text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE a record;
BEGIN
	FOR a IN UPDATE model.anomalies SET status = 'resolved', version = version + 1, resolution = how, reason = why,
			resolved_by = session_user, resolved_at = model.now()
		WHERE tenant_id = t AND kind = ANY (kinds) AND entity = resolve_anomaly.entity AND key = resolve_anomaly.key AND status = 'opened'
		RETURNING anomaly_no, version
	LOOP
		PERFORM model.moved(t, 'anomaly', a.anomaly_no, a.version, 'opened', 'resolved');
	END LOOP;
END $$;

CREATE FUNCTION model.receipt_detail(r model.receipts) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('payment_no', coalesce(r.payment_no, r.reported_payment_no), 'channel', r.channel, 'account', r.account,
		'trade_no', r.trade_no, 'amount', r.amount, 'currency', r.currency) $$;

CREATE FUNCTION model.receipt_anomaly(t text, number text, kind text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE r model.receipts;
BEGIN
	SELECT * INTO r FROM model.receipts WHERE tenant_id = t AND receipt_no = number;
	PERFORM model.open_anomaly(t, kind, 'receipt', number, r.order_id, model.receipt_detail(r));
END $$;

CREATE FUNCTION model.makes_sense(r model.receipts) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(r.amount > 0 AND r.currency ~ '^[A-Z]{3}$' AND r.channel <> '' AND r.trade_no <> '', false) $$;

CREATE FUNCTION model.remainder(r model.receipts) RETURNS bigint LANGUAGE sql AS $$
	SELECT greatest(coalesce(r.amount, 0), 0) + r.excess - r.refund_reserved - r.disputed $$;

-- The automatic refund of what is left of a receipt, once.
CREATE FUNCTION model.refund_rest(t text, number text, cause text, reason text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r model.receipts;
	rest bigint;
BEGIN
	SELECT * INTO r FROM model.receipts WHERE tenant_id = t AND receipt_no = number;
	rest := model.remainder(r);
	IF NOT model.makes_sense(r) OR rest <= 0 OR EXISTS (SELECT FROM model.refunds f WHERE f.tenant_id = t AND f.refund_no = 'A' || number) THEN
		RETURN;
	END IF;
	INSERT INTO model.refunds (tenant_id, refund_no, receipt_no, payment_no, order_id, purchase_no, channel, account, amount, currency, status, cause, reason, created_at, next_check_at)
	VALUES (t, 'A' || number, number, r.payment_no, r.order_id, r.purchase_no, r.channel, r.account, rest, r.currency, 'requested', cause, refund_rest.reason, model.now(), model.now());
	UPDATE model.receipts SET refund_reserved = refund_reserved + rest WHERE tenant_id = t AND receipt_no = number;
	PERFORM model.moved(t, 'refund', 'A' || number, 1, NULL, 'requested', 'request');
END $$;

-- The number of a receipt's refund, while it may be acted on.
CREATE FUNCTION model.refund_handle(t text, number text) RETURNS text LANGUAGE sql AS $$
	SELECT refund_no FROM model.refunds WHERE tenant_id = t AND refund_no = 'A' || number AND status IN ('requested', 'processing') $$;

-- ---- orders -------------------------------------------------------------------

CREATE FUNCTION model.insert_order(t text, o text, amount bigint, currency text, buyer_id text, expires_in interval, metadata jsonb)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO model.orders VALUES (t, o, 'pending', 1, amount, currency, buyer_id, metadata, model.now(), model.now() + expires_in);
	PERFORM model.moved(t, 'order', o, 1, NULL, 'pending', 'create');
	IF amount = 0 OR (model.applied(t, o, 1)).receipt_no IS NOT NULL THEN
		PERFORM model.order_to(t, o, 'paid');
	END IF;
END $$;

CREATE FUNCTION model.create_order(tenant_id text, order_id text, amount bigint, currency text, buyer_id text DEFAULT NULL,
	expires_in interval DEFAULT NULL, metadata jsonb DEFAULT NULL)
RETURNS idem_create_order_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	cur text := upper(currency);
	other text := NULL;
	outcome text := 'existing';
	o model.orders;
	p model.payments;
	result idem_create_order_result;
BEGIN
	PERFORM model.check_key('order_id', order_id), model.check_money(amount, currency, 0), model.check_key('buyer_id', buyer_id, false),
		model.check_span(expires_in);
	o := model.order_of(tenant_id, order_id);
	IF o.order_id IS NOT NULL THEN
		IF (o.amount, o.currency) <> (amount, cur) OR o.buyer_id <> buyer_id THEN
			PERFORM model.raise('ID001', 'order');
		END IF;
	ELSE
		outcome := 'created';
		p := model.active(tenant_id, order_id);
		IF (p.amount, p.currency) <> (amount, cur) THEN PERFORM model.raise('ID001', 'active payment'); END IF;
		p := model.payment_of(tenant_id, (model.applied(tenant_id, order_id, 1)).payment_no);
		IF (p.amount, p.currency) <> (amount, cur) THEN PERFORM model.raise('ID001', 'paid payment'); END IF;
		PERFORM model.insert_order(tenant_id, order_id, amount, cur, buyer_id, expires_in, metadata), model.order_follows(tenant_id, order_id);
		o := model.order_of(tenant_id, order_id);
	END IF;
	result := ROW (outcome, o.order_id, o.status, o.amount, o.currency, o.version, o.created_at, o.expires_at);
	RETURN result;
END $$;

CREATE FUNCTION model.update_order(tenant_id text, order_id text, amount bigint, currency text, expected_version int, reason text DEFAULT NULL)
RETURNS idem_update_order_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	cur text := upper(currency);
	o model.orders;
	outcome text;
BEGIN
	PERFORM model.check_key('order_id', order_id), model.check_money(amount, currency, 0);
	IF expected_version IS NULL THEN PERFORM model.raise('22004', 'expected_version'); END IF;
	PERFORM model.because(reason);
	o := model.order_of(tenant_id, order_id);
	IF o.order_id IS NULL THEN
		PERFORM model.raise('ID006', 'order');
	ELSIF (o.amount, o.currency) = (amount, cur) THEN
		outcome := 'duplicate';
	ELSIF o.status <> 'pending' OR (model.active(tenant_id, order_id)).payment_no IS NOT NULL THEN
		outcome := 'refused';
	ELSIF o.version <> expected_version THEN
		outcome := 'stale';
	ELSE
		outcome := 'updated';
		UPDATE model.orders m SET amount = update_order.amount, currency = cur, version = version + 1
		WHERE m.tenant_id = update_order.tenant_id AND m.order_id = update_order.order_id;
		IF amount = 0 THEN
			PERFORM model.order_to(tenant_id, order_id, 'paid');
		END IF;
	END IF;
	RETURN ROW (outcome, (model.order_of(tenant_id, order_id)).version)::idem_update_order_result;
END $$;

CREATE FUNCTION model.cancel_order(tenant_id text, order_id text, reason text DEFAULT NULL)
RETURNS idem_cancel_order_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	o model.orders;
	p model.payments;
	r model.receipts;
	refund model.refunds;
	outcome text := 'cancelled';
BEGIN
	PERFORM model.check_key('order_id', order_id), model.because(reason);
	o := model.order_of(t, order_id);
	p := model.active(t, order_id);
	IF o.order_id IS NULL AND (model.latest(t, order_id)).payment_no IS NULL THEN
		PERFORM model.raise('ID006', 'order');
	ELSIF o.status = 'cancelled' THEN
		outcome := 'already_cancelled';
	ELSIF o.status IN ('shipped', 'completed', 'expired', 'refunded') OR p.status = 'review' THEN
		RETURN ROW ('refused', o.status, o.version, NULL, NULL, NULL, NULL)::idem_cancel_order_result;
	ELSE
		IF o.order_id IS NULL THEN
			r := model.applied(t, order_id, 1);
			DECLARE latest model.payments := coalesce(model.payment_of(t, r.payment_no), model.latest(t, order_id));
			BEGIN
				PERFORM model.insert_order(t, order_id, latest.amount, latest.currency, NULL, NULL, NULL);
			END;
		END IF;
		PERFORM model.order_to(t, order_id, 'cancelled');
		IF p.submitted_at IS NULL AND p.payment_no IS NOT NULL THEN
			PERFORM model.payment_to(t, p.payment_no, 'closed');
		ELSIF p.status = 'pending' THEN
			PERFORM model.payment_to(t, p.payment_no, 'closing', model.now() + '1 minute');
		END IF;
		r := model.applied(t, order_id, 1);
		PERFORM model.refund_rest(t, r.receipt_no, 'cancel', reason);
	END IF;
	o := model.order_of(t, order_id);
	p := model.active(t, order_id);
	r := model.applied(t, order_id, 1);
	SELECT * INTO refund FROM model.refunds f WHERE f.tenant_id = t AND f.refund_no = 'A' || r.receipt_no;
	RETURN ROW (outcome, o.status, o.version, CASE WHEN p.status = 'closing' THEN p.payment_no END,
		model.refund_handle(t, r.receipt_no), refund.status, model.remainder(r))::idem_cancel_order_result;
END $$;

-- Some money of the order is here to stay, or it costs nothing.
CREATE FUNCTION model.has_money(t text, o model.orders) RETURNS boolean LANGUAGE sql AS $$
	SELECT o.amount = 0 OR coalesce(model.remainder(model.applied(t, o.order_id, 1)) > 0, false) $$;

CREATE FUNCTION model.ship_order(tenant_id text, order_id text) RETURNS idem_fulfil_order_result LANGUAGE plpgsql AS $$
DECLARE
	o model.orders := model.order_of(tenant_id, order_id);
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('order_id', order_id);
	IF o.order_id IS NULL THEN
		PERFORM model.raise('ID006', 'order');
	ELSIF o.status IN ('shipped', 'completed') THEN
		outcome := 'already_shipped';
	ELSIF o.status = 'paid' AND model.has_money(tenant_id, o) THEN
		outcome := 'shipped';
		PERFORM model.order_to(tenant_id, order_id, 'shipped');
	END IF;
	o := model.order_of(tenant_id, order_id);
	RETURN ROW (outcome, o.status, o.version)::idem_fulfil_order_result;
END $$;

CREATE FUNCTION model.complete_order(tenant_id text, order_id text) RETURNS idem_fulfil_order_result LANGUAGE plpgsql AS $$
DECLARE
	o model.orders := model.order_of(tenant_id, order_id);
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('order_id', order_id);
	IF o.order_id IS NULL THEN
		PERFORM model.raise('ID006', 'order');
	ELSIF o.status = 'completed' THEN
		outcome := 'already_completed';
	ELSIF o.status = 'shipped' OR (o.status = 'paid' AND model.has_money(tenant_id, o)) THEN
		outcome := 'completed';
		PERFORM model.order_to(tenant_id, order_id, 'completed');
	END IF;
	o := model.order_of(tenant_id, order_id);
	RETURN ROW (outcome, o.status, o.version)::idem_fulfil_order_result;
END $$;

-- ---- create -------------------------------------------------------------------

CREATE FUNCTION model.create_row(outcome text, p model.payments, order_id text, request_key text) RETURNS idem_create_payment_result LANGUAGE plpgsql AS $$
DECLARE
	usable boolean := outcome IN ('created', 'existing', 'replayed') AND p.status = 'pending';
	result idem_create_payment_result;
BEGIN
	result := ROW (outcome, CASE WHEN usable THEN p.payment_no END, p.status, order_id, p.purchase_no, p.amount, p.currency,
		coalesce(request_key, p.request_key), p.channel, p.account, CASE WHEN usable THEN p.channel_data END, p.version, p.created_at, p.expires_at,
		CASE WHEN NOT usable THEN p.payment_no END);
	RETURN result;
END $$;

CREATE FUNCTION model.insert_key(t text, request_key text, p text, repurchase boolean, asked text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.keys SELECT t, request_key, p, repurchase, asked, model.now() WHERE request_key IS NOT NULL $$;

CREATE FUNCTION model.create_payment(tenant_id text, order_id text, amount bigint, currency text, request_key text DEFAULT NULL,
	repurchase boolean DEFAULT false, channel text DEFAULT NULL, expires_in interval DEFAULT '30 minutes', metadata jsonb DEFAULT NULL,
	account text DEFAULT NULL, payment_no text DEFAULT NULL)
RETURNS idem_create_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	cur text := upper(currency);
	k model.keys;
	o model.orders;
	p model.payments;
	r model.receipts;
	current int;
	number text := payment_no;
BEGIN
	PERFORM model.check_key('order_id', order_id), model.check_money(amount, currency, 1), model.check_key('request_key', request_key, false),
		model.check_key('channel', channel, false), model.check_key('account', account, false), model.check_span(expires_in);
	repurchase := coalesce(repurchase, false);
	IF repurchase AND request_key IS NULL OR payment_no !~ '^[0-9A-Za-z_-]{6,32}$' THEN
		PERFORM model.raise('22023', 'argument');
	END IF;

	SELECT * INTO k FROM model.keys m WHERE m.tenant_id = t AND m.request_key = create_payment.request_key;
	IF FOUND THEN
		IF k.payment_no IS NULL THEN RETURN model.create_row('burned', NULL, order_id, request_key); END IF;
		p := model.payment_of(t, k.payment_no);
		IF (p.order_id, p.amount, p.currency, k.repurchase) <> (order_id, amount, cur, repurchase)
			OR p.channel <> channel OR p.account <> account OR coalesce(k.asked_payment_no, p.payment_no) <> payment_no
		THEN PERFORM model.raise('ID001', 'request_key'); END IF;
		RETURN model.create_row('replayed', p, order_id, request_key);
	END IF;

	o := model.order_of(t, order_id);
	p := model.latest(t, order_id);
	current := coalesce(p.purchase_no, 1);
	r := model.applied(t, order_id, current);
	p := model.active(t, order_id);
	-- a repetition of what the number is for is answered as one
	IF EXISTS (SELECT FROM model.payments m WHERE m.tenant_id = t AND m.payment_no = create_payment.payment_no)
		AND payment_no IS DISTINCT FROM (CASE WHEN r.receipt_no IS NOT NULL AND NOT repurchase THEN r.payment_no ELSE p.payment_no END)
	THEN PERFORM model.raise('ID001', 'payment_no'); END IF;
	IF (o.amount, o.currency) <> (amount, cur) THEN PERFORM model.raise('ID001', 'order'); END IF;
	IF NOT model.is_payable(o) THEN RETURN model.create_row('order_closed', NULL, order_id, request_key); END IF;
	IF r.receipt_no IS NOT NULL AND NOT repurchase THEN
		RETURN model.create_row('already_paid', model.payment_of(t, r.payment_no), order_id, request_key);
	END IF;

	IF p.status = 'review' THEN RETURN model.create_row('in_review', p, order_id, request_key); END IF;
	IF p.status = 'closing' THEN RETURN model.create_row('closing', p, order_id, request_key); END IF;
	IF p.expires_at <= model.now() THEN
		PERFORM model.because('expired');
		IF p.submitted_at IS NOT NULL THEN
			PERFORM model.payment_to(t, p.payment_no, 'closing', model.now()), model.because(NULL);
			RETURN model.create_row('closing', model.payment_of(t, p.payment_no), order_id, request_key);
		END IF;
		PERFORM model.payment_to(t, p.payment_no, 'closed', p.next_check_at), model.because(NULL);
	ELSIF p.payment_no IS NOT NULL THEN
		IF (p.amount, p.currency) <> (amount, cur) THEN PERFORM model.raise('ID001', 'active payment'); END IF;
		IF p.channel <> channel THEN RETURN model.create_row('other_channel', p, order_id, request_key); END IF;
		PERFORM model.insert_key(t, request_key, p.payment_no, repurchase, payment_no);
		RETURN model.create_row('existing', p, order_id, request_key);
	END IF;

	-- it was the expired one's
	IF (model.payment_of(t, number)).payment_no IS NOT NULL THEN PERFORM model.raise('ID001', 'payment_no'); END IF;
	IF number IS NULL THEN
		number := coalesce(model.new_payment_no(t, order_id), 'only in the model: payment of ' || order_id);
	END IF;
	INSERT INTO model.payments VALUES (t, number, order_id, CASE WHEN r.receipt_no IS NOT NULL THEN current + 1 ELSE current END, amount, cur,
		'pending', 1, request_key, coalesce(repurchase, false), channel, account, NULL, metadata, model.now(), least(model.now() + expires_in, CASE o.status WHEN 'pending' THEN o.expires_at END), NULL, NULL);
	PERFORM model.moved(t, 'payment', number, 1, NULL, 'pending', 'create');
	PERFORM model.insert_key(t, request_key, number, repurchase, payment_no);

	-- money that came before
	FOR r IN SELECT * FROM model.receipts m WHERE m.tenant_id = t AND m.reported_payment_no = number AND m.disposition = 'orphan'
		AND m.refund_reserved + m.disputed = 0 ORDER BY m.created_at
	LOOP
		PERFORM model.adopt(t, r.receipt_no, number, true);
	END LOOP;
	p := model.payment_of(t, number);
	RETURN model.create_row(CASE p.status WHEN 'paid' THEN 'already_paid' WHEN 'review' THEN 'in_review' ELSE 'created' END, p, order_id, request_key);
END $$;

CREATE FUNCTION model.create_payments(tenant_id text, requests jsonb) RETURNS SETOF idem_create_payments_result LANGUAGE plpgsql AS $$
DECLARE
	element record;
	r idem_create_payment_result;
	answer idem_create_payments_result;
BEGIN
	FOR element IN SELECT value, ordinality FROM jsonb_array_elements(requests) WITH ORDINALITY LOOP
		BEGIN
			DECLARE a jsonb := element.value;
			BEGIN
				r := model.create_payment(tenant_id, a->>'order_id', (a->>'amount')::bigint, a->>'currency', a->>'request_key',
					CASE WHEN a ? 'repurchase' THEN (a->>'repurchase')::boolean ELSE false END, a->>'channel',
					CASE WHEN a ? 'expires_in' THEN (a->>'expires_in')::interval ELSE '30 minutes' END, a->'metadata', a->>'account', a->>'payment_no');
			END;
			answer := ROW (element.ordinality, (r).*, NULL);
		EXCEPTION WHEN OTHERS THEN
			answer := NULL;
			answer.ord := element.ordinality;
			answer.outcome := 'error';
			answer.error := SQLSTATE;
		END;
		RETURN NEXT answer;
	END LOOP;
END $$;

-- ---- the life of a payment ------------------------------------------------------

CREATE FUNCTION model.payment_row(t text, p text, outcome text) RETURNS idem_payment_result LANGUAGE sql AS $$
	SELECT outcome, status, version FROM model.payment_of(t, p) $$;

CREATE FUNCTION model.submit_payment(tenant_id text, payment_no text, channel text, account text DEFAULT NULL)
RETURNS idem_submit_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.payments;
	outcome text;
BEGIN
	PERFORM model.check_key('payment_no', payment_no), model.check_key('channel', channel), model.check_key('account', account, false);
	p := model.payment_named(tenant_id, payment_no);
	IF p.status <> 'pending' OR p.expires_at <= model.now() THEN
		outcome := 'refused';
	ELSIF p.channel <> channel OR p.account <> account OR (p.submitted_at IS NOT NULL AND p.account IS NULL AND account IS NOT NULL) THEN
		outcome := 'other_channel';
	ELSIF p.submitted_at IS NOT NULL THEN
		outcome := 'already_submitted';
	ELSE
		outcome := 'submitted';
		UPDATE model.payments m SET channel = submit_payment.channel, account = coalesce(submit_payment.account, m.account), submitted_at = model.now(),
			next_check_at = model.now() + '1 minute', version = version + 1
		WHERE m.tenant_id = submit_payment.tenant_id AND m.payment_no = p.payment_no;
	END IF;
	RETURN ROW (outcome, p.status, p.expires_at, CASE WHEN outcome IN ('submitted', 'already_submitted') THEN p.channel_data END)::idem_submit_payment_result;
END $$;

CREATE FUNCTION model.attach_channel_data(tenant_id text, payment_no text, data jsonb) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.payments;
	outcome text;
BEGIN
	PERFORM model.check_key('payment_no', payment_no);
	IF data IS NULL THEN PERFORM model.raise('22004', 'data'); END IF;
	p := model.payment_named(tenant_id, payment_no);
	IF p.channel_data = data THEN
		outcome := 'duplicate';
	ELSIF p.status <> 'pending' THEN
		outcome := 'refused';
	ELSE
		outcome := 'attached';
		UPDATE model.payments m SET channel_data = data, version = version + 1 WHERE m.tenant_id = attach_channel_data.tenant_id AND m.payment_no = p.payment_no;
	END IF;
	RETURN model.payment_row(tenant_id, payment_no, outcome);
END $$;

CREATE FUNCTION model.begin_close(tenant_id text, payment_no text, reason text DEFAULT NULL) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments;
	outcome text;
BEGIN
	PERFORM model.check_key('payment_no', payment_no), model.because(reason);
	p := model.payment_named(tenant_id, payment_no);
	IF p.status = 'pending' THEN PERFORM model.payment_to(tenant_id, payment_no, 'closing', model.now() + '1 minute'); END IF;
	outcome := CASE p.status WHEN 'pending' THEN 'closing' WHEN 'closing' THEN 'already_closing' WHEN 'closed' THEN 'already_closed'
		WHEN 'paid' THEN 'already_paid' ELSE 'refused' END;
	RETURN model.payment_row(tenant_id, payment_no, outcome);
END $$;

CREATE FUNCTION model.finish_close(tenant_id text, payment_no text, result text, expire_order boolean DEFAULT false) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	p model.payments;
	o model.orders;
	outcome text := 'kept';
	check_at timestamptz;
BEGIN
	PERFORM model.check_key('payment_no', payment_no);
	IF result IS NULL THEN PERFORM model.raise('22004', 'result'); END IF;
	IF result NOT IN ('closed', 'already_paid', 'not_exist', 'refused', 'unknown') THEN PERFORM model.raise('22023', 'result'); END IF;
	p := model.payment_named(t, payment_no);
	o := model.order_of(t, p.order_id);
	IF p.status IN ('paid', 'paid_late') THEN
		outcome := 'paid_wins';
	ELSIF p.status IN ('pending', 'failed', 'review') THEN
		outcome := 'refused';
	ELSIF p.status = 'closed' AND result <> 'already_paid' THEN
		outcome := 'already_closed';
	ELSIF result = 'closed' OR (result = 'not_exist' AND p.expires_at + interval '10 minutes' <= model.now()) THEN
		outcome := 'closed';
		PERFORM model.payment_to(t, payment_no, 'closed', model.once_more(p.expires_at));
	ELSIF result = 'refused' AND model.is_payable(o) AND (model.applied(t, p.order_id, p.purchase_no)).receipt_no IS NULL THEN
		outcome := 'reopened';
		PERFORM model.payment_to(t, payment_no, 'pending', model.now() + '1 minute');
	ELSE
		check_at := CASE result WHEN 'unknown' THEN model.now() + '1 minute' WHEN 'not_exist' THEN coalesce(p.expires_at, model.now()) + '10 minutes' ELSE model.now() END;
		-- what is due is due
		UPDATE model.payments m SET next_check_at = check_at, version = version + 1 WHERE m.tenant_id = t AND m.payment_no = p.payment_no
			AND m.next_check_at IS DISTINCT FROM check_at AND NOT (check_at = model.now() AND coalesce(m.next_check_at <= model.now(), false));
	END IF;
	p := model.payment_of(t, payment_no);
	IF expire_order AND p.status = 'closed' AND o.status = 'pending' AND (model.active(t, p.order_id)).payment_no IS NULL THEN
		PERFORM model.order_to(t, p.order_id, 'expired');
	END IF;
	RETURN model.payment_row(t, payment_no, outcome);
END $$;

CREATE FUNCTION model.close_payment(tenant_id text, payment_no text, reason text DEFAULT NULL) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('payment_no', payment_no), model.because(reason);
	p := model.payment_named(tenant_id, payment_no);
	IF p.status IN ('pending', 'closing') AND p.submitted_at IS NULL THEN
		outcome := 'closed';
		PERFORM model.payment_to(tenant_id, payment_no, 'closed');
	ELSIF p.status IN ('closed', 'paid') THEN
		outcome := 'already_' || p.status;
	END IF;
	RETURN model.payment_row(tenant_id, payment_no, outcome);
END $$;

CREATE FUNCTION model.cancel_request_key(tenant_id text, request_key text, reason text DEFAULT NULL) RETURNS idem_cancel_request_key_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	k model.keys;
	p model.payments;
	outcome text;
BEGIN
	PERFORM model.check_key('request_key', request_key), model.because(reason);
	SELECT * INTO k FROM model.keys m WHERE m.tenant_id = t AND m.request_key = cancel_request_key.request_key;
	p := model.payment_of(t, k.payment_no);
	IF k.request_key IS NULL THEN PERFORM model.insert_key(t, request_key, NULL, false, NULL); END IF;
	IF p.payment_no IS NULL THEN
		outcome := 'burned';
	ELSIF p.status = 'review' THEN
		outcome := 'in_review';
	ELSIF p.status IN ('paid', 'paid_late') THEN
		outcome := 'already_paid';
	ELSIF p.status IN ('failed', 'closed') THEN
		outcome := 'closed';
	ELSIF p.submitted_at IS NULL THEN
		outcome := 'closed';
		PERFORM model.payment_to(t, p.payment_no, 'closed');
	ELSE
		outcome := 'closing';
		IF p.status = 'pending' THEN PERFORM model.payment_to(t, p.payment_no, 'closing', model.now() + '1 minute'); END IF;
	END IF;
	RETURN ROW (outcome, CASE WHEN outcome = 'closing' THEN p.payment_no END)::idem_cancel_request_key_result;
END $$;

CREATE FUNCTION model.check_fact(VARIADIC needed text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE key text;
BEGIN
	FOREACH key IN ARRAY needed LOOP
		IF key IS NULL THEN PERFORM model.raise('22004', 'key'); END IF;
		IF octet_length(key) > 255 THEN PERFORM model.raise('22023', 'key'); END IF;
	END LOOP;
END $$;

CREATE FUNCTION model.fail_payment(tenant_id text, payment_no text, reason text DEFAULT NULL) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments;
BEGIN
	PERFORM model.check_fact(payment_no), model.because(reason);
	p := model.payment_of(tenant_id, payment_no);
	IF p.payment_no IS NULL THEN
		PERFORM model.open_anomaly(tenant_id, 'orphan', 'payment', payment_no, NULL, NULL);
		RETURN ROW ('orphan', NULL, NULL)::idem_payment_result;
	ELSIF p.status IN ('pending', 'closing') THEN
		PERFORM model.payment_to(tenant_id, payment_no, 'failed', model.once_more(p.expires_at));
		RETURN model.payment_row(tenant_id, payment_no, 'failed');
	END IF;
	RETURN model.payment_row(tenant_id, payment_no, CASE p.status WHEN 'failed' THEN 'duplicate' ELSE 'stale' END);
END $$;

-- ---- money --------------------------------------------------------------------

-- Money of the purchase that waits in review pays nothing any more.
CREATE FUNCTION model.give_up_mismatches(t text, o text, purchase int, disposition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
	FOR r IN UPDATE model.receipts m SET disposition = give_up_mismatches.disposition
		WHERE m.tenant_id = t AND m.order_id = o AND m.purchase_no = purchase AND m.disposition = 'mismatch'
			AND NOT EXISTS (SELECT FROM model.refunds f WHERE f.tenant_id = t AND f.refund_no = 'A' || m.receipt_no)
		RETURNING receipt_no
	LOOP
		PERFORM model.resolve_anomaly(t, '{mismatch}', 'receipt', r.receipt_no, give_up_mismatches.disposition);
		PERFORM model.receipt_anomaly(t, r.receipt_no, give_up_mismatches.disposition);
		PERFORM model.refund_rest(t, r.receipt_no, give_up_mismatches.disposition);
	END LOOP;
END $$;

-- A payment is paid by this receipt: rule 7, and a review that is accepted.
CREATE FUNCTION model.pay(t text, number text, p model.payments) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	other model.payments := model.active(t, p.order_id);
	o model.orders := model.order_of(t, p.order_id);
BEGIN
	UPDATE model.receipts SET disposition = 'applied' WHERE tenant_id = t AND receipt_no = number;
	IF p.status IN ('failed', 'closed') THEN PERFORM model.payment_to(t, p.payment_no, 'paid_late'); END IF;
	PERFORM model.payment_to(t, p.payment_no, 'paid');
	IF o.status = 'pending' AND p.purchase_no = 1 THEN PERFORM model.order_to(t, p.order_id, 'paid'); END IF;
	IF other.payment_no <> p.payment_no AND other.purchase_no = p.purchase_no THEN
		IF other.status = 'pending' THEN PERFORM model.payment_to(t, other.payment_no, 'closing', model.now() + '1 minute'); END IF;
		IF other.status = 'review' THEN PERFORM model.payment_to(t, other.payment_no, 'paid_late'); END IF;
	END IF;
	PERFORM model.give_up_mismatches(t, p.order_id, p.purchase_no, 'surplus');
END $$;

-- The payment of the same purchase that is still to be closed.
CREATE FUNCTION model.to_close(t text, p model.payments) RETURNS text LANGUAGE sql AS $$
	SELECT payment_no FROM model.active(t, p.order_id) WHERE status = 'closing' AND payment_no <> p.payment_no AND purchase_no = p.purchase_no $$;

-- A payment takes over the channel, or the account, that it does not have from
-- its money (rules 6 and 7), with the move that follows or alone.
CREATE FUNCTION model.take_channel(p model.payments, r model.receipts, alone boolean) RETURNS void LANGUAGE sql AS $$
	UPDATE model.payments SET channel = coalesce(channel, nullif(r.channel, '')), version = version + alone::int,
		account = coalesce(account, CASE WHEN coalesce(channel, r.channel) = r.channel AND r.channel <> '' THEN nullif(r.account, '') END)
	WHERE tenant_id = p.tenant_id AND payment_no = p.payment_no
		AND (channel IS NULL AND r.channel <> '' OR account IS NULL AND r.account <> '' AND coalesce(channel, r.channel) = r.channel AND r.channel <> '') $$;

-- Rules 4 to 7, for a receipt that is there; differs: it was reported otherwise before.
CREATE FUNCTION model.judge(t text, number text, p_no text, differs boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	p model.payments := model.payment_of(t, p_no);
	o model.orders := model.order_of(t, p.order_id);
	r model.receipts;
	outcome text;
BEGIN
	UPDATE model.receipts SET payment_no = p.payment_no, order_id = p.order_id, purchase_no = p.purchase_no
	WHERE tenant_id = t AND receipt_no = number;
	SELECT * INTO r FROM model.receipts WHERE tenant_id = t AND receipt_no = number;

	IF (model.applied(t, p.order_id, p.purchase_no)).receipt_no IS NOT NULL OR (o.amount = 0 AND o.status IN ('paid', 'shipped', 'completed') AND p.purchase_no = 1) THEN
		outcome := 'surplus';
	ELSIF o.status IN ('cancelled', 'expired') OR (o.status = 'refunded' AND p.purchase_no = 1) THEN
		outcome := 'late';
	ELSIF differs OR NOT model.makes_sense(r) OR r.amount <> p.amount OR r.currency <> p.currency OR r.channel <> p.channel
		OR (o.status = 'pending' AND p.purchase_no = 1 AND (r.amount <> o.amount OR r.currency <> o.currency))
	THEN
		outcome := CASE WHEN p.status IN ('pending', 'closing', 'review') THEN 'mismatch' ELSE 'late' END;
		PERFORM model.take_channel(p, r, p.status IN ('review', 'paid_late'));
		UPDATE model.receipts SET disposition = outcome WHERE tenant_id = t AND receipt_no = number;
		PERFORM model.receipt_anomaly(t, number, 'mismatch');
		IF outcome = 'mismatch' THEN
			IF p.status <> 'review' THEN PERFORM model.payment_to(t, p_no, 'review'); END IF;
		ELSE
			PERFORM model.refund_rest(t, number, 'late');
			IF p.status <> 'paid_late' THEN PERFORM model.payment_to(t, p_no, 'paid_late'); END IF;
		END IF;
		RETURN outcome;
	ELSE
		PERFORM model.take_channel(p, r, false);
		PERFORM model.pay(t, number, p);
		RETURN 'paid';
	END IF;

	UPDATE model.receipts SET disposition = outcome WHERE tenant_id = t AND receipt_no = number;
	PERFORM model.receipt_anomaly(t, number, outcome);
	PERFORM model.refund_rest(t, number, outcome);
	IF p.status NOT IN ('paid', 'paid_late') THEN PERFORM model.payment_to(t, p_no, 'paid_late'); END IF;
	IF p.status = 'review' THEN PERFORM model.give_up_mismatches(t, p.order_id, p.purchase_no, outcome); END IF;
	RETURN outcome;
END $$;

CREATE FUNCTION model.confirm_row(t text, p_no text, outcome text, number text) RETURNS idem_confirm_payment_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments := model.payment_of(t, p_no);
BEGIN
	RETURN ROW (outcome, p.status, number, model.refund_handle(t, number), (model.order_of(t, p.order_id)).status, p.version,
		CASE WHEN number = (model.applied(t, p.order_id, p.purchase_no)).receipt_no THEN model.to_close(t, p) END)::idem_confirm_payment_result;
END $$;

-- A payment's account is of its own channel.
CREATE FUNCTION model.account_at(p model.payments, channel text) RETURNS text LANGUAGE sql AS $$
	SELECT p.account WHERE coalesce(p.channel, $2) = $2 $$;

-- Is the account that was named wrong for this payment, or the one that is meant, if none was?
CREATE FUNCTION model.is_wrong_account(t text, p model.payments, channel text, named text, meant text) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(named <> p.account, false)
		OR (EXISTS (SELECT FROM idem_channel_account c WHERE c.tenant_id = t AND c.channel = is_wrong_account.channel)
			AND NOT EXISTS (SELECT FROM idem_channel_account c WHERE c.tenant_id = t AND c.channel = is_wrong_account.channel
				AND c.account = coalesce(named, meant, ''))) $$;

-- Give a receipt without a payment to one, as rule 1 (where asked) and 4 to 7 say.
CREATE FUNCTION model.adopt(t text, number text, p_no text, by_rule_1 boolean, differs boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r model.receipts;
	p model.payments := model.payment_of(t, p_no);
BEGIN
	SELECT * INTO r FROM model.receipts WHERE tenant_id = t AND receipt_no = number;
	IF by_rule_1 AND model.is_wrong_account(t, p, r.channel, nullif(r.account, ''), model.account_at(p, r.channel)) THEN
		UPDATE model.receipts SET disposition = 'rejected' WHERE tenant_id = t AND receipt_no = number;
		PERFORM model.resolve_anomaly(t, '{orphan}', 'receipt', number, 'rejected');
		PERFORM model.receipt_anomaly(t, number, 'rejected');
		RETURN 'rejected';
	END IF;
	PERFORM model.resolve_anomaly(t, '{orphan,rejected}', 'receipt', number, 'adopt');
	RETURN model.judge(t, number, p_no, differs);
END $$;

CREATE FUNCTION model.confirm_payment(tenant_id text, payment_no text, channel text, trade_no text, amount bigint, currency text,
	account text DEFAULT NULL, paid_at timestamptz DEFAULT NULL)
RETURNS idem_confirm_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	p model.payments;
	r model.receipts;
	cur text := CASE WHEN currency ~ '^[A-Za-z]{3}$' THEN upper(currency) ELSE currency END;
	acc text;
	number text;
	kind text;
	is_new boolean;
	differs boolean;
BEGIN
	PERFORM model.check_fact(payment_no, channel, trade_no);
	IF octet_length(account) > 255 THEN PERFORM model.raise('22023', 'account'); END IF;
	p := model.payment_of(t, payment_no);
	-- the account: as said, the payment's own at this channel, as this was reported before, or unknown
	acc := coalesce(account, model.account_at(p, channel));
	IF acc IS NULL THEN
		SELECT m.account INTO acc FROM model.receipts m WHERE m.tenant_id = t AND m.channel = confirm_payment.channel AND m.trade_no = confirm_payment.trade_no
			AND CASE WHEN p.payment_no IS NULL THEN m.reported_payment_no = confirm_payment.payment_no AND m.disposition = 'orphan' ELSE m.payment_no = p.payment_no END
		ORDER BY m.created_at, m.receipt_no LIMIT 1;
	END IF;
	acc := coalesce(acc, '');
	SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.channel = confirm_payment.channel AND m.trade_no = confirm_payment.trade_no
		AND (m.account = acc OR m.account = '' AND coalesce(m.payment_no, m.reported_payment_no) = confirm_payment.payment_no)
	ORDER BY m.account DESC LIMIT 1;
	is_new := NOT FOUND;

	IF NOT model.is_wrong_account(t, p, channel, account, acc) THEN
		SELECT m.receipt_no INTO number FROM model.receipts m
		WHERE m.tenant_id = t AND m.payment_no = confirm_payment.payment_no AND m.channel = confirm_payment.channel AND m.trade_no = confirm_payment.trade_no;
		IF FOUND THEN RETURN model.confirm_row(t, payment_no, 'duplicate', number); END IF;
		IF p.payment_no IS NULL THEN kind := 'orphan'; END IF;
	ELSE
		kind := 'rejected';
	END IF;
	IF r.payment_no IS NOT NULL THEN
		PERFORM model.open_anomaly(t, 'rejected', 'payment', payment_no, p.order_id, jsonb_build_object('payment_no', payment_no, 'channel', channel, 'account', acc,
			'trade_no', trade_no, 'amount', amount, 'currency', cur));
		RETURN model.confirm_row(t, payment_no, 'rejected', NULL);
	END IF;

	IF is_new THEN
		SELECT c.receipt_no INTO number FROM idem_receipt c
		WHERE c.tenant_id = t AND c.channel = confirm_payment.channel AND c.account = acc AND c.trade_no = confirm_payment.trade_no;
		number := coalesce(number, 'only in the model: receipt of ' || trade_no);
		INSERT INTO model.receipts (tenant_id, receipt_no, channel, account, trade_no, reported_payment_no, amount, currency, disposition, paid_at, created_at)
		VALUES (t, number, channel, acc, trade_no, payment_no, amount, cur, coalesce(kind, 'orphan'), paid_at, model.now());
	ELSIF r.refund_reserved + r.disputed > 0 THEN
		RETURN model.confirm_row(t, payment_no, r.disposition, r.receipt_no);
	ELSE
		number := r.receipt_no;
	END IF;

	IF kind IS NOT NULL THEN
		UPDATE model.receipts m SET disposition = kind WHERE m.tenant_id = t AND m.receipt_no = number;
		IF r.disposition <> kind THEN PERFORM model.resolve_anomaly(t, ARRAY[r.disposition]::text[], 'receipt', number, kind); END IF;
		PERFORM model.receipt_anomaly(t, number, kind);
		RETURN model.confirm_row(t, payment_no, kind, number);
	END IF;
	differs := NOT is_new AND (r.amount, r.currency) IS DISTINCT FROM (amount, cur::text);
	IF is_new THEN
		RETURN model.confirm_row(t, payment_no, model.judge(t, number, payment_no, false), number);
	END IF;
	RETURN model.confirm_row(t, payment_no, model.adopt(t, number, payment_no, false, differs), number);
END $$;

CREATE FUNCTION model.adopt_receipt(tenant_id text, receipt_no text, payment_no text) RETURNS idem_confirm_payment_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	p model.payments;
	r model.receipts;
BEGIN
	PERFORM model.check_key('receipt_no', receipt_no), model.check_key('payment_no', payment_no);
	SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.receipt_no = adopt_receipt.receipt_no;
	IF NOT FOUND THEN PERFORM model.raise('ID006', 'receipt'); END IF;
	p := model.payment_named(t, payment_no);
	IF r.payment_no = payment_no THEN
		RETURN model.confirm_row(t, payment_no, 'duplicate', r.receipt_no);
	ELSIF r.payment_no IS NOT NULL OR r.refund_reserved + r.disputed > 0
		OR EXISTS (SELECT FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = p.payment_no AND m.channel = r.channel AND m.trade_no = r.trade_no)
	THEN
		RETURN model.confirm_row(t, payment_no, 'refused', NULL);
	END IF;
	RETURN model.confirm_row(t, payment_no, model.adopt(t, r.receipt_no, payment_no, false), r.receipt_no);
END $$;

CREATE FUNCTION model.refund_receipt(tenant_id text, receipt_no text, reason text) RETURNS idem_refund_receipt_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	r model.receipts;
	f model.refunds;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('receipt_no', receipt_no), model.because(reason);
	SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.receipt_no = refund_receipt.receipt_no;
	IF NOT FOUND THEN PERFORM model.raise('ID006', 'receipt'); END IF;
	IF r.disposition IN ('orphan', 'rejected') THEN
		IF EXISTS (SELECT FROM model.refunds m WHERE m.tenant_id = t AND m.refund_no = 'A' || r.receipt_no) THEN
			outcome := 'duplicate';
		ELSIF model.makes_sense(r) AND model.remainder(r) > 0 THEN
			outcome := 'requested';
			PERFORM model.refund_rest(t, r.receipt_no, 'orphan', reason);
			PERFORM model.resolve_anomaly(t, '{orphan,rejected}', 'receipt', r.receipt_no, 'refund', reason);
		END IF;
	END IF;
	SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.receipt_no = refund_receipt.receipt_no;
	SELECT * INTO f FROM model.refunds m WHERE m.tenant_id = t AND m.refund_no = 'A' || r.receipt_no AND outcome <> 'refused';
	RETURN ROW (outcome, CASE WHEN outcome <> 'refused' THEN model.refund_handle(t, r.receipt_no) END, f.status, f.amount, model.remainder(r))::idem_refund_receipt_result;
END $$;

CREATE FUNCTION model.resolve_review(tenant_id text, payment_no text, decision text, reason text, receipt_no text DEFAULT NULL)
RETURNS idem_resolve_review_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	p model.payments;
	o model.orders;
	r model.receipts;
	was_in_review boolean;
	outcome text := 'refused';
	shown text;
BEGIN
	PERFORM model.check_key('payment_no', payment_no), model.check_key('receipt_no', receipt_no, false), model.because(reason);
	IF decision IS NULL THEN PERFORM model.raise('22004', 'decision'); END IF;
	IF decision NOT IN ('accept', 'refund') THEN PERFORM model.raise('22023', 'decision'); END IF;
	p := model.payment_named(t, payment_no);
	o := model.order_of(t, p.order_id);
	IF receipt_no IS NOT NULL THEN
		SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.receipt_no = resolve_review.receipt_no;
		IF NOT FOUND THEN PERFORM model.raise('ID006', 'receipt'); END IF;
	END IF;
	was_in_review := EXISTS (SELECT FROM model.moves m WHERE m.tenant_id = t AND m.entity = 'payment' AND m.key = p.payment_no AND m.to_state = 'review');

	IF p.status = 'review' THEN
		IF receipt_no IS NULL THEN
			IF decision = 'accept' AND (SELECT count(*) FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = p.payment_no AND m.disposition = 'mismatch') > 1 THEN
				PERFORM model.raise('22023', 'receipt_no');
			END IF;
			SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = p.payment_no AND m.disposition = 'mismatch' ORDER BY created_at LIMIT 1;
		END IF;
		IF r.payment_no IS DISTINCT FROM p.payment_no OR r.disposition <> 'mismatch' THEN
			NULL;
		ELSIF decision = 'accept' THEN
			IF model.makes_sense(r) AND r.refund_reserved + r.disputed = 0 AND coalesce(o.status NOT IN ('cancelled', 'expired') AND NOT (o.status = 'refunded' AND p.purchase_no = 1), true)
				AND (model.applied(t, p.order_id, p.purchase_no)).receipt_no IS NULL
			THEN
				outcome := 'accepted';
				PERFORM model.resolve_anomaly(t, '{mismatch}', 'receipt', r.receipt_no, 'accept', reason);
				PERFORM model.pay(t, r.receipt_no, p);
			END IF;
		ELSE
			outcome := 'refunded';
			shown := model.refund_handle(t, r.receipt_no);
			PERFORM model.refund_rest(t, m.receipt_no, 'mismatch', reason),
				CASE WHEN model.makes_sense(m) THEN model.resolve_anomaly(t, '{mismatch}', 'receipt', m.receipt_no, 'refund', reason) END
			FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = p.payment_no AND m.disposition = 'mismatch';
			PERFORM model.payment_to(t, payment_no, 'paid_late');
		END IF;
	ELSIF was_in_review AND decision = 'accept' AND p.status = 'paid' THEN
		SELECT * INTO r FROM model.applied(t, p.order_id, p.purchase_no);
		IF coalesce(r.receipt_no = receipt_no, true) THEN outcome := 'duplicate'; END IF;
		r := NULL;
	ELSIF was_in_review AND decision = 'refund' AND p.status = 'paid_late' THEN
		SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = p.payment_no AND m.receipt_no = coalesce(resolve_review.receipt_no, m.receipt_no)
			AND m.disposition = 'mismatch' ORDER BY created_at LIMIT 1;
		IF FOUND THEN outcome := 'duplicate'; END IF;
	END IF;
	RETURN ROW (outcome, (model.payment_of(t, payment_no)).status,
		CASE WHEN outcome IN ('refunded', 'duplicate') AND decision = 'refund' THEN model.refund_handle(t, r.receipt_no) END)::idem_resolve_review_result;
END $$;
