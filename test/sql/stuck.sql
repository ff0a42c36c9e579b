--
-- stuck: what waits for a human, or has waited too long, and the call to make.
--
\set SHOW_CONTEXT never
SET client_min_messages = warning;

--
-- The scene: one of each kind, and beside it one that is getting on.
--

-- money that is not what was asked for; two receipts, two decisions
SELECT outcome FROM idem_create_payment('stuck', 'review', 100, 'CNY', payment_no => 'stuck-review');
SELECT outcome FROM idem_confirm_payment('stuck', 'stuck-review', 'alipay', 'stuck-1', 99, 'CNY');
SELECT outcome FROM idem_confirm_payment('stuck', 'stuck-review', 'alipay', 'stuck-2', 98, 'CNY');
-- payments that nobody asks about: one closing, one that may have been paid
SELECT outcome FROM idem_create_payment('stuck', 'closing', 100, 'CNY', payment_no => 'stuck-closing');
SELECT outcome FROM idem_submit_payment('stuck', 'stuck-closing', 'alipay');
SELECT outcome FROM idem_begin_close('stuck', 'stuck-closing');
SELECT outcome FROM idem_create_payment('stuck', 'silent', 100, 'CNY', payment_no => 'stuck-silent');
SELECT outcome FROM idem_submit_payment('stuck', 'stuck-silent', 'stripe');
UPDATE idem_payment SET next_check_at = now() - interval '16 minutes' WHERE tenant_id = 'stuck' AND payment_no IN ('stuck-closing', 'stuck-silent', 'stuck-review');
SELECT outcome FROM idem_create_payment('stuck', 'asked', 100, 'CNY', payment_no => 'stuck-asked');
SELECT outcome FROM idem_submit_payment('stuck', 'stuck-asked', 'stripe');
-- money that nobody knows, and money on the wrong account; a key that needs quotes
SELECT outcome FROM idem_confirm_payment('stuck', 'nobody''s', 'alipay', 'stuck-3', 10, 'CNY');
SELECT outcome FROM idem_create_payment('stuck', 'wrong', 100, 'CNY', payment_no => 'stuck-wrong');
SELECT outcome FROM idem_submit_payment('stuck', 'stuck-wrong', 'alipay', 'ours');
SELECT outcome FROM idem_confirm_payment('stuck', 'stuck-wrong', 'alipay', 'stuck-4', 100, 'CNY', 'theirs');
-- refunds in each state: new, old, held, sent, lost, refused by the channel, done
SELECT outcome FROM idem_create_payment('stuck', 'paid', 100, 'CNY', payment_no => 'stuck-paid');
SELECT outcome FROM idem_confirm_payment('stuck', 'stuck-paid', 'alipay', 'stuck-5', 100, 'CNY');
UPDATE idem_receipt SET refund_reserved = 70, refunded = 10 WHERE tenant_id = 'stuck' AND payment_no = 'stuck-paid';
INSERT INTO idem_refund (tenant_id, refund_no, receipt_no, payment_no, order_id, purchase_no, channel, amount, currency, status, cause, held, created_at, submitted_at)
	SELECT 'stuck', f.refund_no, r.receipt_no, r.payment_no, r.order_id, r.purchase_no, r.channel, 10, 'CNY', f.status, 'request', f.held, now() - f.age, now() - f.sent
	FROM idem_receipt r, (VALUES ('r-new', 'requested', false, interval '1 minute', NULL::interval), ('r-old', 'requested', false, '61 minutes', NULL),
		('r''held', 'requested', true, '1 minute', NULL), ('r-sent', 'processing', false, '2 days', '23 hours'),
		('r-lost', 'processing', false, '3 days', '25 hours'), ('r-odd', 'abnormal', false, '1 hour', '10 minutes'),
		('r-done', 'succeeded', false, '3 days', '3 days')) f (refund_no, status, held, age, sent)
	WHERE r.tenant_id = 'stuck' AND r.payment_no = 'stuck-paid';
-- more money for it goes back by itself: not stuck
SELECT outcome FROM idem_confirm_payment('stuck', 'stuck-paid', 'alipay', 'stuck-6', 100, 'CNY');
-- a hook that fails
SELECT outcome FROM idem_set_hook('order', 'shipped', 'pg_catalog.jsonb_array_length(pg_catalog.jsonb)');
SELECT outcome FROM idem_create_order('stuck', 'hooked', 0, 'CNY');
SELECT outcome FROM idem_ship_order('stuck', 'hooked');
SELECT outcome FROM idem_remove_hook('order', 'shipped');
-- a request of which nobody knows what became, one in work, one that may be resumed
SELECT outcome FROM idem_begin_request('stuck', 'shop', 'unknown', lease => '1 microsecond', on_expiry => 'unknown');
SELECT outcome FROM idem_begin_request('stuck', 'shop', 'work', lease => '1 hour', on_expiry => 'unknown');
SELECT outcome FROM idem_begin_request('stuck', 'shop', 'resume', lease => '1 microsecond');
-- an anomaly of another kind, one that was resolved, one of another tenant
INSERT INTO idem_anomaly (tenant_id, anomaly_no, kind, entity, key, status, detail, opened_at, last_hit_at) VALUES
	('stuck', 'a1', 'unrouted', 'receipt', 'x1', 'opened', '{"amount": 12}', now() - interval '1 day', now()),
	('stuck', 'a2', 'tampered', 'notification', 'n1', 'opened', '{"amount": "12e999"}', now() - interval '1 day', now()),
	('stuck', 'a3', 'refund_abnormal', 'refund', 'r-odd', 'opened', NULL, now(), now()),
	('stuck', 'a4', 'late', 'receipt', '1', 'resolved', NULL, now(), now()),
	('stuck2', 'a1', 'tampered', 'notification', 'n1', 'opened', NULL, now(), now());

-- Each once, with the call to make.  (Numbers of receipts and anomalies are made.)
CREATE TEMP VIEW seen AS
	SELECT kind, tenant_id, regexp_replace(key, '^\d{15,}$', '#') AS key, amount,
		regexp_replace(why, '\d{15,}', '#', 'g') AS why, regexp_replace(next_action, '\d{15,}', '#', 'g') AS next_action
	FROM idem_stuck WHERE tenant_id LIKE 'stuck%';
SELECT kind, tenant_id, key, amount, why FROM seen ORDER BY 1, 2, 3, 4;
SELECT kind, key, next_action FROM seen ORDER BY 1, 2, amount;
-- since when
SELECT kind, key, date_trunc('minute', now() - since) AS since FROM idem_stuck
WHERE tenant_id = 'stuck' AND (kind IN ('closing', 'check_overdue', 'unrouted') OR kind LIKE 'refund%') ORDER BY 1, 2;

-- The call can be made as it stands; where something is to be decided, it says so.
CREATE FUNCTION pg_temp.made(what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	action text := (SELECT next_action FROM idem_stuck WHERE tenant_id = 'stuck' AND kind = what ORDER BY amount LIMIT 1);
	outcome text;
BEGIN
	EXECUTE action INTO outcome;
	RETURN outcome;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT what, pg_temp.made(what) FROM unnest(ARRAY['review', 'closing', 'refund_requested', 'refund_held', 'refund_processing', 'refund_abnormal', 'orphan', 'rejected', 'hook_failed', 'request_unknown', 'unrouted']) what;
-- With the decision in place, what was stuck is gone.
SELECT replace(replace(next_action, '<accept|refund>', 'refund'), '<reason>', 'not ours') AS call FROM idem_stuck WHERE tenant_id = 'stuck' AND kind = 'review' AND amount = 98 \gset
SELECT outcome, status FROM (:call) c;
SELECT replace(next_action, '<closed|already_paid|not_exist|refused|unknown>', 'closed') AS call FROM idem_stuck WHERE tenant_id = 'stuck' AND kind = 'closing' \gset
SELECT outcome, status FROM (:call) c;
SELECT replace(next_action, '<completed|released>', 'released') AS call FROM idem_stuck WHERE tenant_id = 'stuck' AND kind = 'request_unknown' \gset
SELECT outcome FROM (:call) c;
SELECT count FROM idem_sweep() WHERE what = 'hooks';
SELECT kind, key FROM seen WHERE tenant_id = 'stuck' AND kind IN ('review', 'closing', 'mismatch', 'request_unknown', 'hook_failed') ORDER BY 1, 2;

--
-- It shows an auditor the rows of his tenants, and nobody else anything.
--
CREATE ROLE regress_stuck;
SET ROLE regress_stuck;
SELECT count(*) FROM idem_stuck;
SELECT idem_may_see('stuck');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_stuck', 'client', 'stuck');
SET ROLE regress_stuck;
SELECT count(*) FROM idem_stuck;
RESET ROLE;
SELECT outcome FROM idem_allow('regress_stuck', 'auditor', 'stuck2');
SET ROLE regress_stuck;
SELECT kind, tenant_id, key FROM idem_stuck;
SELECT idem_may_see('stuck'), idem_may_see('stuck2'), idem_may_see(NULL), idem_may_see('');
-- nor by a function that would tell of what it is asked
CREATE FUNCTION pg_temp.leak(kind text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE WARNING 'leaked %', kind; RETURN true; END $$;
SELECT tenant_id FROM idem_stuck WHERE pg_temp.leak(kind);
RESET ROLE;
SELECT outcome FROM idem_allow('regress_stuck', 'auditor');
SET ROLE regress_stuck;
SELECT tenant_id, count(*) > 0 AS some FROM idem_stuck WHERE tenant_id LIKE 'stuck%' GROUP BY 1 ORDER BY 1;
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_stuck', 'auditor');
SELECT outcome FROM idem_disallow('regress_stuck', 'auditor', 'stuck2');
SET ROLE regress_stuck;
SELECT count(*) FROM idem_stuck;
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_stuck', 'client', 'stuck');
DROP OWNED BY regress_stuck;
DROP ROLE regress_stuck;

-- However many rows there are, it reads those that are stuck: every table by an index.
SET enable_seqscan = off;
CREATE FUNCTION pg_temp.sequential(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
		CONTINUE WHEN line !~ 'Seq Scan';
		RETURN NEXT substring(line FROM 'Seq Scan on .*');
	END LOOP;
END $$;
SELECT DISTINCT * FROM pg_temp.sequential('SELECT * FROM idem_stuck');
