--
-- direct_change: rows that are changed past the executor are as a statement would have changed them; whatever a
-- user adds to a table counts at once, in a session that knows the table without it.
--
CREATE TEMP TABLE told (tenant text, n int, call text, outcome text);
CREATE PROCEDURE pg_temp.tell(tenant text, apart boolean) LANGUAGE plpgsql AS $$
DECLARE
	calls text[] := ARRAY[
		$c$idem_set_campaign($1, 'spring', 10, 5)$c$,
		$c$idem_create_payment($1, 'o', 100, 'CNY', payment_no => 'change-p')$c$,
		$c$idem_submit_payment($1, 'change-p', 'alipay')$c$,
		$c$idem_receive_notification($1, 'alipay', 'n', 'change-p', 'T', 'TRADE_SUCCESS', 100, 'CNY')$c$,
		$c$idem_receive_notification($1, 'alipay', 'n', 'change-p', 'T', 'TRADE_SUCCESS', 100, 'CNY')$c$,
		$c$idem_request_refund($1, 'change-p', 'R1', 30, 'CNY')$c$,
		$c$idem_submit_refund($1, 'R1')$c$,
		$c$idem_settle_refund($1, 'R1', 'succeeded', 'C1')$c$,
		$c$idem_grant_entitlement($1, 'g1', 'u', 'coupon', 1, campaign => 'spring')$c$,
		$c$idem_grant_entitlement($1, 'g2', 'u', 'coupon', 2, campaign => 'spring')$c$,
		$c$idem_begin_request($1, 'pay', 'k1', '{"n": 1}')$c$,
		$c$idem_renew_request($1, 'pay', 'k1', $2, '1 hour')$c$,
		$c$idem_complete_request($1, 'pay', 'k1', $2, '{"paid": true}', 201)$c$,
		$c$idem_begin_request($1, 'pay', 'k2', worker => 'w', on_expiry => 'resume')$c$,
		$c$idem_checkpoint_request($1, 'pay', 'k2', $2, 'sent', '{"at": 1}')$c$,
		$c$idem_begin_request($1, 'pay', 'k2', worker => 'w')$c$,
		$c$idem_begin_request($1, 'pay', 'k3', '{"n": 1}')$c$,
		$c$idem_fail_request($1, 'pay', 'k3', $2)$c$,
		$c$idem_begin_request($1, 'pay', 'k3', '{"n": 2}', on_expiry => 'unknown')$c$,
		$c$idem_acquire_lease($1, 'nightly', 'w1')$c$,
		$c$idem_renew_lease($1, 'nightly', 1, '1 hour')$c$,
		$c$idem_release_lease($1, 'nightly', 1)$c$,
		$c$idem_acquire_lease($1, 'nightly', 'w2')$c$,
		$c$idem_create_order($1, 'free', 0, 'CNY')$c$,
		$c$idem_ship_order($1, 'free')$c$,
		$c$idem_grant_entitlement($1, 'g0', 'u', 'coupon', 3, free => true)$c$,
		$c$idem_revoke_entitlement($1, 'g0', 'r1', 1)$c$
	];
	answer jsonb;
	attempt bigint;
BEGIN
	FOR n IN 1..cardinality(calls) LOOP
		EXECUTE 'SELECT to_jsonb(c) FROM ' || calls[n] || ' AS c' INTO answer USING tenant, attempt;
		attempt := coalesce((answer ->> 'attempt')::bigint, attempt);
		INSERT INTO told VALUES (tenant, n, calls[n], answer ->> 'outcome');
		IF apart THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;
CALL pg_temp.tell('change_1', apart => true);
SELECT call, outcome FROM told ORDER BY n;

--
-- The statement changes the same
--
BEGIN;
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER nothing BEFORE UPDATE ON idem_payment FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE OF refunded ON idem_receipt FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing AFTER UPDATE ON idem_refund FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing AFTER UPDATE ON idem_notification FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_campaign FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_campaign_user FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_request FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_lease FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_order FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON idem_entitlement FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
CALL pg_temp.tell('change_2', apart => false);
SELECT count(*) AS calls, count(*) FILTER (WHERE a.outcome = b.outcome) AS same
FROM told a JOIN told b USING (n) WHERE a.tenant = 'change_1' AND b.tenant = 'change_2';
CREATE VIEW pg_temp.stored AS
	SELECT tenant_id, 'payment' AS what, to_jsonb(p) - '{created_at,expires_at,submitted_at,next_check_at}'::text[] AS row FROM idem_payment p
	UNION ALL SELECT tenant_id, 'receipt', to_jsonb(r) - '{receipt_no,created_at}'::text[] FROM idem_receipt r
	UNION ALL SELECT tenant_id, 'refund', to_jsonb(f) - '{receipt_no,created_at,submitted_at,next_check_at,settled_at}'::text[] FROM idem_refund f
	UNION ALL SELECT tenant_id, 'notification', to_jsonb(n) - '{received_at,last_hit_at}'::text[] FROM idem_notification n
	UNION ALL SELECT tenant_id, 'campaign', to_jsonb(c) - '{created_at}'::text[] FROM idem_campaign c
	UNION ALL SELECT tenant_id, 'campaign_user', to_jsonb(u) FROM idem_campaign_user u
	UNION ALL SELECT tenant_id, 'request', to_jsonb(q) - '{attempt,first_at,lease_until,expires_at}'::text[] FROM idem_request q
	UNION ALL SELECT tenant_id, 'lease', to_jsonb(l) - '{lease_until,acquired_at}'::text[] FROM idem_lease l
	UNION ALL SELECT tenant_id, 'order', to_jsonb(o) - '{created_at}'::text[] FROM idem_order o
	UNION ALL SELECT tenant_id, 'entitlement', to_jsonb(e) - '{granted_at}'::text[] FROM idem_entitlement e
	UNION ALL SELECT tenant_id, 'history', to_jsonb(h) - '{event_id,at}'::text[] FROM idem_history h
	UNION ALL SELECT tenant_id, 'event', payload - '{receipt_no,at}'::text[] FROM idem_outbox;
SELECT what, count(*), bool_and(EXISTS (SELECT FROM pg_temp.stored d WHERE d.tenant_id = 'change_1' AND d.what = s.what
	AND d.row - 'tenant_id' = s.row - 'tenant_id')) AS same
FROM pg_temp.stored s WHERE tenant_id = 'change_2' GROUP BY 1 ORDER BY 1;
ROLLBACK;

--
-- Triggers: a user's has its say; a guard that is off neither checks nor records
--
SELECT outcome FROM idem_request_refund('change_1', 'change-p', 'R2', 10, 'CNY');
BEGIN;
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
CREATE TRIGGER refuse AFTER UPDATE ON idem_receipt FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse();
\set VERBOSITY terse
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
\set VERBOSITY default
ROLLBACK;
BEGIN;
ALTER TABLE idem_refund DISABLE TRIGGER zz_idem_record;
SELECT outcome, status FROM idem_settle_refund('change_1', 'R2', 'succeeded');
SELECT count(*) FROM idem_history WHERE tenant_id = 'change_1' AND key = 'R2' AND to_state = 'succeeded';
ROLLBACK;
BEGIN;
SET LOCAL session_replication_role = replica;
SELECT outcome, status FROM idem_settle_refund('change_1', 'R2', 'succeeded');
SELECT count(*) FROM idem_history WHERE tenant_id = 'change_1' AND key = 'R2' AND to_state = 'succeeded';
ROLLBACK;

--
-- Checks, rules, columns
--
\set VERBOSITY sqlstate
BEGIN;
ALTER TABLE idem_receipt ADD CONSTRAINT regress_check CHECK (refunded OPERATOR(pg_catalog.<) 40) NOT VALID;
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
ROLLBACK;
BEGIN;
CREATE FUNCTION pg_temp.regress_few(n bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT n OPERATOR(pg_catalog.<) 40';
ALTER TABLE idem_receipt ADD CONSTRAINT regress_check CHECK (pg_temp.regress_few(refunded)) NOT VALID;
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
ROLLBACK;
BEGIN;
SET LOCAL client_min_messages = error;
ALTER TABLE idem_refund REPLICA IDENTITY NOTHING;
CREATE PUBLICATION regress_refunds FOR TABLE idem_refund;
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
ROLLBACK;
\set VERBOSITY default
BEGIN;
ALTER DOMAIN idem_money ADD CONSTRAINT regress_money CHECK (VALUE OPERATOR(pg_catalog.<>) ALL ('{10,100}'::bigint[])) NOT VALID;
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
ROLLBACK;
BEGIN;
CREATE RULE regress_rule AS ON UPDATE TO idem_campaign_user DO ALSO NOTIFY regress_rule;
SELECT outcome FROM idem_grant_entitlement('change_1', 'g3', 'u', 'coupon', 1, campaign => 'spring');
ALTER TABLE idem_campaign_user ADD note int DEFAULT 7;
SELECT outcome FROM idem_grant_entitlement('change_1', 'g4', 'u', 'coupon', 1, campaign => 'spring');
SELECT granted, note FROM idem_campaign_user WHERE tenant_id = 'change_1';
ROLLBACK;

--
-- Indexes: all have the new version, and a key that is there stops it
--
BEGIN;
CREATE INDEX regress_plain ON idem_receipt (refunded) WHERE tenant_id OPERATOR(pg_catalog.=) 'change_1';
CREATE INDEX regress_partial ON idem_receipt (tenant_id) WHERE refunded OPERATOR(pg_catalog.>) 35;
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT refunded FROM idem_receipt WHERE tenant_id = 'change_1' AND refunded = 40;
SELECT refunded FROM idem_receipt WHERE tenant_id = 'change_1' AND refunded = 30;
SELECT refunded FROM idem_receipt WHERE tenant_id = 'change_1' AND refunded > 35;
ROLLBACK;
BEGIN;
INSERT INTO idem_receipt (tenant_id, receipt_no, reported_payment_no, disposition, refund_reserved, refunded, excess, created_at)
	VALUES ('change_2', 'other', 'other', 'rejected', 40, 40, 40, now());
CREATE UNIQUE INDEX regress_unique ON idem_receipt (refunded) WHERE refunded OPERATOR(pg_catalog.>) 35;
SAVEPOINT here;
\set VERBOSITY terse
SELECT outcome FROM idem_settle_refund('change_1', 'R2', 'succeeded');
\set VERBOSITY default
ROLLBACK TO here;
SELECT refunded FROM idem_receipt WHERE tenant_id = 'change_1';
ROLLBACK;

--
-- What is rolled back is as it was; what the transaction has changed is changed again
--
BEGIN;
SAVEPOINT here;
SELECT outcome, remaining FROM idem_grant_entitlement('change_1', 'g5', 'u', 'coupon', 1, campaign => 'spring');
ROLLBACK TO here;
SELECT outcome, remaining FROM idem_grant_entitlement('change_1', 'g5', 'u', 'coupon', 1, campaign => 'spring');
SELECT outcome, remaining FROM idem_grant_entitlement('change_1', 'g6', 'u', 'coupon', 1, campaign => 'spring');
SELECT c.granted, u.granted AS of_user FROM idem_campaign c JOIN idem_campaign_user u USING (tenant_id, campaign) WHERE tenant_id = 'change_1';
SELECT outcome FROM idem_receive_notification('change_1', 'alipay', 'n', 'change-p', 'T', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome FROM idem_receive_notification('change_1', 'alipay', 'n', 'change-p', 'T', 'TRADE_SUCCESS', 100, 'CNY');
SELECT hits FROM idem_notification WHERE tenant_id = 'change_1';
COMMIT;
SELECT * FROM idem_verify() WHERE tenant_id = 'change_1';
