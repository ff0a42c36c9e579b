-- Many sessions at once, then the naive twin (model.sql, ledger.sql) alone.
--
-- Each session asks what chance and the rows it sees suggest, and keeps in
-- model.log what it asked, what was answered, and when.  Afterwards the twin is
-- asked the same, one call at a time, and has to answer the same, make the same
-- moves and end with the same rows.  So whatever the sessions did to each
-- other, it has to be what they would have done one after the other.
--
-- In which order?  Each call took effect at one moment between its beginning and
-- its end.
--
-- * Those that wrote are put where they committed: where two of them meet they
--   are serialized by locks, and commit in the order in which they took effect.
--   The moves of a call are those history rows that its transaction wrote.
-- * Those that wrote nothing are tried before the first commit that they may not
--   have seen, and after each that they may have seen.
-- * A call that wrote can have looked before somebody else's commit at what it
--   did not have to lock: a key is bound to a payment that begins to close at
--   this moment, something that fits nothing is noted while it begins to fit.
--   Where its commit does not do, all is begun again, and its place is sought as
--   for those that wrote nothing.
-- * A commit is noted a little before it is seen.  Where nothing else does, one
--   that was noted and not yet answered is put behind those who missed it.
-- * in_progress: nothing was written, and it was no fact.
--
-- If there is no place that does, no single session could have answered so.

-- wrote: anything at all; firm: more than an anomaly or a notification.
CREATE UNLOGGED TABLE model.log (tenant_id text, session int, n int, call text, args jsonb, answer jsonb, wrote boolean, firm boolean,
	started timestamptz, finished timestamptz, PRIMARY KEY (tenant_id, session, n));

ALTER TABLE model.moves ADD COLUMN step bigint DEFAULT nullif(current_setting('model.step', true), '')::bigint;
CREATE INDEX ON model.moves (tenant_id, step);

-- ---- chance: things ---------------------------------------------------------------

-- Mostly one that is in a wanted state.
CREATE FUNCTION model.a_payment(t text, wanted text[] DEFAULT '{}') RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.chance(4) THEN model.pick('own-001', 'own-002', 'own-003', 'own-004', 'nobody') ELSE coalesce((
		SELECT payment_no FROM idem_payment WHERE tenant_id = t ORDER BY status = ANY (wanted) AND model.chance(85) DESC, random() LIMIT 1), 'nobody') END $$;

CREATE FUNCTION model.a_refund(t text, wanted text[] DEFAULT '{}') RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.chance(3) THEN model.pick('r1', 'r2', 'nobody') ELSE coalesce((
		SELECT refund_no FROM idem_refund WHERE tenant_id = t ORDER BY status = ANY (wanted) AND model.chance(85) DESC, random() LIMIT 1), 'r1') END $$;

CREATE FUNCTION model.a_receipt(t text, wanted text[] DEFAULT '{}') RETURNS idem_receipt LANGUAGE sql VOLATILE AS $$
	SELECT * FROM idem_receipt WHERE tenant_id = t ORDER BY disposition = ANY (wanted) AND model.chance(85) DESC, random() LIMIT 1 $$;

CREATE FUNCTION model.one_of(prefix text, n int) RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT prefix || floor(random() * n)::int $$;

-- Long ago, some time ago, in a while, in a long while; mostly not said.
CREATE FUNCTION model.a_time() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.chance(40) THEN model.pick('2020-01-01 00:00+00', '2020-01-02 00:00+00', '2040-01-01 00:00+00', '2040-01-02 00:00+00') END $$;

CREATE FUNCTION model.an_amount() RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT model.pick('10', '20', '30', '40', '70', '100', '100')::bigint $$;

-- ---- chance: calls ----------------------------------------------------------------

CREATE FUNCTION model.some_creation(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb := jsonb_build_object('order_id', model.one_of('o', 7), 'amount', CASE WHEN model.chance(96) THEN 100 ELSE 200 END, 'currency', 'CNY');
BEGIN
	IF model.chance(60) THEN args := args || jsonb_build_object('request_key', model.one_of('k', 60)); END IF;
	IF args ? 'request_key' AND model.chance(50) THEN args := args || '{"repurchase": true}'; END IF;
	IF model.chance(30) THEN args := args || jsonb_build_object('channel', model.pick('alipay', 'wechat', 'stripe')); END IF;
	IF model.chance(15) THEN args := args || jsonb_build_object('payment_no', model.pick('own-001', 'own-002', 'own-003', 'own-004')); END IF;
	RETURN args;
END $$;

-- Money: mostly the payment's own trade, mostly right.
CREATE FUNCTION model.some_money(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	p idem_payment;
	args jsonb := jsonb_build_object('payment_no', model.a_payment(t, '{pending,closing,closed,review}'));
BEGIN
	SELECT * INTO p FROM idem_payment WHERE tenant_id = t AND payment_no = args->>'payment_no';
	RETURN args || jsonb_build_object(
		'channel', CASE WHEN model.chance(95) THEN coalesce(p.channel, 'alipay') ELSE model.pick('alipay', 'wechat') END,
		'trade_no', CASE WHEN model.chance(75) THEN 'T' || right(args->>'payment_no', 8) ELSE model.one_of('t', 30) END,
		'amount', CASE WHEN model.chance(90) THEN coalesce(p.amount, 100) ELSE model.pick('100', '90', '200')::bigint END,
		'currency', CASE WHEN model.chance(98) THEN 'CNY' ELSE 'USD' END,
		'account', CASE WHEN model.chance(25) THEN model.pick('a1', 'a1', 'a2') END);
END $$;

-- What became of a refund of ours, or of one that we do not know.
CREATE FUNCTION model.some_settlement(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	f idem_refund;
	r idem_receipt;
	args jsonb;
BEGIN
	args := jsonb_build_object('refund_no', model.a_refund(t, '{processing,requested}'),
		'result', model.pick('succeeded', 'succeeded', 'succeeded', 'succeeded', 'failed', 'failed', 'closed', 'abnormal', 'timeout', 'reversed'), 'occurred_at', model.a_time());
	SELECT * INTO f FROM idem_refund WHERE tenant_id = t AND refund_no = args->>'refund_no';
	IF model.chance(12) THEN
		r := model.a_receipt(t, '{applied}');
		args := args || jsonb_build_object('refund_no', CASE WHEN model.chance(70) THEN model.one_of('console', 20) END, 'channel_refund_no', model.one_of('c', 40), 'amount', model.an_amount(), 'payment_no', r.payment_no, 'trade_no', r.trade_no, 'channel', r.channel);
	ELSIF model.chance(40) THEN
		args := args || jsonb_build_object('amount', CASE WHEN model.chance(90) THEN f.amount ELSE model.an_amount() END);
	END IF;
	IF model.chance(30) THEN args := args || jsonb_build_object('channel_refund_no', coalesce(CASE WHEN model.chance(90) THEN f.channel_refund_no END, model.one_of('c', 40))); END IF;
	IF model.chance(1) THEN args := args || '{"result": "perhaps"}'; END IF;
	RETURN args;
END $$;

-- What a channel tells: of money, of a refund by name or as a sum, of a dispute.
CREATE FUNCTION model.some_notification(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	p idem_payment;
	r idem_receipt := model.a_receipt(t, '{applied}');
	f idem_refund;
	args jsonb;
	event text;
BEGIN
	IF model.chance(25) THEN
		SELECT l.args INTO args FROM model.log l WHERE l.tenant_id = t AND l.call = 'receive_notification' ORDER BY random() LIMIT 1;
		IF FOUND THEN RETURN args || CASE WHEN model.chance(90) THEN '{}' ELSE '{"amount": 77}' END::jsonb; END IF;
	END IF;
	IF model.chance(45) OR r.receipt_no IS NULL THEN
		args := model.some_money(t);
		SELECT * INTO event FROM model.pick('paid', 'paid', 'paid', 'paid', 'closed', 'waiting', 'unheard-of');
		event := (CASE args->>'channel' WHEN 'alipay' THEN '{"paid": "TRADE_SUCCESS", "closed": "TRADE_CLOSED", "waiting": "WAIT_BUYER_PAY"}'
			WHEN 'wechat' THEN '{"paid": "TRANSACTION.SUCCESS", "closed": "CLOSED", "waiting": "NOTPAY"}'
			ELSE '{"paid": "payment_intent.succeeded", "closed": "payment_intent.canceled", "waiting": "payment_intent.created"}' END::jsonb)->>event;
		args := args || jsonb_build_object('event', coalesce(event, 'UNHEARD_OF'));
	ELSE
		IF model.chance(60) THEN
			SELECT * INTO f FROM idem_refund WHERE tenant_id = t AND refund_no = model.a_refund(t, '{processing}');
			SELECT * INTO r FROM idem_receipt WHERE tenant_id = t AND receipt_no = coalesce(f.receipt_no, r.receipt_no);
		END IF;
		args := jsonb_build_object('payment_no', coalesce(r.payment_no, r.reported_payment_no), 'channel', r.channel, 'trade_no', r.trade_no, 'amount', r.amount, 'currency', r.currency,
			'biz_no', coalesce(f.refund_no, CASE WHEN model.chance(70) THEN model.one_of('console', 20) END), 'refund_amount', coalesce(f.amount, model.an_amount()));
		IF model.chance(12) THEN
			args := args || jsonb_build_object('biz_no', model.one_of('d', 12), 'channel', 'stripe',
				'event', model.pick('charge.dispute.created', 'charge.dispute.created', 'charge.dispute.closed.won', 'charge.dispute.closed.lost'));
		ELSIF r.channel = 'alipay' THEN
			args := args || jsonb_build_object('event', 'TRADE_SUCCESS', 'refund_amount', r.refunded + coalesce(f.amount, model.an_amount()));
		ELSIF r.channel = 'wechat' THEN
			args := args || jsonb_build_object('event', model.pick('REFUND.SUCCESS', 'REFUND.SUCCESS', 'REFUND.SUCCESS', 'REFUND.CLOSED', 'REFUND.ABNORMAL'));
		ELSE
			event := model.pick('refund.updated.succeeded', 'refund.updated.succeeded', 'refund.updated.succeeded', 'refund.failed', 'charge.refunded');
			args := args || jsonb_build_object('event', event, 'channel_refund_no', coalesce(f.channel_refund_no, CASE WHEN model.chance(80) THEN model.one_of('c', 40) END));
			IF event = 'charge.refunded' THEN args := args || jsonb_build_object('biz_no', NULL, 'channel_refund_no', NULL, 'refund_amount', r.refunded + model.an_amount()); END IF;
		END IF;
	END IF;
	RETURN args || jsonb_build_object('notify_id', model.one_of('n', 100000), 'occurred_at', model.a_time());
END $$;

CREATE FUNCTION model.some_grant(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n int := floor(random() * 60);
	args jsonb := jsonb_build_object('grant_key', 'g' || n, 'user_id', model.pick('ann', 'bob', 'eve'), 'benefit', 'days', 'quantity', model.pick('1', '3', '7', '10')::bigint);
BEGIN
	IF model.chance(75) THEN args := args || jsonb_build_object('payment_no', model.a_payment(t, '{paid}')); END IF;
	IF model.chance(30) THEN args := args || jsonb_build_object('campaign', model.one_of('c', 3)); END IF;
	IF model.chance(40) THEN args := args || jsonb_build_object('on_refund', model.pick('full', 'none', 'proportional')); END IF;
	IF NOT args ? 'payment_no' AND NOT args ? 'campaign' AND model.chance(95) THEN args := args || '{"free": true}'; END IF;
	RETURN args;
END $$;

CREATE FUNCTION model.a_dispute(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	r idem_receipt := model.a_receipt(t, '{applied}');
BEGIN
	RETURN jsonb_build_object('channel', coalesce(r.channel, 'stripe'), 'account', nullif(r.account, ''), 'trade_no', CASE WHEN model.chance(90) THEN coalesce(r.trade_no, 't1') ELSE model.one_of('t', 30) END,
		'dispute_no', model.one_of('d', 12), 'stage', model.pick('opened', 'opened', 'won', 'lost', 'lost'), 'amount', model.an_amount(), 'currency', coalesce(r.currency, 'CNY'), 'occurred_at', model.a_time());
END $$;

-- What happens next to tenant t, with the weight of each.
CREATE FUNCTION model.some_action(t text, OUT call text, OUT args jsonb) LANGUAGE plpgsql AS $$
DECLARE
	n float := random() * 115;
	r idem_receipt;
	why text := model.pick('why', NULL);
BEGIN
	IF n < 12 THEN
		call := 'create_payment';
		args := model.some_creation(t);
	ELSIF n < 20 THEN
		call := 'submit_payment';
		args := jsonb_build_object('payment_no', model.a_payment(t, '{pending}'), 'channel', model.pick('alipay', 'wechat', 'stripe'), 'account', CASE WHEN model.chance(30) THEN 'a1' END);
	ELSIF n < 29 THEN
		call := 'confirm_payment';
		args := model.some_money(t);
	ELSIF n < 31 THEN
		call := 'begin_close';
		args := jsonb_build_object('payment_no', model.a_payment(t, '{pending}'), 'reason', why);
	ELSIF n < 34 THEN
		call := 'finish_close';
		args := jsonb_build_object('payment_no', model.a_payment(t, '{closing}'), 'result', model.pick('closed', 'closed', 'already_paid', 'not_exist', 'refused', 'unknown'), 'expire_order', model.chance(10));
	ELSIF n < 36 THEN
		call := model.pick('close_payment', 'fail_payment');
		args := jsonb_build_object('payment_no', model.a_payment(t, '{pending}'), 'reason', why);
	ELSIF n < 37 THEN
		call := 'cancel_request_key';
		args := jsonb_build_object('request_key', model.one_of('k', 60), 'reason', why);
	ELSIF n < 39 THEN
		call := 'expire_payment';
		args := jsonb_build_object('payment_no', model.a_payment(t, '{pending,closing}'));
	ELSIF n < 42 THEN
		call := 'create_order';
		args := jsonb_build_object('order_id', model.one_of('o', 7), 'amount', CASE WHEN model.chance(97) THEN 100 ELSE 0 END, 'currency', 'CNY');
	ELSIF n < 43.5 THEN
		call := 'cancel_order';
		args := jsonb_build_object('order_id', model.one_of('o', 7), 'reason', why);
	ELSIF n < 46 THEN
		call := model.pick('ship_order', 'complete_order');
		args := jsonb_build_object('order_id', model.one_of('o', 7));
	ELSIF n < 49 THEN
		call := 'resolve_review';
		args := jsonb_build_object('payment_no', model.a_payment(t, '{review}'), 'decision', model.pick('accept', 'refund'), 'reason', why);
	ELSIF n < 50.5 THEN
		call := 'adopt_receipt';
		args := jsonb_build_object('receipt_no', coalesce((model.a_receipt(t, '{orphan,rejected}')).receipt_no, 'nobody'), 'payment_no', model.a_payment(t));
	ELSIF n < 52 THEN
		call := 'refund_receipt';
		args := jsonb_build_object('receipt_no', coalesce((model.a_receipt(t, '{orphan,rejected}')).receipt_no, 'nobody'), 'reason', why);
	ELSIF n < 63 THEN
		call := 'request_refund';
		r := model.a_receipt(t, '{applied}');
		args := jsonb_build_object('payment_no', CASE WHEN model.chance(90) THEN coalesce(r.payment_no, 'nobody') ELSE model.a_payment(t) END, 'refund_no', model.one_of('r', 200),
			'amount', model.an_amount(), 'currency', 'CNY', 'reason', why, 'receipt_no', CASE WHEN model.chance(30) THEN r.receipt_no END);
	ELSIF n < 70 THEN
		call := 'submit_refund';
		args := jsonb_build_object('refund_no', model.a_refund(t, '{requested}'));
	ELSIF n < 73 THEN
		call := 'cancel_refund';
		args := jsonb_build_object('refund_no', model.a_refund(t, '{requested}'));
	ELSIF n < 82 THEN
		call := 'settle_refund';
		args := model.some_settlement(t);
	ELSIF n < 86 THEN
		call := 'retry_refund';
		args := jsonb_build_object('refund_no', model.a_refund(t, '{failed,abnormal}'));
	ELSIF n < 89 THEN
		call := 'record_dispute';
		args := model.a_dispute(t);
	ELSIF n < 103 THEN
		call := 'receive_notification';
		args := model.some_notification(t);
	ELSIF n < 110 THEN
		call := 'grant_entitlement';
		args := model.some_grant(t);
	ELSIF n < 112.5 THEN
		call := 'revoke_entitlement';
		args := jsonb_build_object('grant_key', model.one_of('g', 60), 'revoke_no', CASE WHEN model.chance(85) THEN model.one_of('v', 20) ELSE model.a_refund(t) END,
			'quantity', CASE WHEN model.chance(70) THEN model.pick('1', '2', '5')::bigint END, 'reason', why);
	ELSIF n < 113.5 THEN
		call := 'set_campaign';
		args := jsonb_build_object('campaign', model.one_of('c', 3), 'total', model.pick('20', '40', NULL)::bigint, 'per_user', model.pick('5', '15', NULL)::bigint);
	ELSE
		call := 'resolve_anomaly';
		args := jsonb_build_object('anomaly_no', coalesce((SELECT anomaly_no FROM idem_anomaly WHERE tenant_id = t ORDER BY status = 'opened' DESC, random() LIMIT 1), 'nobody'),
			'resolution', 'seen to', 'reason', 'by hand');
	END IF;
END $$;

-- Not of the API: time passes.
CREATE FUNCTION model.really_expire_payment(tenant_id text, payment_no text, OUT outcome text, OUT version int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	UPDATE idem_payment p SET expires_at = '2020-01-01 00:00+00' WHERE p.tenant_id = $1 AND p.payment_no = $2 AND p.status IN ('pending', 'closing')
		AND p.expires_at > '2020-01-01 00:00+00' RETURNING p.version INTO version;
	outcome := CASE WHEN FOUND THEN 'expired' ELSE 'refused' END;
END $$;

CREATE FUNCTION model.expire_payment(tenant_id text, payment_no text, OUT outcome text, OUT version int) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	UPDATE model.payments p SET expires_at = '2020-01-01 00:00+00', version = p.version + 1 WHERE p.tenant_id = $1 AND p.payment_no = $2 AND p.status IN ('pending', 'closing')
		AND p.expires_at > '2020-01-01 00:00+00' RETURNING p.version INTO version;
	outcome := CASE WHEN FOUND THEN 'expired' ELSE 'refused' END;
END $$;

-- ---- the sessions -----------------------------------------------------------------

-- Has this transaction written a row of the tenant's that is more than an anomaly
-- or a notification?  Not told by triggers: where there are any, rows do not go
-- straight into their tables, past the executor, as they do in production.
CREATE FUNCTION model.is_firm(t text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	own xid := pg_current_xact_id_if_assigned()::xid;
BEGIN
	RETURN own IS NOT NULL AND (
		EXISTS (SELECT FROM idem_order r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_payment r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_payment_key r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_receipt r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_refund r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_dispute r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_entitlement r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_revocation r WHERE r.tenant_id = t AND r.xmin = own) OR
		EXISTS (SELECT FROM idem_campaign r WHERE r.tenant_id = t AND r.xmin = own));
END $$;

-- What a session does next, as statements to run one after the other.  Some
-- calls are rolled back, some are made in a transaction that has looked before.
CREATE FUNCTION model.plan(session int, t text, OUT first text, OUT second text, OUT third text) LANGUAGE plpgsql AS $$
DECLARE
	n int := current_setting('model.n')::int + 1;
	call text;
	args jsonb;
	given text;
	started timestamptz;
BEGIN
	SELECT * INTO call, args FROM model.some_action(t);
	SELECT string_agg(format('%I => %L', key, value), ', ') INTO given FROM jsonb_each_text(jsonb_build_object('tenant_id', t) || args);
	IF model.chance(5) THEN
		first := 'BEGIN';
		third := 'ROLLBACK';
	ELSIF model.chance(5) AND call <> 'expire_payment' THEN
		first := format('BEGIN ISOLATION LEVEL %s; SELECT count(*) FROM idem_cluster', model.pick('REPEATABLE READ', 'SERIALIZABLE'));
		third := 'COMMIT';
	END IF;
	started := clock_timestamp();
	PERFORM set_config('model.n', n::text, false),
		set_config('model.planned', jsonb_build_object('tenant_id', t, 'session', session, 'n', n, 'call', call, 'args', args, 'started', started, 'alone', third IS NULL)::text, false);
	second := format('INSERT INTO model.log SELECT %1$L, %2$s, %3$s, %4$L, %5$L::jsonb, to_jsonb(r), pg_current_xact_id_if_assigned() IS NOT NULL, model.is_firm(%1$L), %6$L, clock_timestamp() FROM %7$s(%8$s) AS r',
		t, session, n, call, args, started, CASE call WHEN 'expire_payment' THEN 'model.really_expire_payment' ELSE 'idem_' || call END, given);
END $$;

-- The call that was planned last raised an error.  Of a transaction only its
-- commit is told here: then it lost a race, and nothing of it was done.
CREATE FUNCTION model.note_error(code text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.log SELECT tenant_id, session, n, call, args, jsonb_build_object('sqlstate', code), false, false, started, clock_timestamp()
	FROM jsonb_to_record(current_setting('model.planned')::jsonb) AS p (tenant_id text, session int, n int, call text, args jsonb, started timestamptz, alone boolean)
	WHERE alone OR code <> '40001' $$;

-- ---- the twin follows ---------------------------------------------------------------

-- The calls in question.  xid: of those that wrote; over: the session was at
-- something else by then.
CREATE UNLOGGED TABLE model.queue (tenant_id text, step bigint, xid text, firm boolean, committed timestamptz, started timestamptz, finished timestamptz,
	over timestamptz, call text, args jsonb, answer jsonb, place int, was_committed timestamptz, PRIMARY KEY (tenant_id, step));

-- Has the twin written such a row?
CREATE FUNCTION model.note_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('model.written', 'yes', true);
	RETURN NULL;
END $$;

DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{orders,payments,keys,receipts,refunds,disputes,entitlements,revocations,campaigns}'::text[] LOOP
		EXECUTE format('CREATE TRIGGER note_insert AFTER INSERT ON model.%s FOR EACH ROW EXECUTE FUNCTION model.note_written()', name);
		EXECUTE format('CREATE TRIGGER note_update AFTER UPDATE ON model.%s FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION model.note_written()', name);
	END LOOP;
END $$;

-- What the extension's transactions moved.
CREATE UNLOGGED TABLE model.happened (tenant_id text COLLATE "C", xid text, entity text COLLATE "C", key text COLLATE "C", version int, from_state text COLLATE "C",
	to_state text COLLATE "C", event text COLLATE "C", reason text);
CREATE INDEX ON model.happened (tenant_id, xid);

-- The numbers that the twin does not make: those that this call gave.
CREATE OR REPLACE FUNCTION model.new_payment_no(t text, o text) RETURNS text LANGUAGE sql AS $$
	SELECT h.key FROM model.happened h JOIN idem_payment p ON p.tenant_id = t AND p.payment_no = h.key
	WHERE h.tenant_id = t AND h.xid = current_setting('model.xid') AND h.entity = 'payment' AND h.from_state IS NULL AND p.order_id = o $$;

CREATE OR REPLACE FUNCTION model.new_anomaly_no(t text, kind text, entity text, key text) RETURNS text LANGUAGE sql AS $$
	SELECT h.key FROM model.happened h JOIN idem_anomaly a ON a.tenant_id = t AND a.anomaly_no = h.key
	WHERE h.tenant_id = t AND h.xid = current_setting('model.xid') AND h.entity = 'anomaly' AND h.from_state IS NULL
		AND a.kind = $2 AND a.entity = $3 AND a.key = $4 $$;

-- Columns that are not the same on both sides; times are not known to the twin
-- better than the call's beginning and end.
CREATE FUNCTION model.unlike(ours jsonb, theirs jsonb, since interval) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_object_agg(key, jsonb_build_array(o.value, t.value)) FROM jsonb_each(ours) AS o FULL JOIN jsonb_each(theirs) AS t USING (key)
	WHERE o.value IS DISTINCT FROM t.value
		AND NOT (key LIKE '%\_at' AND jsonb_typeof(o.value) = 'string' AND jsonb_typeof(t.value) = 'string'
			AND (ours->>key)::timestamptz - (theirs->>key)::timestamptz BETWEEN -since AND since) $$;

CREATE FUNCTION model.unlike_moves(t text, q model.queue) RETURNS text LANGUAGE sql AS $$
	WITH ours AS (SELECT entity, key, version, from_state, to_state, event, reason FROM model.happened WHERE tenant_id = t AND xid = q.xid),
		theirs AS (SELECT entity, key, version, from_state, to_state, event, reason FROM model.moves WHERE tenant_id = t AND step = q.step)
	SELECT string_agg(line, E'\n') FROM (
		SELECT '  idem moved:  ' || to_jsonb(m)::text AS line FROM (TABLE ours EXCEPT ALL TABLE theirs) AS m
		UNION ALL
		SELECT '  model moved: ' || to_jsonb(m)::text FROM (TABLE theirs EXCEPT ALL TABLE ours) AS m) AS lines $$;

-- The moment that rows of this call bear.
CREATE FUNCTION model.moment(t text, q model.queue) RETURNS timestamptz LANGUAGE sql AS $$
	SELECT coalesce(
		CASE WHEN q.answer->>'outcome' = 'created' THEN (q.answer->>'created_at')::timestamptz END,
		(SELECT created_at FROM idem_receipt WHERE tenant_id = t AND receipt_no = q.answer->>'receipt_no' AND created_at BETWEEN q.started AND q.finished),
		q.finished) $$;

-- A request may find somebody in its way, and then writes nothing; a fact waits.
CREATE FUNCTION model.may_give_up(q model.queue) RETURNS boolean LANGUAGE sql AS $$
	SELECT NOT q.firm AND NOT EXISTS (SELECT FROM model.happened h WHERE h.tenant_id = q.tenant_id AND h.xid = q.xid)
		AND q.call NOT IN ('confirm_payment', 'fail_payment', 'settle_refund', 'record_dispute', 'receive_notification') $$;

-- Ask the twin.  NULL: it says and does the same; else what differs, and
-- nothing was asked.
CREATE FUNCTION model.place(t text, q model.queue) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	theirs jsonb;
	difference text;
BEGIN
	IF q.answer->>'outcome' = 'in_progress' THEN
		RETURN CASE WHEN NOT model.may_give_up(q) THEN '  it may not give up, or has written' END;
	END IF;
	PERFORM set_config('model.step', q.step::text, true), set_config('model.xid', coalesce(q.xid, ''), true), set_config('model.written', '', true), set_config('model.now', model.moment(t, q)::text, true);
	theirs := model.ask('model.' || CASE q.call WHEN 'resolve_anomaly' THEN 'resolve_by_hand' ELSE q.call END, jsonb_build_object('tenant_id', t) || q.args);
	IF jsonb_typeof(theirs) = 'object' THEN
		IF q.answer->>'sqlstate' IS DISTINCT FROM theirs->>'sqlstate' THEN difference := '  model: ' || theirs::text; END IF;
	ELSIF model.unlike(q.answer, theirs->0, '1 minute') IS NOT NULL THEN
		difference := '  model: ' || (theirs->0)::text;
	END IF;
	difference := concat_ws(E'\n', difference, model.unlike_moves(t, q),
		CASE WHEN (current_setting('model.written') <> '') <> q.firm THEN format('  only %s wrote a row', CASE WHEN q.firm THEN 'idem' ELSE 'the model' END) END);
	IF difference <> '' THEN RAISE SQLSTATE 'MODEL' USING MESSAGE = difference; END IF;
	RETURN NULL;
EXCEPTION WHEN SQLSTATE 'MODEL' THEN
	RETURN SQLERRM;
END $$;

CREATE FUNCTION model.show_step(q model.queue) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s %s %s%s%s', q.step, q.call, q.args, E'\n  idem:  ', q.answer) $$;

-- The step that differed, and what the twin was asked before.
CREATE FUNCTION model.story(q model.queue, difference text) RETURNS text LANGUAGE sql AS $$
	SELECT format(E'tenant %s\n%s\n%s\n%s', q.tenant_id, string_agg(model.show_step(b), E'\n' ORDER BY b.place), model.show_step(q), difference)
	FROM (SELECT * FROM model.queue WHERE tenant_id = q.tenant_id AND place IS NOT NULL ORDER BY place DESC LIMIT current_setting('model.story')::int) AS b $$;

CREATE FUNCTION model.fill_queue(t text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO model.happened
	SELECT t, xmin::text, entity, key, version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = t;

	INSERT INTO model.queue
	SELECT t, step, CASE WHEN wrote THEN xid END, firm,
		CASE WHEN wrote THEN pg_xact_commit_timestamp(xid::xid) END, started, finished, over, call, args, answer, NULL, CASE WHEN wrote THEN pg_xact_commit_timestamp(xid::xid) END
	FROM (
		SELECT l.*, session * 1000000::bigint + n AS step, xmin::text AS xid, coalesce(lead(started) OVER (PARTITION BY session ORDER BY n), 'infinity') AS over
		FROM model.log l WHERE tenant_id = t) AS steps $$;

-- One attempt: all calls of a tenant, each at a place where it can have been;
-- those that are early before their commits.  NULL: done, else the first that
-- finds no place, and why.
CREATE FUNCTION model.follow_once(t text, early bigint[], OUT stuck bigint, OUT difference text) LANGUAGE plpgsql AS $$
DECLARE
	q model.queue;
	f model.queue;
	n int := 0;
BEGIN
	FOR q IN SELECT * FROM model.queue WHERE tenant_id = t AND xid IS NOT NULL AND step <> ALL (early)
		UNION ALL SELECT (jsonb_populate_record(NULL::model.queue, '{"committed": "infinity", "over": "infinity"}')).* ORDER BY committed
	LOOP
		FOR f IN SELECT * FROM model.queue WHERE tenant_id = t AND (xid IS NULL OR step = ANY (early)) AND place IS NULL AND started <= q.over ORDER BY started LOOP
			difference := model.place(t, f);
			IF difference IS NULL THEN
				n := n + 1;
				UPDATE model.queue SET place = n WHERE tenant_id = t AND step = f.step;
			ELSIF f.finished < q.committed THEN
				stuck := f.step;
				RETURN;
			END IF;
		END LOOP;
		EXIT WHEN q.step IS NULL;
		difference := model.place(t, q);
		stuck := q.step;
		IF difference IS NOT NULL THEN RETURN; END IF;
		n := n + 1;
		UPDATE model.queue SET place = n WHERE tenant_id = t AND step = q.step;
	END LOOP;
	stuck := NULL;
	difference := NULL;
END $$;

-- One whose commit was noted before q took effect, but that may have been seen
-- only afterwards; each is named once.
CREATE FUNCTION model.one_to_delay(t text, q bigint, tried bigint[]) RETURNS bigint LANGUAGE sql AS $$
	SELECT o.step FROM model.queue o JOIN model.queue q USING (tenant_id)
	WHERE tenant_id = t AND q.step = $2 AND o.step <> q.step AND o.xid IS NOT NULL AND o.step <> ALL (tried)
		AND o.committed < coalesce(q.committed, q.finished) AND o.over > q.started
	ORDER BY o.committed DESC LIMIT 1 $$;

-- All calls of a tenant.  NULL: each has its place.
CREATE FUNCTION model.follow(t text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	early bigint[] := '{}';
	tried bigint[] := '{}';
	tried_for bigint;
	patience int := current_setting('model.patience')::int;
	stuck bigint;
	delayed bigint;
	difference text;
	story text;
	first_story text;
BEGIN
	PERFORM model.fill_queue(t);
	LOOP
		BEGIN
			SELECT * INTO stuck, difference FROM model.follow_once(t, early);
			IF stuck IS NULL THEN RETURN NULL; END IF;
			SELECT model.story(q, difference) INTO story FROM model.queue q WHERE tenant_id = t AND step = stuck;
			first_story := coalesce(first_story, story);
			RAISE SQLSTATE 'AGAIN';
		EXCEPTION WHEN SQLSTATE 'AGAIN' THEN
			IF stuck <> ALL (early) AND EXISTS (SELECT FROM model.queue WHERE tenant_id = t AND step = stuck AND xid IS NOT NULL) THEN
				early := early || stuck;
				CONTINUE;
			END IF;
			-- the last one that was delayed for it did not help
			IF stuck = tried_for THEN
				UPDATE model.queue SET committed = was_committed WHERE tenant_id = t AND step = delayed;
			ELSE
				tried := '{}';
				tried_for := stuck;
			END IF;
			delayed := model.one_to_delay(t, stuck, tried);
			IF delayed IS NULL OR patience = 0 THEN RETURN concat_ws(E'\nin another order\n', first_story, nullif(story, first_story)); END IF;
			patience := patience - 1;
			UPDATE model.queue d SET committed = coalesce(q.committed, q.finished) + interval '1 microsecond' FROM model.queue q
			WHERE d.tenant_id = t AND d.step = delayed AND q.tenant_id = t AND q.step = stuck;
			tried := tried || delayed;
			early := array_remove(early, stuck);
		END;
	END LOOP;
END $$;

-- ---- the books --------------------------------------------------------------------

-- Rows of two queries that are not the same, by a key.
CREATE FUNCTION model.unlike_rows(what text, keys text, ours text, theirs text, since interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	difference text;
BEGIN
	EXECUTE format($q$
		SELECT string_agg(format(E'%%s %%s: %%s', %L, key, coalesce(model.unlike(o.r, m.r, %L)::text, CASE WHEN o.r IS NULL THEN 'only in the model' ELSE 'only in idem' END)), E'\n')
		FROM (SELECT to_jsonb(x) AS r, jsonb_build_array(%s) AS key FROM (%s) AS x) AS o
			FULL JOIN (SELECT to_jsonb(x) AS r, jsonb_build_array(%s) AS key FROM (%s) AS x) AS m USING (key)
		WHERE o.r IS NULL OR m.r IS NULL OR model.unlike(o.r, m.r, %L) IS NOT NULL $q$, what, since, keys, ours, keys, theirs, since) INTO difference;
	RETURN difference;
END $$;

-- Rows of a table and its twin.
CREATE FUNCTION model.unlike_table(t text, what text, keys text, since interval, ours text, theirs text) RETURNS text LANGUAGE sql AS $$
	SELECT model.unlike_rows(what, keys, format(ours, t), format(theirs, t), since) $$;

-- Moves that no call of ours made, and moves whose event is not the one that tells of them.
CREATE FUNCTION model.unlike_events(t text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(line, E'\n') FROM (
		SELECT 'a move of nobody: ' || to_jsonb(h)::text AS line FROM model.happened h
		WHERE tenant_id = t AND NOT EXISTS (SELECT FROM model.queue q WHERE q.tenant_id = t AND q.xid = h.xid)
		UNION ALL
		SELECT 'event: ' || coalesce(to_jsonb(h), to_jsonb(e))::text
		FROM (SELECT * FROM idem_history WHERE tenant_id = t) AS h FULL JOIN (SELECT * FROM idem_outbox WHERE tenant_id = t) AS e ON e.id = h.event_id
		WHERE (h.entity || '.' || h.to_state, h.from_state, h.to_state, h.event, h.tenant_id) IS DISTINCT FROM
			(e.type::text, e.payload->>'from', e.payload->>'to', e.payload->>'event', e.payload->>'tenant_id')) AS lines $$;

-- What the books of a tenant say otherwise than the twin's.  Times differ by no
-- more than the longest call took.
CREATE FUNCTION model.unlike_books(t text) RETURNS text LANGUAGE sql AS $$
	WITH calls AS (SELECT max(finished - started) + '1 second' AS since FROM model.queue WHERE tenant_id = t)
	SELECT nullif(concat_ws(E'\n',
		model.unlike_table(t, 'order', 'order_id', since, 'SELECT * FROM idem_order WHERE tenant_id = %L', 'SELECT * FROM model.orders WHERE tenant_id = %L'),
		model.unlike_table(t, 'payment', 'payment_no', since, 'SELECT * FROM idem_payment WHERE tenant_id = %L', 'SELECT * FROM model.payments WHERE tenant_id = %L'),
		model.unlike_table(t, 'key', 'request_key', since, 'SELECT * FROM idem_payment_key WHERE tenant_id = %L',
			'SELECT * FROM model.keys k WHERE tenant_id = %L AND NOT EXISTS (SELECT FROM model.payments p WHERE p.tenant_id = k.tenant_id AND p.request_key = k.request_key)'),
		model.unlike_table(t, 'receipt', 'receipt_no', since, 'SELECT * FROM idem_receipt WHERE tenant_id = %L', 'SELECT * FROM model.receipts WHERE tenant_id = %L'),
		model.unlike_table(t, 'refund', 'refund_no', since, 'SELECT * FROM idem_refund WHERE tenant_id = %L', 'SELECT * FROM model.refunds WHERE tenant_id = %L'),
		model.unlike_table(t, 'dispute', 'channel, account, dispute_no', since, 'SELECT * FROM idem_dispute WHERE tenant_id = %L', 'SELECT * FROM model.disputes WHERE tenant_id = %L'),
		model.unlike_table(t, 'entitlement', 'grant_key', since, 'SELECT * FROM idem_entitlement WHERE tenant_id = %L', 'SELECT * FROM model.entitlements WHERE tenant_id = %L'),
		model.unlike_table(t, 'revocation', 'grant_key, revoke_no', since, 'SELECT * FROM idem_revocation WHERE tenant_id = %L', 'SELECT * FROM model.revocations WHERE tenant_id = %L'),
		model.unlike_table(t, 'campaign', 'campaign', since, 'SELECT campaign, total, per_user, granted FROM idem_campaign WHERE tenant_id = %L',
			'SELECT campaign, total, per_user, model.standing(tenant_id, campaign) AS granted FROM model.campaigns WHERE tenant_id = %L'),
		model.unlike_table(t, 'campaign of', 'campaign, user_id', since, 'SELECT campaign, user_id, granted FROM idem_campaign_user WHERE tenant_id = %L',
			'SELECT campaign, user_id, sum(model.remaining(e)) AS granted FROM model.entitlements e WHERE tenant_id = %L AND campaign IS NOT NULL GROUP BY 1, 2'),
		-- what came, in words, is another test's; and where a call may stand before or after its payment was
		-- made, only the order of what it noted would tell
		model.unlike_table(t, 'anomaly', 'anomaly_no', since,
			'SELECT tenant_id, anomaly_no, kind, entity, key, status, version, hits, actor, opened_at, last_hit_at, resolution, reason, resolved_by, resolved_at FROM idem_anomaly WHERE tenant_id = %L',
			'SELECT tenant_id, anomaly_no, kind, entity, key, status, version, hits, actor, opened_at, last_hit_at, resolution, reason, resolved_by, resolved_at FROM model.anomalies WHERE tenant_id = %L'),
		model.unlike_table(t, 'notification', 'channel, account, notify_id', since, 'SELECT channel, account, notify_id, kind, outcome, ack, hits FROM idem_notification WHERE tenant_id = %L',
			'SELECT channel, account, notify_id, kind, outcome, ack, hits FROM model.notifications WHERE tenant_id = %L'),
		model.unlike_events(t)), '')
	FROM calls $$;

-- The whole: NULL, or where extension and twin part.
CREATE FUNCTION model.compare(t text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(model.follow(t), model.unlike_books(t)) $$;
