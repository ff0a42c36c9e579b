-- A random walk through the API, a step on both sides at a time: first the
-- extension, then its twin (model.sql), then a comparison.
--
-- The walk is told in stories of a few hundred steps about two tenants, who use
-- the same few orders, keys and numbers.  What it does next depends on the seed
-- and the twin's rows alone.

-- What was done and answered; a difference is reported with what led to it.
CREATE UNLOGGED TABLE model.steps (step int PRIMARY KEY, tenant_id text, order_id text, call text, args jsonb, ours jsonb, theirs jsonb);

-- ---- both sides ---------------------------------------------------------------

-- The rows that a call answers, or the SQLSTATE that it raises.
CREATE FUNCTION model.ask(function text, args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	answer jsonb;
BEGIN
	PERFORM model.because(NULL);
	EXECUTE (SELECT format('SELECT coalesce(jsonb_agg(r), ''[]'') FROM %s(%s) AS r', function, string_agg(format('%I => %L', key, value), ', '))
		FROM jsonb_each_text(args)) INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN jsonb_build_object('sqlstate', SQLSTATE, 'message', SQLERRM);
END $$;

-- Equal, or later by no more than the step took.
CREATE FUNCTION model.near(ours timestamptz, theirs timestamptz, since interval) RETURNS boolean LANGUAGE sql AS $$
	SELECT CASE WHEN ours IS NULL OR theirs IS NULL THEN ours IS NULL AND theirs IS NULL ELSE ours - theirs BETWEEN '0' AND since END $$;

CREATE FUNCTION model.same_answer(ours jsonb, theirs jsonb, since interval) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF jsonb_typeof(ours) = 'object' OR jsonb_typeof(theirs) = 'object' THEN
		RETURN coalesce(ours->>'sqlstate' = theirs->>'sqlstate', false);
	END IF;
	RETURN jsonb_array_length(ours) = jsonb_array_length(theirs) AND (
		SELECT coalesce(bool_and(o - beside = t - beside
			AND model.near((o->>'created_at')::timestamptz, (t->>'created_at')::timestamptz, since)
			AND model.near((o->>'expires_at')::timestamptz, (t->>'expires_at')::timestamptz, since)), true)
		FROM ROWS FROM (jsonb_array_elements(ours), jsonb_array_elements(theirs)) AS r (o, t),
			-- how much of a bad element is shown is nobody's promise
			LATERAL (SELECT CASE WHEN o->>'outcome' = 'error' THEN '{order_id,request_key}' ELSE '{created_at,expires_at}' END::text[]) AS b (beside));
END $$;

-- Two rows; of those that are on both sides the columns that differ.
CREATE FUNCTION model.show(what text, ours jsonb, theirs jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT format(E'%s %s\n  idem:  %s\n  model: %s', what, coalesce(ours, theirs)->>key, coalesce(ours - same, ours), coalesce(theirs - same, theirs))
	FROM (SELECT CASE what WHEN 'order' THEN 'order_id' WHEN 'key' THEN 'request_key' ELSE what || '_no' END AS key) AS k,
		(SELECT array_agg(o.key) AS same FROM jsonb_each(ours) AS o WHERE o.value = theirs->o.key) AS s $$;

-- Rows of a tenant that are not the same on both sides.  Times that are near
-- are generated: the twin takes them over.
CREATE FUNCTION model.differing_rows(t text, since interval) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	difference text;
BEGIN
	UPDATE model.orders m SET created_at = c.created_at, expires_at = c.expires_at FROM idem_order c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.order_id = c.order_id
		AND (m.created_at, m.expires_at) IS DISTINCT FROM (c.created_at, c.expires_at)
		AND model.near(c.created_at, m.created_at, since) AND model.near(c.expires_at, m.expires_at, since);
	UPDATE model.payments m SET created_at = c.created_at, expires_at = c.expires_at, submitted_at = c.submitted_at, next_check_at = c.next_check_at FROM idem_payment c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.payment_no = c.payment_no
		AND (m.created_at, m.expires_at, m.submitted_at, m.next_check_at) IS DISTINCT FROM (c.created_at, c.expires_at, c.submitted_at, c.next_check_at)
		AND model.near(c.created_at, m.created_at, since) AND model.near(c.expires_at, m.expires_at, since)
		AND model.near(c.submitted_at, m.submitted_at, since) AND model.near(c.next_check_at, m.next_check_at, since);
	UPDATE model.keys m SET created_at = c.created_at FROM idem_payment_key c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.request_key = c.request_key AND m.created_at <> c.created_at AND model.near(c.created_at, m.created_at, since);
	UPDATE model.receipts m SET created_at = c.created_at FROM idem_receipt c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.receipt_no = c.receipt_no AND m.created_at <> c.created_at AND model.near(c.created_at, m.created_at, since);
	UPDATE model.refunds m SET created_at = c.created_at, submitted_at = c.submitted_at, next_check_at = c.next_check_at FROM idem_refund c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.refund_no = c.refund_no
		AND (m.created_at, m.submitted_at, m.next_check_at) IS DISTINCT FROM (c.created_at, c.submitted_at, c.next_check_at)
		AND model.near(c.created_at, m.created_at, since) AND model.near(c.submitted_at, m.submitted_at, since) AND model.near(c.next_check_at, m.next_check_at, since);
	UPDATE model.disputes m SET created_at = c.created_at FROM idem_dispute c
	WHERE m.tenant_id = t AND c.tenant_id = t AND (m.channel, m.account, m.dispute_no) = (c.channel, c.account, c.dispute_no)
		AND m.created_at <> c.created_at AND model.near(c.created_at, m.created_at, since);
	UPDATE model.anomalies m SET opened_at = c.opened_at, last_hit_at = c.last_hit_at, resolved_at = c.resolved_at FROM idem_anomaly c
	WHERE m.tenant_id = t AND c.tenant_id = t AND m.anomaly_no = c.anomaly_no
		AND (m.opened_at, m.last_hit_at, m.resolved_at) IS DISTINCT FROM (c.opened_at, c.last_hit_at, c.resolved_at)
		AND model.near(c.opened_at, m.opened_at, since) AND model.near(c.last_hit_at, m.last_hit_at, since) AND model.near(c.resolved_at, m.resolved_at, since);

	SELECT string_agg(model.show(what, ours, theirs), E'\n') INTO difference FROM (
		SELECT 'order' AS what, to_jsonb(c) AS ours, to_jsonb(m) AS theirs FROM (SELECT * FROM idem_order WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.orders WHERE tenant_id = t) AS m ON m.order_id = c.order_id WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'payment', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_payment WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.payments WHERE tenant_id = t) AS m ON m.payment_no = c.payment_no WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'key', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_payment_key WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.keys k WHERE tenant_id = t AND NOT EXISTS
				(SELECT FROM model.payments p WHERE p.tenant_id = t AND p.request_key = k.request_key)) AS m ON m.request_key = c.request_key WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'receipt', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_receipt WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.receipts WHERE tenant_id = t) AS m ON m.receipt_no = c.receipt_no WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'refund', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_refund WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.refunds WHERE tenant_id = t) AS m ON m.refund_no = c.refund_no WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'dispute', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_dispute WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.disputes WHERE tenant_id = t) AS m USING (channel, account, dispute_no) WHERE c IS DISTINCT FROM m
		UNION ALL
		SELECT 'anomaly', to_jsonb(c), to_jsonb(m) FROM (SELECT * FROM idem_anomaly WHERE tenant_id = t) AS c
			FULL JOIN (SELECT * FROM model.anomalies WHERE tenant_id = t) AS m ON m.anomaly_no = c.anomaly_no WHERE c IS DISTINCT FROM m
	) AS rows;
	RETURN difference;
END $$;

-- Moves that stand on one side only, and moves whose event is not the one that
-- tells of them.
CREATE FUNCTION model.differing_moves(t text) RETURNS text LANGUAGE sql AS $$
	WITH ours AS (
		SELECT entity, key, version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = t),
	theirs AS (
		SELECT entity, key, version, from_state, to_state, event, reason FROM model.moves WHERE tenant_id = t),
	differing AS (
		(SELECT 'idem:  ' || to_jsonb(m)::text AS line FROM (TABLE ours EXCEPT ALL TABLE theirs) AS m)
		UNION ALL
		(SELECT 'model: ' || to_jsonb(m)::text FROM (TABLE theirs EXCEPT ALL TABLE ours) AS m)
		UNION ALL
		SELECT 'event: ' || coalesce(to_jsonb(h), to_jsonb(e))::text
		FROM (SELECT * FROM idem_history WHERE tenant_id = t) AS h FULL JOIN (SELECT * FROM idem_outbox WHERE tenant_id = t) AS e ON e.id = h.event_id
		WHERE (h.entity || '.' || h.to_state, h.from_state, h.to_state, h.event, h.tenant_id) IS DISTINCT FROM
			(e.type::text, e.payload->>'from', e.payload->>'to', e.payload->>'event', e.payload->>'tenant_id'))
	SELECT string_agg(line, E'\n') FROM differing $$;

-- ---- chance -------------------------------------------------------------------

CREATE FUNCTION model.chance(percent float) RETURNS boolean LANGUAGE sql VOLATILE AS $$ SELECT random() * 100 < percent $$;

-- Arguments are nonsense now and then, but one at a time: of two faults either
-- may be found first.
CREATE FUNCTION model.nonsense(percent float) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF NOT model.chance(percent) OR current_setting('model.nonsense') <> '' THEN RETURN false; END IF;
	PERFORM set_config('model.nonsense', 'yes', false);
	RETURN true;
END $$;

CREATE FUNCTION model.pick(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT choices[1 + floor(random() * array_length(choices, 1))::int] $$;

-- A payment of the tenant, mostly one in the wanted states; or a number that may have none.
CREATE FUNCTION model.some_payment(t text, wanted text[] DEFAULT '{pending,closing,review}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	numbers text[];
BEGIN
	IF model.chance(65) THEN
		SELECT array_agg(payment_no ORDER BY created_at) INTO numbers FROM model.payments WHERE tenant_id = t AND status = ANY (wanted);
	END IF;
	IF numbers IS NULL AND model.chance(85) THEN
		SELECT array_agg(payment_no ORDER BY created_at) INTO numbers FROM model.payments WHERE tenant_id = t;
	END IF;
	RETURN coalesce(model.pick(VARIADIC numbers), model.pick('own-001', 'own-002', 'own-003', 'own-004', 'own-005', 'own-006', 'nobody'));
END $$;

CREATE FUNCTION model.some_receipt(t text, homeless boolean) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT coalesce(model.pick(VARIADIC array_agg(receipt_no ORDER BY created_at)), 'nobody')
	FROM model.receipts WHERE tenant_id = t AND (payment_no IS NULL OR NOT homeless) $$;

CREATE FUNCTION model.some_amount() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.nonsense(2) THEN model.pick('0', '-5', NULL) WHEN model.chance(90) THEN '100' ELSE '200' END $$;

CREATE FUNCTION model.some_currency() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.nonsense(1) THEN model.pick('', 'CN', 'C1Y', NULL) WHEN model.chance(97) THEN model.pick('CNY', 'cny') ELSE 'USD' END $$;

CREATE FUNCTION model.some(VARIADIC keys text[]) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN model.nonsense(1) THEN model.pick('', NULL, repeat('x', 256)) ELSE model.pick(VARIADIC keys) END $$;

-- Arguments; those that are left out get their defaults.
CREATE FUNCTION model.some_create(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb;
BEGIN
	PERFORM set_config('model.nonsense', '', false);
	args := jsonb_build_object('order_id', model.some('o1', 'o2', 'o3'), 'amount', model.some_amount()::bigint, 'currency', model.some_currency());
	IF model.chance(60) THEN args := args || jsonb_build_object('request_key', model.some('k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8', 'k9')); END IF;
	IF args->>'request_key' IS NOT NULL AND model.chance(40) OR model.nonsense(1) THEN args := args || '{"repurchase": true}'; END IF;
	IF model.chance(40) THEN args := args || jsonb_build_object('channel', model.some('alipay', 'alipay', 'wechat')); END IF;
	IF args ? 'channel' AND model.chance(40) OR model.chance(1) THEN args := args || jsonb_build_object('account', model.some('a1', 'a1', 'a2')); END IF;
	IF model.chance(20) THEN args := args || jsonb_build_object('payment_no', model.some('own-001', 'own-002', 'own-003', 'own-004', 'own-005', 'own-006')); END IF;
	IF model.chance(15) THEN
		args := args || jsonb_build_object('expires_in', CASE WHEN model.nonsense(20) THEN model.pick('0', '-1 hour') ELSE model.pick(NULL, NULL, '10 seconds', '2 hours', '3 days') END);
	END IF;
	IF model.chance(10) THEN args := args || '{"metadata": {"a": 1}}'; END IF;
	RETURN args;
END $$;

-- Elements that have nothing to do with each other, since the order in which
-- they are created is nobody's promise; one may be there twice.
CREATE FUNCTION model.some_batch(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	batch jsonb := '[]';
	element jsonb;
BEGIN
	FOR i IN 0 .. 3 LOOP
		element := model.some_create(t);
		CONTINUE WHEN EXISTS (SELECT FROM jsonb_array_elements(batch) AS e WHERE e->'order_id' = element->'order_id'
			OR e->'request_key' = element->'request_key' OR e->'payment_no' = element->'payment_no');
		batch := batch || element;
	END LOOP;
	RETURN batch || CASE WHEN model.chance(30) THEN batch->0 ELSE '[]' END;
END $$;

CREATE FUNCTION model.some_confirm(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb;
	p model.payments;
BEGIN
	args := jsonb_build_object('payment_no', model.some_payment(t));
	p := model.payment_of(t, args->>'payment_no');
	args := args || jsonb_build_object('channel', CASE WHEN model.chance(90) THEN coalesce(p.channel, model.pick('alipay', 'wechat')) ELSE model.some('alipay', 'wechat') END,
		'trade_no', model.some('t1', 't2', 't3', 't4', 't5', 't6', 't7', 't8', 't9', 't10', 't11', 't12', 't13', 't14', 't15', 't16', 't17', 't18', 't19', 't20'),
		'amount', CASE WHEN model.chance(65) THEN coalesce(p.amount::text, '100') WHEN model.nonsense(5) THEN model.pick('0', '-5', NULL) ELSE model.pick('100', '200', '300') END, 'currency', model.some_currency());
	IF model.chance(40) THEN args := args || jsonb_build_object('account', CASE WHEN model.chance(70) THEN coalesce(p.account, 'a1') ELSE model.some('a1', 'a2') END); END IF;
	IF model.chance(20) THEN args := args || '{"paid_at": "2024-01-01 12:00:00+08"}'; END IF;
	RETURN args;
END $$;

-- A refund of the tenant, or a number that may be one.
CREATE FUNCTION model.some_refund(t text) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN count(*) = 0 OR model.chance(10) THEN model.some('r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'c1', 'CX1')
		ELSE model.pick(VARIADIC array_agg(refund_no ORDER BY created_at)) END
	FROM model.refunds WHERE tenant_id = t $$;

CREATE FUNCTION model.some_request(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb;
	r model.receipts;
BEGIN
	args := jsonb_build_object('payment_no', model.some_payment(t, '{paid}'), 'refund_no', model.some('r1', 'r2', 'r3', 'r4', 'r5', 'r6'),
		'amount', CASE WHEN model.nonsense(2) THEN model.pick('0', '-5', NULL) ELSE model.pick('30', '40', '40', '60', '100') END::bigint, 'currency', model.some_currency(), 'reason', model.pick('why', NULL));
	IF model.nonsense(1) THEN args := args || '{"refund_no": "A1"}'; END IF;
	IF model.chance(15) THEN
		SELECT * INTO r FROM model.receipts WHERE tenant_id = t AND receipt_no = model.some_receipt(t, false);
		args := args || jsonb_build_object('receipt_no', coalesce(r.receipt_no, 'nobody')) || CASE WHEN r.payment_no IS NOT NULL THEN jsonb_build_object('payment_no', r.payment_no) ELSE '{}' END;
	END IF;
	RETURN args;
END $$;

CREATE FUNCTION model.some_result(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb := jsonb_build_object('refund_no', (SELECT CASE WHEN count(*) = 0 OR model.chance(15) THEN model.pick('c1', 'c2', NULL) ELSE model.pick(VARIADIC array_agg(refund_no ORDER BY created_at)) END
			FROM model.refunds WHERE tenant_id = t), 'result', model.pick('succeeded', 'succeeded', 'succeeded', 'failed', 'closed', 'abnormal', 'timeout', 'reversed'));
BEGIN
	IF model.chance(30) OR args->>'refund_no' IS NULL AND model.chance(90) THEN args := args || jsonb_build_object('channel_refund_no', model.pick('X1', 'X2', 'X3', 'X4')); END IF;
	IF model.chance(30) OR (args->>'refund_no' IS NULL OR args->>'refund_no' LIKE 'c%') AND model.chance(80) THEN
		args := args || jsonb_build_object('amount', model.pick('20', '60', '120')::bigint, 'payment_no', model.some_payment(t, '{paid}'));
	END IF;
	IF model.chance(20) THEN args := args || jsonb_build_object('occurred_at', model.pick('2024-01-01 12:00:00+08', '2024-01-01 12:00:00+08', '2200-01-01 12:00:00+08')); END IF;
	IF model.nonsense(2) THEN args := args || jsonb_build_object('result', 'perhaps'); END IF;
	IF model.nonsense(2) THEN args := args || jsonb_build_object('amount', model.pick('0', '-5')::bigint); END IF;
	RETURN args;
END $$;

CREATE FUNCTION model.some_dispute(t text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	args jsonb;
BEGIN
	SELECT jsonb_build_object('channel', coalesce(channel, 'alipay'), 'account', coalesce(account, ''), 'trade_no', coalesce(trade_no, 't1')) INTO args
	FROM (SELECT model.some_receipt(t, false) AS number) AS n LEFT JOIN model.receipts ON tenant_id = t AND receipt_no = number;
	IF args->>'channel' = '' OR args->>'trade_no' = '' OR model.chance(10) THEN args := args || '{"channel": "alipay", "trade_no": "t99"}'; END IF;
	args := args || jsonb_build_object('dispute_no', model.pick('d1', 'd2'), 'stage', model.pick('opened', 'opened', 'won', 'lost'), 'amount', model.pick('30', '30', '30', '100')::bigint, 'currency', 'CNY');
	IF model.chance(40) THEN args := args || jsonb_build_object('occurred_at', model.pick('2024-01-01 12:00:00+08', '2024-01-02 12:00:00+08', '2024-01-03 12:00:00+08')); END IF;
	IF model.nonsense(3) THEN args := args || jsonb_build_object('stage', 'drawn'); END IF;
	IF model.nonsense(3) THEN args := args || jsonb_build_object('amount', model.pick('0', '-5')::bigint); END IF;
	RETURN args;
END $$;

-- What happens next to tenant t.
CREATE FUNCTION model.some_call(t text, OUT call text, OUT args jsonb) LANGUAGE plpgsql AS $$
DECLARE
	n float := random() * 100;
	o text;
BEGIN
	PERFORM set_config('model.nonsense', '', false);
	o := model.some('o1', 'o2', 'o3');
	IF n < 20 THEN
		call := 'create_payment';
		args := model.some_create(t);
	ELSIF n < 22 THEN
		call := 'create_payments';
		args := jsonb_build_object('requests', model.some_batch(t));
	ELSIF n < 38 THEN
		call := 'confirm_payment';
		args := model.some_confirm(t);
	ELSIF n < 50 THEN
		call := 'submit_payment';
		args := jsonb_build_object('payment_no', model.some_payment(t, '{pending}'), 'channel', model.some('alipay', 'alipay', 'alipay', 'wechat'));
		IF model.chance(40) THEN args := args || jsonb_build_object('account', model.some('a1', 'a1', 'a2')); END IF;
	ELSIF n < 53 THEN
		call := 'attach_channel_data';
		args := jsonb_build_object('payment_no', model.some_payment(t), 'data', CASE WHEN NOT model.nonsense(10) THEN model.pick('{"qr": 1}', '{"qr": 2}') END);
	ELSIF n < 58 THEN
		call := 'begin_close';
		args := jsonb_build_object('payment_no', model.some_payment(t, '{pending}'), 'reason', model.pick('why', NULL));
	ELSIF n < 66 THEN
		call := 'finish_close';
		args := jsonb_build_object('payment_no', model.some_payment(t, CASE WHEN model.chance(80) THEN '{closing}' ELSE '{closed,failed}' END::text[]), 'result', model.pick('closed', 'closed', 'already_paid', 'not_exist', 'refused', 'unknown'),
			'expire_order', model.chance(15));
		IF model.nonsense(2) THEN args := args || jsonb_build_object('result', model.pick('perhaps', '', NULL)); END IF;
	ELSIF n < 68 THEN
		call := 'close_payment';
		args := jsonb_build_object('payment_no', model.some_payment(t), 'reason', model.pick('why', NULL));
	ELSIF n < 71 THEN
		call := 'cancel_request_key';
		SELECT jsonb_build_object('request_key', CASE WHEN model.chance(80) THEN model.pick(VARIADIC array_agg(request_key ORDER BY created_at, request_key))
			ELSE model.some('k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8', 'k9') END, 'reason', model.pick('why', NULL))
		INTO args FROM model.keys k WHERE tenant_id = t AND (model.payment_of(t, payment_no)).status IN ('pending', 'closing', 'review');
		IF args->>'request_key' IS NULL AND NOT model.nonsense(5) THEN args := args || '{"request_key": "k9"}'; END IF;
	ELSIF n < 73 THEN
		call := 'fail_payment';
		args := jsonb_build_object('payment_no', model.some_payment(t), 'reason', model.pick('why', NULL));
	ELSIF n < 76 THEN
		call := 'create_order';
		args := jsonb_build_object('order_id', o, 'amount', model.some_amount(), 'currency', model.some_currency());
		IF model.chance(30) THEN args := args || jsonb_build_object('buyer_id', model.some('b1', 'b1', 'b1', 'b2')); END IF;
		IF model.chance(30) THEN args := args || jsonb_build_object('expires_in', CASE WHEN model.nonsense(10) THEN '0' ELSE model.pick('1 hour', '20 minutes', '2 days') END); END IF;
		IF model.chance(30) THEN args := args || '{"metadata": {"a": 1}}'; END IF;
	ELSIF n < 78 THEN
		call := 'update_order';
		args := jsonb_build_object('order_id', o, 'amount', model.pick('100', '100', '200', '0'), 'currency', model.some_currency(),
			'expected_version', CASE WHEN model.chance(80) THEN coalesce((model.order_of(t, o)).version, 1) WHEN NOT model.nonsense(20) THEN 1 END, 'reason', model.pick('why', NULL));
	ELSIF n < 79.5 THEN
		call := 'cancel_order';
		args := jsonb_build_object('order_id', o, 'reason', model.pick('why', NULL));
	ELSIF n < 82 THEN
		call := model.pick('ship_order', 'complete_order');
		args := jsonb_build_object('order_id', o);
	ELSIF n < 86 THEN
		call := 'resolve_review';
		args := jsonb_build_object('payment_no', model.some_payment(t, '{review}'), 'decision', model.pick('accept', 'refund'), 'reason', model.pick('why', NULL));
		IF model.chance(30) THEN
			SELECT args || jsonb_build_object('receipt_no', coalesce(model.pick(VARIADIC array_agg(receipt_no ORDER BY created_at)), 'nobody')) INTO args
			FROM model.receipts WHERE tenant_id = t AND payment_no = args->>'payment_no';
		ELSIF model.chance(5) THEN
			args := args || jsonb_build_object('receipt_no', model.some_receipt(t, false));
		END IF;
		IF model.nonsense(2) THEN args := args || jsonb_build_object('decision', model.pick('perhaps', '', NULL)); END IF;
	ELSIF n < 88 THEN
		call := 'adopt_receipt';
		args := jsonb_build_object('receipt_no', model.some_receipt(t, model.chance(80)), 'payment_no', model.some_payment(t));
	ELSIF n < 90.8 THEN
		call := 'refund_receipt';
		args := jsonb_build_object('receipt_no', model.some_receipt(t, model.chance(80)), 'reason', model.pick('why', NULL));
	ELSIF n < 92 THEN
		call := 'raw_expire_payment';
		args := jsonb_build_object('payment_no', model.some_payment(t, '{pending,closing}'), 'ago', model.pick('1 minute', '11 minutes'));
	ELSIF n < 92.3 THEN
		call := 'raw_expire_order';
		args := jsonb_build_object('order_id', o, 'ago', '1 minute');
	ELSIF n < 93 THEN
		call := 'raw_account';
		args := jsonb_build_object('channel', model.pick('alipay', 'wechat'), 'account', model.pick('a1', '', ''));
	ELSE
		call := model.pick('request_refund', 'request_refund', 'request_refund', 'submit_refund', 'submit_refund', 'cancel_refund', 'retry_refund', 'settle_refund', 'settle_refund', 'settle_refund', 'record_dispute');
		args := CASE call WHEN 'request_refund' THEN model.some_request(t) WHEN 'settle_refund' THEN model.some_result(t) WHEN 'record_dispute' THEN model.some_dispute(t)
			ELSE jsonb_build_object('refund_no', model.some_refund(t)) END;
	END IF;
END $$;

-- ---- what the API does not do: time passes, refunds come back, accounts are entered -----

CREATE FUNCTION model.raw(call text, t text, args jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	past timestamptz := model.now() - (args->>'ago')::interval;
BEGIN
	IF call = 'raw_expire_payment' THEN
		UPDATE idem_payment SET expires_at = past WHERE tenant_id = t AND payment_no = args->>'payment_no';
		UPDATE model.payments SET expires_at = past, version = version + 1 WHERE tenant_id = t AND payment_no = args->>'payment_no';
	ELSIF call = 'raw_expire_order' THEN
		UPDATE idem_order SET expires_at = past WHERE tenant_id = t AND order_id = args->>'order_id';
		UPDATE model.orders SET expires_at = past, version = version + 1 WHERE tenant_id = t AND order_id = args->>'order_id';
	ELSIF call = 'raw_account' THEN
		-- both sides read this table
		DELETE FROM idem_channel_account WHERE tenant_id = t AND channel = args->>'channel';
		INSERT INTO idem_channel_account SELECT t, args->>'channel', args->>'account' WHERE args->>'account' <> '';
	END IF;
END $$;

-- ---- the walk -------------------------------------------------------------------

-- The order that a step was about.
CREATE FUNCTION model.order_in_question(t text, args jsonb) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(args->>'order_id', (model.payment_of(t, args->>'payment_no')).order_id,
		(SELECT order_id FROM model.receipts WHERE tenant_id = t AND receipt_no = args->>'receipt_no'),
		(SELECT order_id FROM model.refunds WHERE tenant_id = t AND refund_no = args->>'refund_no'),
		(SELECT (model.payment_of(t, payment_no)).order_id FROM model.keys WHERE tenant_id = t AND request_key = args->>'request_key')) $$;

CREATE FUNCTION model.take_step(step int, t text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	call text;
	args jsonb;
	ours jsonb;
	theirs jsonb;
	since interval;
	difference text;
BEGIN
	SELECT * INTO call, args FROM model.some_call(t);
	PERFORM set_config('model.now', clock_timestamp()::text, false), model.because(NULL);
	IF call LIKE 'raw%' THEN
		PERFORM model.raw(call, t, args);
	ELSE
		args := jsonb_build_object('tenant_id', t) || args;
		ours := model.ask('idem_' || call, args);
		since := clock_timestamp() - model.now();
		theirs := model.ask('model.' || call, args);
		IF NOT model.same_answer(ours, theirs, since) THEN difference := 'another answer'; END IF;
	END IF;
	INSERT INTO model.steps VALUES (step, t, model.order_in_question(t, args), call, args - 'tenant_id', ours, theirs);
	RETURN coalesce(difference || coalesce(E'\n' || model.differing_rows(t, since), ''), model.differing_rows(t, coalesce(since, '0')));
END $$;

-- The step that differed, and the last ones of its order.
CREATE FUNCTION model.report(last int, difference text) RETURNS text LANGUAGE sql AS $$
	SELECT difference || E'\n' || string_agg(format(E'%s. %s %s %s\n  idem:  %s\n  model: %s', step, tenant_id, call, args, ours, theirs), E'\n' ORDER BY step)
	FROM (
		SELECT s.* FROM model.steps s, model.steps l
		WHERE l.step = last AND s.tenant_id = l.tenant_id
			AND (s.step = last OR s.order_id = l.order_id OR s.call IN ('raw_account', 'create_payments')
				OR (l.args->>'trade_no' = s.args->>'trade_no') OR l.args->>'request_key' = s.args->>'request_key' OR l.args->>'payment_no' = s.args->>'payment_no')
		ORDER BY s.step DESC LIMIT 20) AS steps $$;

-- From one story to the next all that happened is compared, event by event.
CREATE PROCEDURE model.walk(first int, last int, story_length int) LANGUAGE plpgsql AS $$
DECLARE
	tenants text[];
	difference text;
BEGIN
	FOR step IN first .. last LOOP
		tenants := ARRAY['a', 'b'];
		tenants := ARRAY[tenants[1] || (step - 1) / story_length, tenants[2] || (step - 1) / story_length];
		difference := model.take_step(step, model.pick(VARIADIC tenants));
		IF difference IS NULL AND (step % story_length = 0 OR step = last) THEN
			SELECT string_agg(model.differing_moves(t) || E'\n', '') || coalesce(string_agg(model.differing_rows(t, '0'), E'\n'), '')
			INTO difference FROM unnest(tenants) AS t;
		END IF;
		IF difference IS NOT NULL THEN
			RAISE EXCEPTION E'step % differs: %', step, model.report(step, difference);
		END IF;
		IF model.chance(20) THEN COMMIT; END IF;
	END LOOP;
END $$;
