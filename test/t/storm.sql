-- What the notification storms share: deliveries, who makes them, and what is
-- on the books afterwards.

-- Bodies of the channels, or calls of ours that happen among them.
CREATE TABLE delivery (
	round int, session int, n int,
	channel text,			-- NULL: body is a statement
	body text,
	outcome text, ack boolean,
	PRIMARY KEY (round, session, n));

-- deliver(round, session): what that session has to deliver, each in a transaction of its own
CREATE PROCEDURE deliver(of_round int, of_session int) LANGUAGE plpgsql AS $$
DECLARE
	d delivery;
	a record;
BEGIN
	FOR d IN SELECT * FROM delivery WHERE round = of_round AND session = of_session AND ack IS NULL ORDER BY n LOOP
		IF d.channel IS NULL THEN
			EXECUTE d.body;
			UPDATE delivery SET ack = true WHERE round = d.round AND session = d.session AND n = d.n;
		ELSE
			EXECUTE format('SELECT * FROM %I($1)',
				CASE d.channel WHEN 'stripe' THEN 'idem_stripe_event' ELSE 'idem_' || d.channel || '_notification' END)
				INTO a USING d.body::jsonb;
			UPDATE delivery SET outcome = a.outcome, ack = a.ack WHERE round = d.round AND session = d.session AND n = d.n;
		END IF;
		COMMIT;
	END LOOP;
END $$;

-- One order a set of bodies, one payment an order, and the refunds that we asked for ourselves.
CREATE PROCEDURE set_scene(tenant text, no text) LANGUAGE plpgsql AS $$
DECLARE
	p text;
	r record;
BEGIN
	PERFORM idem_set_channel_account(tenant, channel, account) FROM (VALUES
		('alipay', '208802' || no), ('wechat', no), ('stripe', 'acct_000000' || no)) AS own (channel, account);
	FOREACH p IN ARRAY '{A01,A02,A03,A04,A05,A06,W01,W02,W03,S01,S02,S03,S04,S05,S06}'::text[] LOOP
		PERFORM idem_create_order(tenant, 'order ' || p, 8888, CASE WHEN p LIKE 'S%' THEN 'USD' ELSE 'CNY' END);
		PERFORM idem_create_payment(tenant, 'order ' || p, 8888, CASE WHEN p LIKE 'S%' THEN 'USD' ELSE 'CNY' END, payment_no => p || '-' || no);
	END LOOP;
	PERFORM idem_cancel_order(tenant, 'order A06');
END $$;

-- What we do once the money is there: rights are granted, refunds asked for, as if it were then.
CREATE FUNCTION ask_refunds(tenant text, no text) RETURNS void LANGUAGE sql AS $$
	SELECT count((idem_grant_entitlement(tenant, 'grant ' || p, 'reader', 'pages', 10, p || '-' || no)).outcome)
	FROM unnest('{A01,A03,A04,A05,W03,S03,S04,S05}'::text[]) AS p;
	SELECT count((idem_submit_refund(tenant, r.refund_no)).outcome)
	FROM (VALUES ('A03', 'R03', 3000, 'CNY'), ('A04', 'R04', 3000, 'CNY'), ('W03', 'RW3a', 3000, 'CNY'), ('W03', 'RW3b', 2000, 'CNY'), ('W03', 'RW3c', 500, 'CNY'),
		('S03', 'RS3', 3000, 'USD'), ('S04', 'RS4', 3000, 'USD')) AS ours (payment, refund, amount, currency),
		idem_request_refund(tenant, payment || '-' || no, refund || '-' || no, amount, currency) AS r;
	UPDATE idem_refund SET submitted_at = '2024-05-01 20:00:00+08' WHERE tenant_id = tenant AND submitted_at IS NOT NULL
$$;

-- The books of a tenant without what differs from one to the next: its numbers,
-- how one refund of the channel's own was cut into several, how often and in
-- which order things were told.
CREATE FUNCTION books(tenant text, no text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(replace(line, no, 'N'), E'\n' ORDER BY line COLLATE "C") FROM (
		SELECT format('order %s: %s', order_id, status) AS line FROM idem_order WHERE tenant_id = tenant
		UNION ALL SELECT format('payment %s: %s', payment_no, status) FROM idem_payment WHERE tenant_id = tenant
		UNION ALL SELECT format('receipt %s: %s %s %s, reserved %s, refunded %s, disputed %s, excess %s', reported_payment_no, disposition, amount, currency, refund_reserved, refunded, disputed, excess)
			FROM idem_receipt WHERE tenant_id = tenant
		UNION ALL SELECT format('refund %s: %s %s', CASE WHEN cause = 'request' THEN refund_no ELSE cause || ' of ' || payment_no END, status, sum(amount))
			FROM idem_refund WHERE tenant_id = tenant GROUP BY CASE WHEN cause = 'request' THEN refund_no ELSE cause || ' of ' || payment_no END, status
		UNION ALL SELECT format('%s: %s, %s of %s revoked', grant_key, status, revoked, quantity) FROM idem_entitlement WHERE tenant_id = tenant
		UNION ALL SELECT format('dispute %s: %s %s', dispute_no, stage, amount) FROM idem_dispute WHERE tenant_id = tenant
		UNION ALL SELECT format('anomaly of %s: %s', order_id, string_agg(kind, ', ' ORDER BY kind)) FROM idem_anomaly WHERE tenant_id = tenant AND status = 'opened' GROUP BY order_id
		UNION ALL SELECT format('notification %s/%s: %s', channel, notify_id, kind) FROM idem_notification WHERE tenant_id = tenant
	) AS lines
$$;

-- Moves without an event of their own, or events without a move.
CREATE FUNCTION unannounced(tenant text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM idem_history h FULL JOIN (SELECT * FROM idem_outbox WHERE tenant_id = tenant) o ON o.id = h.event_id AND o.tenant_id = h.tenant_id
	WHERE coalesce(h.tenant_id, o.tenant_id) = tenant AND (h.event_id IS NULL OR o.id IS NULL OR o.type <> h.entity || '.' || h.to_state)
$$;

-- Deliveries that were not counted, or counted twice.
CREATE FUNCTION uncounted(tenant text, of_round int) RETURNS bigint LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM delivery WHERE round = of_round AND outcome IS NOT NULL)
		- (SELECT coalesce(sum(hits), 0) FROM idem_notification WHERE tenant_id = tenant)::bigint
		- (SELECT coalesce(sum(hits), 0) FROM idem_notification WHERE tenant_id = 'unrouted' AND (routed_to = tenant OR routed_to IS NULL))::bigint
$$;
