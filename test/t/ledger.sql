-- The twin's second half: money that goes back, what banks take back, what is
-- granted for money, and what channels tell of it all.  Written from the
-- contract, as model.sql, from which it goes on.
--
-- The twin keeps no sums.  It counts what a receipt's refunds and disputes are,
-- and what of a campaign stands, each time it is asked; the extension's
-- counters have to be just that.

CREATE TABLE model.disputes (LIKE idem_dispute INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, channel, account, dispute_no));
CREATE TABLE model.entitlements (LIKE idem_entitlement INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, grant_key));
CREATE TABLE model.revocations (LIKE idem_revocation INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, grant_key, revoke_no));
CREATE TABLE model.campaigns (LIKE idem_campaign INCLUDING DEFAULTS, PRIMARY KEY (tenant_id, campaign));
CREATE TABLE model.notifications (tenant_id text COLLATE "C", channel text COLLATE "C", account text COLLATE "C", notify_id text COLLATE "C",
	said jsonb, kind text COLLATE "C", outcome text COLLATE "C", ack boolean, hits bigint, PRIMARY KEY (tenant_id, channel, account, notify_id));
CREATE INDEX ON model.refunds (tenant_id, receipt_no);

CREATE FUNCTION model.given(value text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce(value <> '', false) $$;

CREATE FUNCTION model.is_amount(amount bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce(amount > 0, false) $$;

CREATE FUNCTION model.is_currency(currency text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce(currency ~ '^[A-Za-z]{3}$', false) $$;

-- ---- the receipt ----------------------------------------------------------------

CREATE FUNCTION model.receipt_of(t text, number text) RETURNS model.receipts LANGUAGE sql AS $$
	SELECT * FROM model.receipts WHERE tenant_id = t AND receipt_no = number $$;

-- The receipt of a trade; one whose account is unknown may be on any.
CREATE FUNCTION model.receipt_of_trade(t text, channel text, account text, trade_no text) RETURNS model.receipts LANGUAGE sql AS $$
	SELECT * FROM model.receipts r WHERE r.tenant_id = t AND r.channel = $2 AND r.channel <> '' AND r.trade_no = $4 AND r.trade_no <> ''
		AND r.account IN (coalesce($3, ''), '') ORDER BY r.account DESC LIMIT 1 $$;

-- Refunds reserve until they definitely failed; what exceeds the receipt is its excess.
CREATE FUNCTION model.count_receipt(t text, number text) RETURNS void LANGUAGE sql AS $$
	UPDATE model.receipts r SET refund_reserved = f.reserved, refunded = f.refunded, disputed = d.disputed,
		excess = greatest(f.reserved + d.disputed - greatest(coalesce(r.amount, 0), 0), 0)
	FROM (SELECT coalesce(sum(amount) FILTER (WHERE status IN ('requested', 'processing', 'abnormal', 'succeeded')), 0) AS reserved,
			coalesce(sum(amount) FILTER (WHERE status = 'succeeded'), 0) AS refunded
			FROM model.refunds WHERE tenant_id = t AND receipt_no = number) AS f,
		(SELECT coalesce(sum(amount), 0) AS disputed FROM model.disputes WHERE tenant_id = t AND receipt_no = number AND stage <> 'won') AS d
	WHERE r.tenant_id = t AND r.receipt_no = number $$;

-- ---- refunds: rows ----------------------------------------------------------------

CREATE FUNCTION model.refund_of(t text, number text) RETURNS model.refunds LANGUAGE sql AS $$
	SELECT * FROM model.refunds WHERE tenant_id = t AND refund_no = number $$;

CREATE FUNCTION model.refund_named(t text, number text) RETURNS model.refunds LANGUAGE plpgsql AS $$
DECLARE f model.refunds := model.refund_of(t, number);
BEGIN
	IF f.refund_no IS NULL THEN PERFORM model.raise('ID006', 'refund'); END IF;
	RETURN f;
END $$;

CREATE FUNCTION model.refund_to(t text, number text, state text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE was model.refunds := model.refund_of(t, number);
BEGIN
	UPDATE model.refunds SET status = state, held = false, version = version + 1 WHERE tenant_id = t AND refund_no = number;
	PERFORM model.moved(t, 'refund', number, was.version + 1, was.status, state), model.count_receipt(t, was.receipt_no);
END $$;

CREATE FUNCTION model.insert_refund(t text, number text, r model.receipts, amount bigint, cause text, reason text, crn text, check_at timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO model.refunds (tenant_id, refund_no, receipt_no, payment_no, order_id, purchase_no, channel, account, channel_refund_no, amount, currency,
		status, cause, reason, created_at, next_check_at)
	VALUES (t, number, r.receipt_no, r.payment_no, r.order_id, r.purchase_no, r.channel, r.account, crn, amount, r.currency,
		'requested', cause, reason, model.now(), check_at);
	PERFORM model.moved(t, 'refund', number, 1, NULL, 'requested', 'request'), model.count_receipt(t, r.receipt_no);
END $$;

CREATE FUNCTION model.is_live(f model.refunds) RETURNS boolean LANGUAGE sql AS $$ SELECT f.status IN ('requested', 'processing') $$;

-- ---- refunds: what callers ask ------------------------------------------------------

CREATE FUNCTION model.request_refund(tenant_id text, payment_no text, refund_no text, amount bigint, currency text, reason text DEFAULT NULL,
	receipt_no text DEFAULT NULL)
RETURNS idem_request_refund_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	f model.refunds;
	p model.payments;
	r model.receipts;
	outcome text := 'requested';
BEGIN
	PERFORM model.check_key('payment_no', payment_no), model.check_key('refund_no', refund_no), model.check_money(amount, currency, 1),
		model.check_key('receipt_no', receipt_no, false), model.because(reason);
	IF refund_no ~ '^A[0-9]+$' THEN PERFORM model.raise('22023', 'refund_no'); END IF;
	f := model.refund_of(t, refund_no);
	IF f.refund_no IS NOT NULL THEN
		IF f.payment_no IS DISTINCT FROM payment_no OR f.receipt_no <> receipt_no OR f.amount <> amount OR f.currency <> upper(currency) THEN
			PERFORM model.raise('ID001', 'refund');
		END IF;
		r := model.receipt_of(t, f.receipt_no);
		RETURN ROW ('replayed', CASE WHEN model.is_live(f) THEN f.refund_no END, f.status, f.amount, model.remainder(r))::idem_request_refund_result;
	END IF;

	p := model.payment_named(t, payment_no);
	IF receipt_no IS NOT NULL THEN
		r := model.receipt_of(t, receipt_no);
		IF r.payment_no IS DISTINCT FROM payment_no THEN PERFORM model.raise('ID006', 'receipt'); END IF;
	ELSIF p.status <> 'paid' THEN
		RETURN ROW ('not_paid', NULL, NULL, NULL, NULL)::idem_request_refund_result;
	ELSE
		r := model.applied(t, p.order_id, p.purchase_no);
	END IF;
	IF model.makes_sense(r) AND r.currency <> upper(currency) THEN PERFORM model.raise('22023', 'currency'); END IF;
	IF NOT model.makes_sense(r) OR amount > model.remainder(r) THEN
		RETURN ROW ('exceeds', NULL, NULL, NULL, model.remainder(r))::idem_request_refund_result;
	END IF;
	PERFORM model.insert_refund(t, refund_no, r, amount, 'request', reason, NULL, model.now() + '1 minute');
	RETURN ROW ('requested', refund_no, 'requested', amount, model.remainder(model.receipt_of(t, r.receipt_no)))::idem_request_refund_result;
END $$;

-- What the channel has to be told, while it may be told.
CREATE FUNCTION model.sent_row(t text, number text, outcome text) RETURNS idem_submit_refund_result LANGUAGE plpgsql AS $$
DECLARE
	f model.refunds := model.refund_of(t, number);
BEGIN
	IF f.status <> 'processing' THEN
		RETURN ROW (outcome, f.status, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::idem_submit_refund_result;
	END IF;
	RETURN ROW (outcome, f.status, f.refund_no, f.payment_no, f.amount, f.currency, f.channel, f.account,
		(model.receipt_of(t, f.receipt_no)).trade_no)::idem_submit_refund_result;
END $$;

CREATE FUNCTION model.send_off(t text, number text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE model.refunds SET submitted_at = model.now(), next_check_at = model.now() + '1 minute' WHERE tenant_id = t AND refund_no = number;
	PERFORM model.refund_to(t, number, 'processing');
END $$;

CREATE FUNCTION model.submit_refund(tenant_id text, refund_no text) RETURNS idem_submit_refund_result LANGUAGE plpgsql AS $$
DECLARE
	f model.refunds;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('refund_no', refund_no);
	f := model.refund_named(tenant_id, refund_no);
	IF f.status = 'processing' THEN
		outcome := 'already_processing';
	ELSIF f.status = 'requested' AND (model.receipt_of(tenant_id, f.receipt_no)).excess = 0 THEN
		outcome := 'processing';
		PERFORM model.send_off(tenant_id, refund_no);
	END IF;
	RETURN model.sent_row(tenant_id, refund_no, outcome);
END $$;

CREATE FUNCTION model.retry_refund(tenant_id text, refund_no text) RETURNS idem_submit_refund_result LANGUAGE plpgsql AS $$
DECLARE
	f model.refunds;
	r model.receipts;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('refund_no', refund_no);
	f := model.refund_named(tenant_id, refund_no);
	r := model.receipt_of(tenant_id, f.receipt_no);
	IF f.status = 'processing' THEN
		outcome := 'already_processing';
	ELSIF f.status IN ('failed', 'abnormal') THEN
		outcome := CASE WHEN f.status = 'failed' AND f.amount > model.remainder(r) OR f.status = 'abnormal' AND r.excess > 0 THEN 'exceeds' ELSE 'processing' END;
		IF outcome = 'processing' THEN
			PERFORM model.send_off(tenant_id, refund_no);
			IF f.status = 'abnormal' THEN PERFORM model.resolve_anomaly(tenant_id, '{refund_abnormal}', 'refund', refund_no, 'retry'); END IF;
		END IF;
	END IF;
	RETURN model.sent_row(tenant_id, refund_no, outcome);
END $$;

CREATE FUNCTION model.cancel_refund(tenant_id text, refund_no text) RETURNS idem_cancel_refund_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	f model.refunds;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('refund_no', refund_no);
	f := model.refund_named(tenant_id, refund_no);
	IF f.status = 'cancelled' THEN
		outcome := 'already_cancelled';
	ELSIF f.status = 'requested' THEN
		outcome := 'cancelled';
		UPDATE model.refunds m SET next_check_at = NULL WHERE m.tenant_id = cancel_refund.tenant_id AND m.refund_no = f.refund_no;
		PERFORM model.refund_to(tenant_id, refund_no, 'cancelled');
	END IF;
	RETURN ROW (outcome, (model.refund_of(tenant_id, refund_no)).status, model.remainder(model.receipt_of(tenant_id, f.receipt_no)))::idem_cancel_refund_result;
END $$;

-- ---- refunds: what channels tell ------------------------------------------------------

CREATE TYPE model.refund_fact AS (refund_no text, payment_no text, channel text, account text, trade_no text, channel_refund_no text,
	amount bigint, currency text, occurred_at timestamptz, result text, cumulative boolean, reversing boolean);

CREATE TYPE model.refund_answer AS (outcome text, status text, refund_no text, receipt_no text, payment_no text, remainder bigint);

-- Does the fact agree with all that is known of this money?
CREATE FUNCTION model.fits(f model.refund_fact, r model.receipts) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(f.channel = r.channel, true) AND coalesce(f.trade_no = r.trade_no, true)
		AND (NOT model.given(f.account) OR r.account IN ('', f.account))
		AND coalesce(f.payment_no = coalesce(r.payment_no, r.reported_payment_no), true) $$;

-- The only receipt of the payment that fits, or the applied one; before it is
-- there its orphans; else the trade's.
CREATE FUNCTION model.money_of(t text, f model.refund_fact) RETURNS model.receipts LANGUAGE plpgsql AS $$
DECLARE
	found model.receipts[];
	r model.receipts;
BEGIN
	IF model.given(f.payment_no) THEN
		SELECT array_agg(m) INTO found FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = f.payment_no AND model.fits(f, m);
		IF found IS NULL THEN
			SELECT array_agg(m) INTO found FROM model.receipts m
			WHERE m.tenant_id = t AND m.payment_no IS NULL AND m.disposition = 'orphan' AND m.reported_payment_no = f.payment_no AND model.fits(f, m);
		END IF;
		SELECT (m).* INTO r FROM unnest(found) AS m WHERE cardinality(found) = 1 OR (m).disposition = 'applied';
		IF r.receipt_no IS NOT NULL THEN RETURN r; END IF;
	END IF;
	r := model.receipt_of_trade(t, f.channel, f.account, f.trade_no);
	IF NOT model.fits(f, r) THEN r := NULL; END IF;
	RETURN r;
END $$;

CREATE FUNCTION model.refund_at_channel(t text, channel text, account text, number text) RETURNS model.refunds LANGUAGE sql AS $$
	SELECT * FROM model.refunds f WHERE f.tenant_id = t AND f.channel = $2 AND f.account = $3 AND f.channel_refund_no = $4 $$;

-- By our number, else by the channel's.
CREATE FUNCTION model.refund_meant(t text, f model.refund_fact, r model.receipts) RETURNS model.refunds LANGUAGE plpgsql AS $$
DECLARE
	x model.refunds := model.refund_of(t, f.refund_no);
BEGIN
	IF x.refund_no IS NOT NULL OR NOT model.given(f.channel_refund_no) THEN RETURN x; END IF;
	IF r.receipt_no IS NOT NULL THEN RETURN model.refund_at_channel(t, r.channel, r.account, f.channel_refund_no); END IF;
	IF model.given(f.account) THEN x := model.refund_at_channel(t, f.channel, f.account, f.channel_refund_no); END IF;
	IF x.refund_no IS NULL THEN x := model.refund_at_channel(t, f.channel, '', f.channel_refund_no); END IF;
	RETURN x;
END $$;

-- The number of a refund that is taken over.
CREATE FUNCTION model.adopted_no(f model.refund_fact, receipt_no text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(nullif(f.refund_no, ''), 'C' || nullif(f.channel_refund_no, ''), CASE WHEN f.cumulative THEN 'C' || receipt_no || '-' || f.amount END) $$;

-- What a human will see of the fact.
CREATE FUNCTION model.refund_detail(x model.refunds, f model.refund_fact) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('result', f.result, 'refund_no', f.refund_no, 'channel_refund_no', f.channel_refund_no, 'payment_no', f.payment_no, 'channel', f.channel,
		'account', f.account, 'trade_no', f.trade_no, CASE WHEN f.cumulative THEN 'cumulative_amount' ELSE 'amount' END, f.amount, 'currency', f.currency)
		|| CASE WHEN x.refund_no IS NOT NULL THEN jsonb_build_object('our_amount', x.amount) ELSE '{}' END $$;

CREATE FUNCTION model.refund_anomaly(t text, kind text, x model.refunds, r model.receipts, f model.refund_fact) RETURNS void LANGUAGE sql AS $$
	SELECT model.open_anomaly(t, kind, 'refund', coalesce(x.refund_no, model.adopted_no(f, r.receipt_no), nullif(f.trade_no, ''), f.payment_no, ''), r.order_id,
		model.refund_detail(x, f)) $$;

-- What a word means for a refund as it stands: an outcome, and where it leads.
CREATE FUNCTION model.refund_verdict(f model.refund_fact, x model.refunds, OUT outcome text, OUT moves text[]) LANGUAGE plpgsql AS $$
DECLARE
	second constant interval := '1 second';
	older_attempt boolean := coalesce(f.occurred_at < x.submitted_at - second, false);
	older boolean := coalesce(f.occurred_at < x.settled_at, false);
	back text[] := CASE WHEN x.takes_back AND older THEN '{reversed}' ELSE '{}' END;
BEGIN
	outcome := 'stale';
	moves := '{}';
	IF f.result = 'succeeded' THEN
		IF x.status = 'succeeded' THEN
			outcome := 'duplicate';
		ELSIF x.status IN ('failed', 'closed', 'abnormal') OR (x.status <> 'reversed' AND back = '{}') THEN
			outcome := 'applied';
			moves := '{succeeded}' || back;
		END IF;
	ELSIF f.result = 'reversed' THEN
		outcome := CASE x.status WHEN 'reversed' THEN 'duplicate' ELSE 'applied' END;
		moves := CASE x.status WHEN 'reversed' THEN '{}' WHEN 'succeeded' THEN '{reversed}' ELSE '{succeeded,reversed}' END;
	ELSIF f.result = 'timeout' THEN
		IF x.status IN ('requested', 'processing', 'abnormal') THEN outcome := 'kept'; END IF;
	ELSIF f.result = x.status OR (x.status = 'reversed' AND f.reversing) THEN
		outcome := 'duplicate';
	ELSIF x.status IN ('requested', 'processing', 'abnormal') AND NOT older_attempt THEN
		outcome := 'applied';
		moves := ARRAY[f.result];
	ELSIF x.status = 'succeeded' AND f.reversing AND NOT older AND NOT older_attempt THEN
		outcome := 'applied';
		moves := '{reversed}';
	END IF;
END $$;

-- What depends on how much of the money went back.
CREATE FUNCTION model.refund_follows(t text, number text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	x model.refunds := model.refund_of(t, number);
	r model.receipts := model.receipt_of(t, x.receipt_no);
BEGIN
	IF r.disposition = 'applied' AND r.purchase_no = 1 THEN PERFORM model.order_follows(t, r.order_id); END IF;
	PERFORM model.entitlements_follow(t, r, number);
	IF x.status = 'succeeded' AND r.disposition IN ('late', 'surplus') AND (r.refunded >= r.amount OR number = 'A' || r.receipt_no) THEN
		PERFORM model.resolve_anomaly(t, ARRAY[r.disposition]::text[], 'receipt', r.receipt_no, 'refund');
	END IF;
END $$;

-- Make one move of a refund, with all that depends on it.  A success that was
-- taken back is older than what took it back.
CREATE FUNCTION model.settle_to(t text, number text, state text, f model.refund_fact, was_taken_back boolean, follows boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	x model.refunds;
	r model.receipts;
BEGIN
	UPDATE model.refunds SET settled_at = CASE WHEN was_taken_back THEN settled_at ELSE f.occurred_at END, next_check_at = CASE WHEN state <> 'reversed' THEN NULL ELSE next_check_at END,
		takes_back = CASE state WHEN 'reversed' THEN takes_back WHEN 'succeeded' THEN false ELSE f.reversing END,
		succeeded_at = CASE WHEN state <> 'succeeded' THEN succeeded_at WHEN f.result = 'succeeded' THEN f.occurred_at END
	WHERE tenant_id = t AND refund_no = number;
	PERFORM model.refund_to(t, number, state);
	x := model.refund_of(t, number);
	r := model.receipt_of(t, x.receipt_no);
	IF follows AND state IN ('succeeded', 'reversed') THEN PERFORM model.refund_follows(t, number); END IF;
	IF state = 'reversed' THEN PERFORM model.refund_anomaly(t, 'refund_reversed', x, r, f); END IF;
	IF state = 'abnormal' THEN PERFORM model.refund_anomaly(t, 'refund_abnormal', x, r, f); END IF;
END $$;

-- A known refund is told of.
CREATE FUNCTION model.settle_known(t text, number text, f model.refund_fact, excess bigint, follows boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	x model.refunds := model.refund_of(t, number);
	r model.receipts;
	outcome text;
	moves text[];
	state text;
BEGIN
	SELECT * INTO outcome, moves FROM model.refund_verdict(f, x);
	IF moves <> '{}' THEN
		UPDATE model.refunds SET channel_refund_no = coalesce(f.channel_refund_no, channel_refund_no) WHERE tenant_id = t AND refund_no = number;
	ELSIF x.channel_refund_no IS NULL AND f.channel_refund_no IS NOT NULL OR (outcome = 'kept' AND coalesce(x.next_check_at > model.now(), true))
		OR (f.result = 'succeeded' AND x.status = 'reversed' AND x.succeeded_at IS NULL AND f.occurred_at IS NOT NULL)
	THEN
		UPDATE model.refunds SET version = version + 1, succeeded_at = CASE WHEN f.result = 'succeeded' AND status = 'reversed' THEN coalesce(succeeded_at, f.occurred_at) ELSE succeeded_at END, channel_refund_no = coalesce(channel_refund_no, f.channel_refund_no),
			next_check_at = CASE WHEN outcome = 'kept' THEN least(next_check_at, model.now()) ELSE next_check_at END
		WHERE tenant_id = t AND refund_no = number;
	END IF;
	FOREACH state IN ARRAY moves LOOP
		PERFORM model.settle_to(t, number, state, f, f.result = 'succeeded' AND 'reversed' = ANY (moves), follows);
	END LOOP;
	IF moves <> '{}' THEN
		r := model.receipt_of(t, x.receipt_no);
		IF x.status = 'abnormal' THEN
			PERFORM model.resolve_anomaly(t, '{refund_abnormal}', 'refund', number, (model.refund_of(t, number)).status);
		END IF;
		IF NOT f.cumulative AND f.amount <> x.amount OR upper(f.currency) <> x.currency THEN PERFORM model.refund_anomaly(t, 'refund_amount_differs', x, r, f); END IF;
		IF follows AND r.excess > excess THEN PERFORM model.open_anomaly(t, 'over_refund', 'receipt', r.receipt_no, r.order_id, model.refund_detail(x, f)); END IF;
	END IF;
	RETURN outcome;
END $$;

-- ---- refunds: sums ----------------------------------------------------------------

-- The receipt with the sum noted, unless a later one is known.
CREATE FUNCTION model.with_sum(r model.receipts, f model.refund_fact) RETURNS model.receipts LANGUAGE plpgsql AS $$
BEGIN
	IF (CASE WHEN f.occurred_at <> r.refund_told_at THEN f.occurred_at > r.refund_told_at ELSE f.amount > r.refund_told END) THEN
		r.refund_told := f.amount;
		r.refund_told_at := f.occurred_at;
	END IF;
	RETURN r;
END $$;

-- Can the latest sum contain it?  Not what is on its way no more, came back
-- before, was never there, or is somebody else's and younger.
CREATE FUNCTION model.may_contain(r model.receipts, f model.refunds) RETURNS boolean LANGUAGE sql AS $$
	SELECT CASE WHEN f.status IN ('processing', 'abnormal') THEN true
		WHEN f.status IN ('succeeded', 'reversed') AND f.cause = 'channel' AND coalesce(f.succeeded_at > r.refund_told_at, f.succeeded_at = 'infinity', false) THEN false
		WHEN f.status = 'succeeded' THEN true
		ELSE (f.status = 'reversed' OR f.takes_back) AND coalesce(f.settled_at > r.refund_told_at, true) END $$;

-- What of it has to be booked.
CREATE FUNCTION model.gap(t text, r model.receipts) RETURNS bigint LANGUAGE sql AS $$
	SELECT greatest(r.refund_told - coalesce(sum(f.amount), 0), 0) FROM model.refunds f WHERE f.tenant_id = t AND f.receipt_no = r.receipt_no AND model.may_contain(r, f) $$;

-- The number of the next nameless refund: the books can reach a sum more than once.
CREATE FUNCTION model.nameless_no(t text, r model.receipts, reached bigint) RETURNS text LANGUAGE sql AS $$
	SELECT number FROM (SELECT 'C' || r.receipt_no || '-' || reached || CASE WHEN n = 1 THEN '' ELSE '-' || n END AS number, n FROM generate_series(1, 1000) AS n) AS numbers
	WHERE NOT EXISTS (SELECT FROM model.refunds f WHERE f.tenant_id = t AND f.refund_no = number) ORDER BY n LIMIT 1 $$;

-- Book a refund that nobody knows.
CREATE FUNCTION model.adopt_refund(t text, number text, r model.receipts, f model.refund_fact, amount bigint, follows boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.insert_refund(t, number, r, amount, 'channel', NULL, f.channel_refund_no, NULL);
	RETURN model.settle_known(t, number, f, r.excess, follows);
END $$;

-- Book that much of the sum without a name.
CREATE FUNCTION model.book_nameless(t text, receipt_no text, amount bigint, follows boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r model.receipts := model.receipt_of(t, receipt_no);
BEGIN
	IF amount > 0 THEN
		PERFORM model.adopt_refund(t, model.nameless_no(t, r, r.refunded + amount), r, ROW (NULL, r.payment_no, NULL, NULL, NULL, NULL, r.refund_told, r.currency,
			r.refund_told_at, 'succeeded', true, false)::model.refund_fact, amount, follows);
	END IF;
END $$;

CREATE FUNCTION model.nameless(t text, r model.receipts) RETURNS SETOF model.refunds LANGUAGE sql AS $$
	SELECT * FROM model.refunds f WHERE f.tenant_id = t AND f.receipt_no = r.receipt_no AND f.status = 'succeeded' AND f.cause = 'channel'
		AND f.channel_refund_no IS NULL AND starts_with(f.refund_no, 'C' || r.receipt_no || '-') $$;

-- Nameless refunds that have to give way by so much: one of just that amount,
-- else the first ones until it is enough.
CREATE FUNCTION model.givers(t text, r model.receipts, amount bigint) RETURNS TABLE (refund_no text, gives bigint) LANGUAGE sql AS $$
	WITH nameless AS (SELECT n.refund_no, n.amount, sum(n.amount) OVER (ORDER BY n.refund_no) - n.amount AS before, n.amount = $3 AS same FROM model.nameless(t, r) AS n)
	SELECT refund_no, amount FROM nameless
	WHERE CASE WHEN (SELECT bool_or(same) FROM nameless) THEN refund_no = (SELECT min(refund_no) FROM nameless WHERE same) ELSE before < $3 END $$;

-- Can the sum contain a refund of which this is told?
CREATE FUNCTION model.can_be_part(r model.receipts, f model.refund_fact) RETURNS boolean LANGUAGE sql AS $$
	SELECT r.refund_told > 0 AND CASE WHEN f.result = 'succeeded' THEN NOT coalesce(f.occurred_at > r.refund_told_at, false)
		ELSE (f.result = 'reversed' OR (f.reversing AND f.result IN ('failed', 'closed', 'abnormal'))) AND coalesce(f.occurred_at > r.refund_told_at, true) END $$;

-- What of all that the sum certainly contains is more than the sum.
CREATE FUNCTION model.surplus(t text, r model.receipts) RETURNS bigint LANGUAGE sql AS $$
	SELECT greatest(coalesce(sum(f.amount), 0) - r.refund_told, 0) FROM model.refunds f
	WHERE f.tenant_id = t AND f.receipt_no = r.receipt_no AND f.status = 'succeeded' AND f.cause = 'channel'
		AND (f.succeeded_at <= r.refund_told_at OR f.refund_no IN (SELECT n.refund_no FROM model.nameless(t, r) AS n)) $$;

-- They never were; what is left of them is booked anew.
CREATE FUNCTION model.give_way(t text, receipt_no text, givers text[], rest bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	giver text;
BEGIN
	FOREACH giver IN ARRAY givers LOOP
		UPDATE model.refunds m SET succeeded_at = 'infinity' WHERE m.tenant_id = t AND m.refund_no = giver;
		PERFORM model.refund_to(t, giver, 'reversed');
	END LOOP;
	PERFORM model.book_nameless(t, receipt_no, rest, false);
END $$;

-- ---- refunds: whatever is told ------------------------------------------------------

-- What is wrong with a fact, so that it is kept and changes nothing.
CREATE FUNCTION model.refund_nonsense(t text, f model.refund_fact, x model.refunds, r model.receipts) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	number text := model.adopted_no(f, NULL);
	other model.refunds;
BEGIN
	IF f.result NOT IN ('succeeded', 'failed', 'closed', 'abnormal', 'timeout', 'reversed') THEN
		RETURN 'unmapped_event';
	ELSIF '' IN (coalesce(f.refund_no, '-'), coalesce(f.channel_refund_no, '-'), coalesce(f.payment_no, '-'), coalesce(f.channel, '-'), coalesce(f.trade_no, '-')) THEN
		RETURN 'refund_unmatched';
	ELSIF f.amount <= 0 OR (f.currency IS NOT NULL AND NOT model.is_currency(f.currency)) THEN
		RETURN CASE WHEN x.refund_no IS NULL THEN 'refund_unmatched' ELSE 'refund_amount_differs' END;
	ELSIF r.receipt_no IS NULL OR (x.refund_no IS NULL AND f.result = 'timeout') THEN
		RETURN 'orphan';
	ELSIF x.refund_no IS NOT NULL THEN
		other := model.refund_at_channel(t, x.channel, x.account, f.channel_refund_no);
		RETURN CASE WHEN NOT model.fits(f, r) OR other.refund_no <> x.refund_no THEN 'refund_unmatched' END;
	END IF;
	RETURN CASE WHEN NOT model.is_amount(f.amount) OR r.currency IS NULL OR upper(coalesce(f.currency, r.currency)) <> r.currency
		OR (f.cumulative AND f.result <> 'succeeded') OR (number IS NULL AND NOT f.cumulative) OR (model.refund_of(t, number)).refund_no IS NOT NULL
		OR (number ~ '^A[0-9]+$' AND number <> 'A' || r.receipt_no) THEN 'refund_unmatched' END;
END $$;

CREATE FUNCTION model.settle(t text, f model.refund_fact) RETURNS model.refund_answer LANGUAGE plpgsql AS $$
DECLARE
	x model.refunds := model.refund_meant(t, f, NULL);
	r model.receipts := model.receipt_of(t, x.receipt_no);
	number text := model.adopted_no(f, NULL);
	amount bigint := f.amount;
	is_sum boolean := f.cumulative AND f.result = 'succeeded';
	givers text[] := '{}';
	given bigint := 0;
	told record;
	is_same boolean;
	moves text[];
	excess bigint;
	kind text;
	outcome text := 'duplicate';
BEGIN
	IF x.refund_no IS NULL THEN
		r := model.money_of(t, f);
		IF r.receipt_no IS NOT NULL THEN x := model.refund_meant(t, f, r); END IF;
		-- the number is what counts
		IF x.refund_no IS NOT NULL THEN r := model.receipt_of(t, x.receipt_no); END IF;
	END IF;
	kind := model.refund_nonsense(t, f, x, r);
	IF kind IS NOT NULL THEN
		outcome := CASE kind WHEN 'orphan' THEN kind ELSE 'kept' END;
		PERFORM model.refund_anomaly(t, CASE kind WHEN 'orphan' THEN 'refund_unmatched' ELSE kind END, x, r, f);
		RETURN ROW (outcome, x.status, CASE WHEN model.is_live(x) THEN x.refund_no END, r.receipt_no, r.payment_no,
			CASE WHEN r.receipt_no IS NOT NULL THEN model.remainder(r) END)::model.refund_answer;
	END IF;

	excess := r.excess;
	moves := (model.refund_verdict(f, x)).moves;
	IF is_sum AND x.refund_no IS NULL THEN
		amount := model.gap(t, model.with_sum(r, f));
	ELSIF model.can_be_part(r, f) AND (x.refund_no IS NULL OR (moves = '{succeeded}' AND NOT model.may_contain(r, x))) THEN
		-- what stood for it, so far
		amount := coalesce(x.amount, f.amount);
		SELECT coalesce(array_agg(g.refund_no), '{}'), coalesce(sum(g.gives), 0), coalesce(bool_or(g.gives = amount), false) INTO givers, given, is_same
		FROM model.givers(t, r, amount) AS g;
		IF x.refund_no IS NULL AND is_same AND f.refund_no IS NULL THEN
			-- which turns out to be this one
			UPDATE model.refunds m SET succeeded_at = CASE WHEN f.result = 'succeeded' THEN f.occurred_at END WHERE m.tenant_id = t AND m.refund_no = givers[1];
			x := model.refund_of(t, givers[1]);
			givers := '{}';
		ELSIF x.refund_no IS NULL AND f.result = 'succeeded' AND given >= amount THEN
			-- which go on to contain it
			amount := 0;
			givers := '{}';
		END IF;
	END IF;

	IF x.refund_no IS NOT NULL THEN
		number := x.refund_no;
		outcome := model.settle_known(t, number, f, excess, givers = '{}');
	ELSIF amount > 0 THEN
		number := coalesce(number, model.nameless_no(t, r, r.refunded + amount));
		outcome := model.adopt_refund(t, number, r, f, amount, givers = '{}');
		PERFORM model.resolve_anomaly(t, '{refund_unmatched}', 'refund', coalesce(model.adopted_no(f, NULL), f.trade_no, f.payment_no, ''), 'adopted');
	END IF;
	x := model.refund_of(t, number);

	told := ROW (r.refund_told, r.refund_told_at);
	IF is_sum AND upper(coalesce(f.currency, r.currency)) = r.currency THEN
		UPDATE model.receipts m SET refund_told = n.refund_told, refund_told_at = n.refund_told_at
		FROM model.with_sum(model.receipt_of(t, r.receipt_no), f) AS n WHERE m.tenant_id = t AND m.receipt_no = r.receipt_no;
	END IF;
	r := model.receipt_of(t, r.receipt_no);
	IF x.refund_no IS NULL AND is_sum AND f.amount > r.refunded THEN outcome := 'kept'; END IF;

	IF givers <> '{}' THEN
		PERFORM model.give_way(t, r.receipt_no, givers, given - amount), model.refund_follows(t, number);
		r := model.receipt_of(t, r.receipt_no);
		IF r.excess > excess THEN PERFORM model.open_anomaly(t, 'over_refund', 'receipt', r.receipt_no, r.order_id, model.refund_detail(x, f)); END IF;
	END IF;
	IF told IS DISTINCT FROM ROW (r.refund_told, r.refund_told_at) AND model.surplus(t, r) > 0 THEN
		SELECT coalesce(array_agg(g.refund_no), '{}'), coalesce(sum(g.gives), 0) INTO givers, given FROM model.givers(t, r, model.surplus(t, r)) AS g;
		IF givers <> '{}' THEN
			PERFORM model.give_way(t, r.receipt_no, givers, given - model.surplus(t, r));
			IF r.disposition = 'applied' AND r.purchase_no = 1 THEN PERFORM model.order_follows(t, r.order_id); END IF;
		END IF;
		r := model.receipt_of(t, r.receipt_no);
	END IF;
	-- whatever the fact was: the latest sum is accounted for
	PERFORM model.book_nameless(t, r.receipt_no, model.gap(t, r), true);
	r := model.receipt_of(t, r.receipt_no);
	RETURN ROW (outcome, x.status, CASE WHEN model.is_live(x) THEN x.refund_no END, r.receipt_no, r.payment_no, model.remainder(r))::model.refund_answer;
END $$;

CREATE FUNCTION model.settle_refund(tenant_id text, refund_no text, result text, channel_refund_no text DEFAULT NULL, amount bigint DEFAULT NULL,
	occurred_at timestamptz DEFAULT NULL, payment_no text DEFAULT NULL, channel text DEFAULT NULL, account text DEFAULT NULL, trade_no text DEFAULT NULL,
	currency text DEFAULT NULL)
RETURNS idem_settle_refund_result LANGUAGE plpgsql AS $$
DECLARE
	a model.refund_answer;
BEGIN
	IF channel_refund_no IS NULL THEN PERFORM model.check_fact(refund_no); END IF;
	a := model.settle(tenant_id, ROW (refund_no, payment_no, channel, account, trade_no, channel_refund_no, amount, currency, occurred_at,
		coalesce(result, ''), false, false)::model.refund_fact);
	RETURN ROW (a.outcome, a.status, a.remainder)::idem_settle_refund_result;
END $$;

-- ---- disputes -----------------------------------------------------------------

CREATE FUNCTION model.dispute_key(channel text, account text, dispute_no text) RETURNS text LANGUAGE sql AS $$
	SELECT format('{"channel": %s, "account": %s, "dispute_no": %s}', to_json(channel), to_json(account), to_json(dispute_no)) $$;

CREATE FUNCTION model.record_dispute(tenant_id text, channel text, account text, trade_no text, dispute_no text, stage text, amount bigint, currency text,
	occurred_at timestamptz DEFAULT NULL)
RETURNS idem_record_dispute_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	d model.disputes;
	told model.disputes;
	r model.receipts;
	key text;
	kind text;
	outcome text;
	newer boolean;
	said jsonb := jsonb_build_object('stage', coalesce(stage, ''), 'dispute_no', dispute_no, 'channel', channel, 'account', account, 'trade_no', trade_no,
		'amount', amount, 'currency', currency);
BEGIN
	PERFORM model.check_fact(channel, trade_no, dispute_no);
	IF channel <> '' AND trade_no <> '' AND dispute_no <> '' THEN
		r := model.receipt_of_trade(t, channel, account, trade_no);
		SELECT * INTO d FROM model.disputes m WHERE m.tenant_id = t AND m.channel = record_dispute.channel AND m.dispute_no = record_dispute.dispute_no
			AND (m.account = coalesce(record_dispute.account, '')
				OR m.receipt_no = r.receipt_no AND (NOT model.given(record_dispute.account) OR m.account = ''))
		ORDER BY m.account <> coalesce(record_dispute.account, '') LIMIT 1;
		IF d.receipt_no IS NOT NULL THEN r := model.receipt_of(t, d.receipt_no); END IF;
	END IF;
	key := model.dispute_key(channel, coalesce(d.account, account, ''), dispute_no);

	IF coalesce(stage NOT IN ('opened', 'won', 'lost'), true) THEN
		kind := 'unmapped_event';
	ELSIF '' IN (channel, trade_no, dispute_no) OR NOT model.is_amount(amount) OR NOT model.is_currency(currency) OR d.trade_no <> trade_no OR d.currency <> upper(currency)
		OR (r.receipt_no IS NOT NULL AND r.currency IS DISTINCT FROM upper(currency))
	THEN
		kind := 'dispute';
	END IF;
	newer := coalesce(occurred_at > d.occurred_at, false);
	outcome := CASE WHEN d.dispute_no IS NULL THEN 'new' WHEN (d.stage, d.amount) = (stage, amount) THEN 'duplicate'
		WHEN d.stage = 'opened' AND stage <> 'opened' THEN 'told' WHEN d.stage <> 'opened' AND stage = 'opened' OR NOT newer THEN 'stale' ELSE 'told' END;

	IF kind IS NOT NULL THEN
		outcome := 'kept';
		PERFORM model.open_anomaly(t, kind, 'dispute', key, r.order_id, said);
	ELSIF outcome IN ('duplicate', 'stale') AND r.receipt_no IS NULL THEN
		outcome := 'orphan';
		PERFORM model.open_anomaly(t, 'dispute', 'dispute', key, NULL, said);
	ELSIF outcome IN ('new', 'told') OR d.receipt_no IS NULL THEN
		IF outcome = 'new' THEN
			INSERT INTO model.disputes (tenant_id, channel, account, dispute_no, trade_no, stage, amount, currency, created_at, occurred_at)
			VALUES (t, channel, coalesce(account, ''), dispute_no, trade_no, 'opened', amount, upper(currency), model.now(), occurred_at) RETURNING * INTO d;
			PERFORM model.moved(t, 'dispute', key, 1, NULL, 'opened', 'open');
		END IF;
		told := d;
		IF outcome IN ('new', 'told') OR outcome = 'duplicate' THEN
			told.stage := stage;
			told.amount := amount;
			told.occurred_at := occurred_at;
		END IF;
		IF outcome <> 'new' OR stage <> 'opened' THEN told.version := d.version + 1; END IF;
		IF told.stage <> d.stage THEN PERFORM model.moved(t, 'dispute', key, told.version, d.stage, told.stage); END IF;
		UPDATE model.disputes m SET stage = told.stage, amount = told.amount, occurred_at = told.occurred_at, version = told.version, receipt_no = r.receipt_no,
			payment_no = r.payment_no, order_id = r.order_id, purchase_no = r.purchase_no
		WHERE m.tenant_id = t AND m.channel = d.channel AND m.account = d.account AND m.dispute_no = d.dispute_no;
		PERFORM model.count_receipt(t, r.receipt_no);
		IF r.receipt_no IS NOT NULL AND told.stage = 'won' THEN
			PERFORM model.resolve_anomaly(t, '{dispute}', 'dispute', key, 'won');
		ELSE
			PERFORM model.open_anomaly(t, 'dispute', 'dispute', key, r.order_id, said);
		END IF;
		IF (model.receipt_of(t, r.receipt_no)).excess > r.excess THEN PERFORM model.open_anomaly(t, 'over_refund', 'receipt', r.receipt_no, r.order_id, said); END IF;
		outcome := CASE WHEN r.receipt_no IS NULL THEN 'orphan' ELSE 'applied' END;
		d := told;
	END IF;
	r := model.receipt_of(t, r.receipt_no);
	RETURN ROW (outcome, r.receipt_no, CASE WHEN r.receipt_no IS NOT NULL THEN model.remainder(r) END, d.stage)::idem_record_dispute_result;
END $$;

-- ---- entitlements ---------------------------------------------------------------

CREATE FUNCTION model.remaining(e model.entitlements) RETURNS bigint LANGUAGE sql AS $$ SELECT e.quantity - e.withheld - e.revoked $$;

-- What refunds of that much take of a grant.
CREATE FUNCTION model.share(on_refund text, quantity bigint, refunded bigint, paid bigint) RETURNS bigint LANGUAGE sql AS $$
	SELECT CASE WHEN refunded <= 0 OR on_refund = 'none' THEN 0 WHEN on_refund = 'full' OR refunded >= paid THEN quantity ELSE quantity * refunded / paid END $$;

-- Units of a campaign that stand, in all or a user's.
CREATE FUNCTION model.standing(t text, campaign text, user_id text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(sum(model.remaining(e)), 0) FROM model.entitlements e WHERE e.tenant_id = t AND e.campaign = $2 AND e.user_id = coalesce($3, e.user_id) $$;

CREATE FUNCTION model.take(t text, grant_key text, revoke_no text, asked bigint, units bigint, by_refund boolean, reason text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	was model.entitlements;
	e model.entitlements;
BEGIN
	SELECT * INTO was FROM model.entitlements WHERE tenant_id = t AND grant_key = take.grant_key;
	UPDATE model.entitlements SET revoked = revoked + units, version = version + 1,
		status = CASE WHEN quantity = withheld + revoked + units THEN 'revoked' ELSE 'partly_revoked' END
	WHERE tenant_id = t AND grant_key = take.grant_key RETURNING * INTO e;
	IF e.status <> was.status THEN PERFORM model.moved(t, 'entitlement', take.grant_key, e.version, was.status, e.status); END IF;
	INSERT INTO model.revocations AS mine (tenant_id, grant_key, revoke_no, asked, quantity, by_refund, reason, created_at)
	VALUES (t, take.grant_key, take.revoke_no, take.asked, units, take.by_refund, take.reason, model.now())
	ON CONFLICT (tenant_id, grant_key, revoke_no) DO UPDATE SET quantity = mine.quantity + excluded.quantity, by_refund = true;
END $$;

CREATE FUNCTION model.entitlements_follow(t text, r model.receipts, revoke_no text) RETURNS void LANGUAGE sql AS $$
	SELECT model.take(t, e.grant_key, revoke_no, NULL, model.share(e.on_refund, e.quantity, r.refunded, r.amount) - e.withheld - e.revoked, true, NULL)
	FROM model.entitlements e
	WHERE e.tenant_id = t AND e.receipt_no = r.receipt_no AND model.share(e.on_refund, e.quantity, r.refunded, r.amount) > e.withheld + e.revoked $$;

CREATE FUNCTION model.grant_entitlement(tenant_id text, grant_key text, user_id text, benefit text, quantity bigint DEFAULT 1, payment_no text DEFAULT NULL,
	campaign text DEFAULT NULL, on_refund text DEFAULT 'proportional', free boolean DEFAULT false)
RETURNS idem_grant_entitlement_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	e model.entitlements;
	p model.payments;
	r model.receipts;
	c model.campaigns;
	withheld bigint := 0;
	available bigint;
BEGIN
	PERFORM model.check_key('grant_key', grant_key), model.check_key('user_id', user_id), model.check_key('benefit', benefit);
	IF quantity <= 0 OR on_refund NOT IN ('proportional', 'full', 'none') OR (payment_no IS NULL AND campaign IS NULL AND NOT free) OR (payment_no IS NOT NULL AND free) THEN
		PERFORM model.raise('22023', 'argument');
	END IF;
	SELECT * INTO e FROM model.entitlements m WHERE m.tenant_id = t AND m.grant_key = grant_entitlement.grant_key;
	IF FOUND THEN
		IF (e.user_id, e.benefit, e.quantity, e.payment_no, e.campaign, e.on_refund, e.free) IS DISTINCT FROM
			(user_id::text, benefit::text, quantity, payment_no::text, campaign::text, on_refund::text, free)
		THEN PERFORM model.raise('ID001', 'grant_key'); END IF;
		RETURN ROW ('duplicate', NULL, e.status, model.remaining(e), e.granted_at, NULL)::idem_grant_entitlement_result;
	END IF;

	IF payment_no IS NOT NULL THEN
		p := model.payment_named(t, payment_no);
		r := model.applied(t, p.order_id, p.purchase_no);
		withheld := model.share(on_refund, quantity, r.refunded, r.amount);
		IF r.receipt_no IS NULL OR r.refunded >= r.amount OR withheld = quantity THEN
			RETURN ROW ('not_allowed', NULL, NULL, NULL, NULL, NULL)::idem_grant_entitlement_result;
		END IF;
	END IF;
	IF campaign IS NOT NULL THEN
		SELECT * INTO c FROM model.campaigns m WHERE m.tenant_id = t AND m.campaign = grant_entitlement.campaign;
		IF NOT FOUND THEN PERFORM model.raise('ID006', 'campaign'); END IF;
		available := least(CASE WHEN c.total IS NOT NULL THEN greatest(c.total - model.standing(t, campaign), 0) END,
			CASE WHEN c.per_user IS NOT NULL THEN greatest(c.per_user - model.standing(t, campaign, user_id), 0) END);
		IF available < quantity - withheld THEN
			RETURN ROW ('limit_reached', NULL, NULL, NULL, NULL, available)::idem_grant_entitlement_result;
		END IF;
	END IF;
	INSERT INTO model.entitlements (tenant_id, grant_key, user_id, benefit, quantity, withheld, status, payment_no, receipt_no, order_id, purchase_no, campaign,
		on_refund, free, granted_at)
	VALUES (t, grant_key, user_id, benefit, quantity, withheld, 'granted', payment_no, r.receipt_no, p.order_id, p.purchase_no, campaign, on_refund, free, model.now());
	PERFORM model.moved(t, 'entitlement', grant_key, 1, NULL, 'granted', 'grant');
	RETURN ROW ('granted', quantity - withheld, 'granted', quantity - withheld, model.now(), NULL)::idem_grant_entitlement_result;
END $$;

CREATE FUNCTION model.revoke_entitlement(tenant_id text, grant_key text, revoke_no text, quantity bigint DEFAULT NULL, reason text DEFAULT NULL)
RETURNS idem_revoke_entitlement_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	e model.entitlements;
	v model.revocations;
	outcome text := 'refused';
BEGIN
	PERFORM model.check_key('grant_key', grant_key), model.check_key('revoke_no', revoke_no), model.because(reason);
	IF quantity <= 0 THEN PERFORM model.raise('22023', 'quantity'); END IF;
	SELECT * INTO e FROM model.entitlements m WHERE m.tenant_id = t AND m.grant_key = revoke_entitlement.grant_key;
	IF NOT FOUND THEN PERFORM model.raise('ID006', 'grant_key'); END IF;
	SELECT * INTO v FROM model.revocations m WHERE m.tenant_id = t AND m.grant_key = e.grant_key AND m.revoke_no = revoke_entitlement.revoke_no;
	IF FOUND THEN
		IF NOT v.by_refund AND v.asked IS DISTINCT FROM quantity THEN PERFORM model.raise('ID001', 'revoke_no'); END IF;
		outcome := 'duplicate';
	ELSIF model.remaining(e) > 0 AND coalesce(quantity <= model.remaining(e), true) THEN
		outcome := 'revoked';
		PERFORM model.take(t, grant_key, revoke_no, quantity, coalesce(quantity, model.remaining(e)), false, reason);
	END IF;
	SELECT * INTO e FROM model.entitlements m WHERE m.tenant_id = t AND m.grant_key = revoke_entitlement.grant_key;
	RETURN ROW (outcome, model.remaining(e), e.status)::idem_revoke_entitlement_result;
END $$;

CREATE FUNCTION model.set_campaign(tenant_id text, campaign text, total bigint, per_user bigint) RETURNS idem_set_campaign_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	c model.campaigns;
	outcome text := 'created';
BEGIN
	SELECT * INTO c FROM model.campaigns m WHERE m.tenant_id = t AND m.campaign = set_campaign.campaign;
	IF FOUND THEN outcome := CASE WHEN (c.total, c.per_user) IS NOT DISTINCT FROM (total, per_user) THEN 'unchanged' ELSE 'updated' END; END IF;
	INSERT INTO model.campaigns AS mine (tenant_id, campaign, total, per_user, created_at) VALUES (t, campaign, total, per_user, model.now())
	ON CONFLICT ON CONSTRAINT campaigns_pkey DO UPDATE SET total = excluded.total, per_user = excluded.per_user;
	RETURN ROW (outcome, model.standing(t, campaign))::idem_set_campaign_result;
END $$;

-- ---- notifications --------------------------------------------------------------

-- A payment that the channel has closed is looked at once more.
CREATE FUNCTION model.shut_payment(tenant_id text, payment_no text) RETURNS idem_payment_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments := model.payment_of(tenant_id, payment_no);
BEGIN
	IF p.payment_no IS NULL THEN
		PERFORM model.open_anomaly(tenant_id, 'orphan', 'payment', payment_no, NULL, NULL);
		RETURN ROW ('orphan', NULL, NULL)::idem_payment_result;
	ELSIF p.status IN ('pending', 'closing') THEN
		PERFORM model.payment_to(tenant_id, payment_no, 'closed', model.once_more(p.expires_at));
		RETURN model.payment_row(tenant_id, payment_no, 'closed');
	END IF;
	RETURN model.payment_row(tenant_id, payment_no, CASE p.status WHEN 'closed' THEN 'duplicate' ELSE 'stale' END);
END $$;

CREATE TYPE model.notification AS (channel text, notify_id text, payment_no text, trade_no text, event text, amount bigint, currency text, account text,
	biz_no text, refund_amount bigint, occurred_at timestamptz, channel_refund_no text, refund_currency text);

CREATE FUNCTION model.notification_anomaly(t text, kind text, n model.notification, o text) RETURNS void LANGUAGE sql AS $$
	SELECT model.open_anomaly(t, kind, 'notification', concat_ws('/', n.channel, coalesce(n.account, ''), n.notify_id), o, NULL) $$;

-- Another merchant's word, or another channel's, about our payment: unless it is
-- about money of it that came there.
CREATE FUNCTION model.is_foreign(t text, p model.payments, n model.notification, kind text) RETURNS boolean LANGUAGE sql AS $$
	SELECT (n.account IS NOT NULL AND model.is_wrong_account(t, NULL, n.channel, n.account, NULL))
		OR (coalesce(p.channel <> n.channel, false) OR coalesce(p.account <> n.account, false))
		AND NOT (kind NOT IN ('failed', 'closed') AND (model.money_of(t, ROW (NULL, nullif(n.payment_no, ''), n.channel, n.account, nullif(n.trade_no, ''),
			NULL, NULL, NULL, NULL, NULL, NULL, NULL)::model.refund_fact)).receipt_no IS NOT NULL) $$;

-- Judge what was said against the state in which the thing is now.
CREATE FUNCTION model.judge_notification(t text, n model.notification, e idem_channel_event) RETURNS idem_receive_notification_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments := model.payment_of(t, n.payment_no);
	currency text := coalesce(n.refund_currency, n.currency);
	c idem_confirm_payment_result;
	x idem_payment_result;
	a model.refund_answer;
	d idem_record_dispute_result;
	r idem_receive_notification_result;
BEGIN
	IF model.is_currency(currency) THEN currency := upper(currency); END IF;
	IF e.kind IS NULL THEN
		PERFORM model.open_anomaly(t, 'unmapped_event', 'channel_event', concat_ws('/', n.channel, n.event, CASE WHEN n.refund_amount IS NOT NULL THEN 'refund' END), NULL, NULL);
		r.outcome := 'ignored';
	ELSIF e.kind = 'none' THEN
		r.outcome := 'ignored';
	ELSIF e.kind = 'paid' THEN
		c := model.confirm_payment(t, coalesce(n.payment_no, ''), n.channel, coalesce(n.trade_no, ''), n.amount, n.currency, n.account, n.occurred_at);
		r := ROW (c.outcome, NULL, c.status, n.payment_no, c.receipt_no, c.refund_no)::idem_receive_notification_result;
	ELSIF model.is_foreign(t, p, n, e.kind) THEN
		PERFORM model.notification_anomaly(t, 'rejected', n, p.order_id);
		r.outcome := 'rejected';
		r.status := p.status;
	ELSIF e.kind IN ('failed', 'closed') THEN
		-- the event is why
		x := CASE e.kind WHEN 'closed' THEN model.shut_payment(t, coalesce(n.payment_no, '')) ELSE model.fail_payment(t, coalesce(n.payment_no, ''), n.event) END;
		r.outcome := x.outcome;
		r.status := x.status;
		r.payment_no := n.payment_no;
	ELSIF e.kind LIKE 'refund%' THEN
		a := model.settle(t, ROW (nullif(n.biz_no, ''), nullif(n.payment_no, ''), n.channel, n.account, nullif(n.trade_no, ''), nullif(n.channel_refund_no, ''),
			n.refund_amount, currency, n.occurred_at,
			CASE e.kind WHEN 'refunded' THEN 'succeeded' ELSE replace(e.kind, 'refund_', '') END, e.refund_amount_is = 'cumulative', e.after_success = 'reverse')::model.refund_fact);
		r := ROW (a.outcome, NULL, a.status, a.payment_no, a.receipt_no, a.refund_no)::idem_receive_notification_result;
	ELSE
		d := model.record_dispute(t, n.channel, coalesce(n.account, model.account_at(p, n.channel)), n.trade_no, n.biz_no, replace(e.kind, 'dispute_', ''), coalesce(n.refund_amount, n.amount), currency, n.occurred_at);
		r := ROW (d.outcome, NULL, d.stage, (model.receipt_of(t, d.receipt_no)).payment_no, d.receipt_no, NULL)::idem_receive_notification_result;
	END IF;
	IF r.outcome NOT IN ('paid', 'failed', 'closed', 'applied') THEN r.payment_no := NULL; END IF;
	-- what belongs to nobody comes again while it is young, and here all is young
	r.ack := r.outcome <> 'orphan';
	RETURN r;
END $$;

-- What was told before, and may still be acted on.
CREATE FUNCTION model.recall_notification(t text, n model.notification, kind text) RETURNS idem_receive_notification_result LANGUAGE plpgsql AS $$
DECLARE
	p model.payments := model.payment_of(t, n.payment_no);
	f model.refunds := model.refund_of(t, n.biz_no);
	r model.receipts;
	answer idem_receive_notification_result;
BEGIN
	answer.outcome := 'duplicate';
	answer.ack := true;
	IF kind IN ('paid', 'failed', 'closed') THEN
		SELECT * INTO r FROM model.receipts m WHERE m.tenant_id = t AND m.payment_no = n.payment_no AND m.channel = n.channel AND m.trade_no = n.trade_no;
		answer.status := p.status;
		answer.receipt_no := r.receipt_no;
		answer.refund_no := model.refund_handle(t, r.receipt_no);
	ELSIF kind LIKE 'refund%' AND f.refund_no IS NOT NULL THEN
		answer.status := f.status;
		answer.receipt_no := f.receipt_no;
		IF model.is_live(f) THEN answer.refund_no := f.refund_no; END IF;
	END IF;
	RETURN answer;
END $$;

CREATE FUNCTION model.receive_notification(tenant_id text, channel text, notify_id text, payment_no text, trade_no text, event text, amount bigint, currency text,
	account text DEFAULT NULL, biz_no text DEFAULT NULL, refund_amount bigint DEFAULT NULL, occurred_at timestamptz DEFAULT NULL, channel_refund_no text DEFAULT NULL,
	refund_currency text DEFAULT NULL)
RETURNS idem_receive_notification_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	n model.notification := ROW (channel, notify_id, payment_no, trade_no, event, amount, currency, account, biz_no, refund_amount, occurred_at,
		channel_refund_no, refund_currency)::model.notification;
	said jsonb := to_jsonb(n) - '{notify_id,account,occurred_at}'::text[];
	e idem_channel_event;
	heard model.notifications;
	r idem_receive_notification_result;
BEGIN
	SELECT * INTO e FROM idem_channel_event c WHERE c.channel = n.channel AND c.event = n.event AND c.has_refund = (coalesce(n.refund_amount, 0) <> 0);
	SELECT * INTO heard FROM model.notifications m
	WHERE m.tenant_id = t AND m.channel = n.channel AND m.account = coalesce(n.account, '') AND m.notify_id = n.notify_id;
	IF heard.said <> said THEN
		PERFORM model.notification_anomaly(t, 'tampered', n, NULL);
		r.outcome := 'tampered';
		r.ack := true;
		RETURN r;
	ELSIF heard.outcome NOT IN ('orphan', 'rejected', 'ignored') THEN
		r := model.recall_notification(t, n, e.kind);
		UPDATE model.notifications m SET hits = hits + 1 WHERE m.tenant_id = t AND m.channel = n.channel AND m.account = heard.account AND m.notify_id = n.notify_id;
		RETURN r;
	END IF;
	PERFORM model.because(n.event);
	r := model.judge_notification(t, n, e);
	INSERT INTO model.notifications AS mine VALUES (t, n.channel, coalesce(n.account, ''), n.notify_id, said, coalesce(e.kind, ''), r.outcome, r.ack, 1)
	ON CONFLICT ON CONSTRAINT notifications_pkey DO UPDATE SET outcome = excluded.outcome, ack = excluded.ack, hits = mine.hits + 1;
	RETURN r;
END $$;

-- ---- anomalies ----------------------------------------------------------------

CREATE FUNCTION model.resolve_by_hand(tenant_id text, anomaly_no text, resolution text, reason text) RETURNS idem_resolve_anomaly_result LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	t text := tenant_id;
	a model.anomalies;
	outcome text := 'already_resolved';
BEGIN
	PERFORM model.because(reason);
	SELECT * INTO a FROM model.anomalies m WHERE m.tenant_id = t AND m.anomaly_no = resolve_by_hand.anomaly_no;
	IF NOT FOUND THEN PERFORM model.raise('ID006', 'anomaly'); END IF;
	IF a.status = 'opened' THEN
		outcome := 'resolved';
		PERFORM model.resolve_anomaly(t, ARRAY[a.kind]::text[], a.entity, a.key, resolution, reason);
		SELECT * INTO a FROM model.anomalies m WHERE m.tenant_id = t AND m.anomaly_no = resolve_by_hand.anomaly_no;
	END IF;
	RETURN ROW (outcome, a.resolution, a.reason, a.resolved_by, a.resolved_at)::idem_resolve_anomaly_result;
END $$;
