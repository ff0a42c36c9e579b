--
-- hook: users' functions that are called when a row reaches a state.
--
\set SHOW_CONTEXT never
\set QUIET on
SET client_min_messages = warning;

--
-- The scene: a shop with tables of its own, a trigger, and a foreign key that
-- is checked at commit.
--
CREATE TABLE shop_order (order_id text PRIMARY KEY, status text NOT NULL, touched int NOT NULL DEFAULT 0);
CREATE TABLE shop_parcel (parcel text PRIMARY KEY, order_id text NOT NULL REFERENCES shop_order DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE shop_log (n serial, line text);
CREATE FUNCTION shop_touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.touched := NEW.touched + 1; RETURN NEW; END $$;
CREATE TRIGGER shop_touch BEFORE INSERT OR UPDATE ON shop_order FOR EACH ROW EXECUTE FUNCTION shop_touch();
INSERT INTO shop_order (order_id, status) VALUES ('book', 'open'), ('lamp', 'open');

-- What it does when a payment is paid: its own order, and a parcel before it.
CREATE FUNCTION shop_paid(payment jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO shop_parcel VALUES ('parcel of ' || (payment ->> 'payment_no'), payment ->> 'order_id');
	UPDATE shop_order SET status = payment ->> 'status' WHERE order_id = payment ->> 'order_id';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the shop knows no order %', payment ->> 'order_id' USING ERRCODE = 'SHOP1';
	END IF;
END $$;
CREATE FUNCTION shop_line(moved jsonb) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS
	$$INSERT INTO shop_log (line) VALUES (concat_ws(' ', moved ->> 'order_id', moved ->> 'grant_key', moved ->> 'status', moved ->> 'amount')) RETURNING line$$;

--
-- Set, the same again, otherwise
--
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_paid(jsonb)', 'raise');
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_paid(jsonb)', 'raise');
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_paid(jsonb)');
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_paid(jsonb)', on_error => 'record');
SELECT entity, to_state, function::regprocedure, role = session_user AS mine, on_error FROM idem_hook;

-- It is called in the same transaction: rolled back, nothing happened anywhere.
SELECT outcome FROM idem_create_payment('hook', 'book', 100, 'CNY', payment_no => 'hook-book');
BEGIN;
SELECT outcome FROM idem_confirm_payment('hook', 'hook-book', 'alipay', 'hook-1', 100, 'CNY');
SELECT order_id, status, touched FROM shop_order ORDER BY 1;
ROLLBACK;
SELECT order_id, status, touched FROM shop_order ORDER BY 1;
SELECT outcome FROM idem_confirm_payment('hook', 'hook-book', 'alipay', 'hook-1', 100, 'CNY');
SELECT outcome FROM idem_confirm_payment('hook', 'hook-book', 'alipay', 'hook-1', 100, 'CNY');
SELECT order_id, status, touched FROM shop_order ORDER BY 1;
SELECT * FROM shop_parcel;

--
-- A hook that fails: the fact stands, what the hook did does not.
--
SELECT outcome FROM idem_create_payment('hook', 'sofa', 100, 'CNY', payment_no => 'hook-sofa');
SELECT outcome, status FROM idem_confirm_payment('hook', 'hook-sofa', 'alipay', 'hook-2', 100, 'CNY');
SELECT parcel FROM shop_parcel WHERE order_id = 'sofa';
SELECT kind, entity, key, status, hits, order_id, detail - 'function' AS detail FROM idem_anomaly WHERE tenant_id = 'hook';
SELECT entity, key, to_state, version, order_id, row_moved ->> 'status' AS status, attempts, next_at > now() AS later, sqlstate, message
FROM idem_hook_failure WHERE tenant_id = 'hook';
-- The sweep tries again, not before its time, and later each time.
SELECT * FROM idem_sweep() WHERE what = 'hooks';
SELECT attempts FROM idem_hook_failure WHERE tenant_id = 'hook';
SELECT * FROM idem_retry_hooks('payment', 'paid');
SELECT * FROM idem_retry_hooks('payment', 'paid');
SELECT * FROM idem_sweep() WHERE what = 'hooks';
SELECT attempts, next_at - now() BETWEEN interval '110 seconds' AND interval '120 seconds' AS two_minutes FROM idem_hook_failure WHERE tenant_id = 'hook';
SELECT hits FROM idem_anomaly WHERE tenant_id = 'hook';
-- Mended, it succeeds, and the anomaly is resolved.
INSERT INTO shop_order (order_id, status) VALUES ('sofa', 'open');
SELECT * FROM idem_retry_hooks('payment', 'paid');
SELECT * FROM idem_sweep() WHERE what = 'hooks';
SELECT order_id, status FROM shop_order WHERE order_id = 'sofa';
SELECT count(*) FROM idem_hook_failure;
SELECT kind, status, resolution FROM idem_anomaly WHERE tenant_id = 'hook';
SELECT * FROM idem_retry_hooks('payment', 'paid');

-- A human who resolves the anomaly ends it; a hook that is removed, too.
SELECT outcome FROM idem_create_payment('hook', 'desk', 100, 'CNY', payment_no => 'hook-desk');
SELECT outcome FROM idem_confirm_payment('hook', 'hook-desk', 'alipay', 'hook-3', 100, 'CNY');
SELECT outcome FROM idem_create_payment('hook', 'vase', 100, 'CNY', payment_no => 'hook-vase');
SELECT outcome FROM idem_confirm_payment('hook', 'hook-vase', 'alipay', 'hook-4', 100, 'CNY');
SELECT key, attempts FROM idem_hook_failure ORDER BY 1;
UPDATE idem_anomaly SET status = 'resolved', resolution = 'shipped by hand' WHERE tenant_id = 'hook' AND key = 'hook-desk';
SELECT * FROM idem_retry_hooks('payment', 'paid');
SELECT * FROM idem_sweep() WHERE what = 'hooks';
SELECT key, attempts FROM idem_hook_failure ORDER BY 1;
SELECT outcome FROM idem_remove_hook('payment', 'paid');
SELECT outcome FROM idem_remove_hook('payment', 'paid');
SELECT * FROM idem_retry_hooks('payment', 'paid');
SELECT * FROM idem_sweep() WHERE what = 'hooks';
SELECT key, attempts FROM idem_hook_failure ORDER BY 1;
SELECT key, status, resolution FROM idem_anomaly WHERE tenant_id = 'hook' ORDER BY 1;

-- "raise": the call fails with the hook's error, and nothing happened.
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_paid(jsonb)', 'raise');
SELECT outcome FROM idem_create_payment('hook', 'bath', 100, 'CNY', payment_no => 'hook-bath');
SELECT outcome FROM idem_confirm_payment('hook', 'hook-bath', 'alipay', 'hook-5', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT status FROM idem_get_payment('hook', 'hook-bath');
SELECT count(*) FROM idem_hook_failure;
SELECT outcome FROM idem_remove_hook('payment', 'paid');

--
-- Every row, every state, in the order of the moves
--
SELECT outcome FROM idem_set_hook('payment', 'pending', 'shop_line(jsonb)', 'raise');
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_line(jsonb)', 'raise');
SELECT outcome FROM idem_set_hook('order', 'paid', 'shop_line(jsonb)', 'raise');
SELECT outcome FROM idem_set_hook('order', 'cancelled', 'shop_line(jsonb)', 'raise');
SELECT ord, outcome FROM idem_create_payments('hook', '[{"order_id": "b1", "amount": 1, "currency": "CNY"}, {"order_id": "b2", "amount": 0, "currency": "CNY"}, {"order_id": "b3", "amount": 3, "currency": "CNY"}]');
SELECT outcome FROM idem_create_order('hook', 'free', 0, 'CNY');
-- What a savepoint undoes is not told, what an exception block undoes neither.
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_create_order('hook', 'undone', 7, 'CNY');
ROLLBACK TO s;
SELECT outcome FROM idem_create_order('hook', 'done', 8, 'CNY');
COMMIT;
DO $$ BEGIN
	PERFORM idem_create_order('hook', 'undone too', 0, 'CNY');
	RAISE EXCEPTION 'no';
EXCEPTION WHEN raise_exception THEN
	PERFORM idem_create_order('hook', 'done too', 9, 'CNY');
END $$;
-- SQL of an owner's own moves rows, too; rows that are loaded have moved before.
UPDATE idem_order SET status = 'cancelled' WHERE tenant_id = 'hook' AND order_id = 'done';
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at) VALUES ('hook', 'loaded', 'paid', 0, 'CNY', now());
SELECT line FROM shop_log ORDER BY n;
TRUNCATE shop_log;
SELECT outcome FROM idem_remove_hook('payment', 'pending');
SELECT outcome FROM idem_remove_hook('order', 'pending');
SELECT outcome FROM idem_remove_hook('order', 'paid');
SELECT outcome FROM idem_remove_hook('order', 'cancelled');

--
-- A hook may call the API, and that has hooks again.
--
CREATE FUNCTION shop_grant(payment jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	outcome text;
BEGIN
	SELECT g.outcome INTO outcome FROM idem_grant_entitlement(payment ->> 'tenant_id', 'points of ' || (payment ->> 'payment_no'),
		'ann', 'points', (payment ->> 'amount')::bigint, payment_no => payment ->> 'payment_no') g;
	INSERT INTO shop_log (line) VALUES (outcome);
END $$;
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_grant(jsonb)');
SELECT outcome FROM idem_set_hook('entitlement', 'granted', 'shop_line(jsonb)');
SELECT outcome FROM idem_create_payment('hook', 'nest', 100, 'CNY', payment_no => 'hook-nest');
SELECT outcome FROM idem_confirm_payment('hook', 'hook-nest', 'alipay', 'hook-6', 100, 'CNY');
SELECT line FROM shop_log ORDER BY n;
TRUNCATE shop_log;
SELECT outcome FROM idem_remove_hook('entitlement', 'granted');
-- Round and round: it ends, and the fact stands.
CREATE FUNCTION shop_round(moved jsonb) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM idem_create_order(moved ->> 'tenant_id', (moved ->> 'order_id') || 'x', 1, 'CNY');
END $$;
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_round(jsonb)');
SELECT outcome FROM idem_create_order('hook', 'round', 1, 'CNY');
SELECT count(*) BETWEEN 10 AND 100 AS many FROM idem_order WHERE tenant_id = 'hook' AND order_id LIKE 'round%';
SELECT count(*), min(sqlstate) FROM idem_hook_failure;
SELECT outcome FROM idem_remove_hook('order', 'pending');
-- A hook that fails on the anomalies of failing hooks would fail for ever.
SELECT outcome FROM idem_set_hook('anomaly', 'opened', 'pg_catalog.jsonb_array_length(jsonb)');
SELECT outcome FROM idem_confirm_payment('hook2', 'hook-nobody', 'alipay', 'hook-7', 100, 'CNY');
SELECT kind, entity, hits, detail ->> 'sqlstate' AS sqlstate FROM idem_anomaly WHERE tenant_id = 'hook2' ORDER BY 1;
SELECT outcome FROM idem_remove_hook('anomaly', 'opened');

-- Somebody wants the statement to end: that is not the hook's failure.
CREATE FUNCTION shop_sleep(payment jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$;
SELECT outcome FROM idem_set_hook('payment', 'paid', 'shop_sleep(jsonb)', 'record');
SET statement_timeout = '100ms';
SELECT outcome FROM idem_confirm_payment('hook', 'hook-bath', 'alipay', 'hook-5', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT status FROM idem_get_payment('hook', 'hook-bath');
SELECT outcome FROM idem_remove_hook('payment', 'paid');

--
-- Rights: it runs as the role that registered it, and gets nobody else's.
--
CREATE ROLE regress_hook_shop;
CREATE ROLE regress_hook_cashier;
GRANT regress_hook_shop TO CURRENT_USER;
SELECT outcome FROM idem_allow('regress_hook_shop', 'operator');
SELECT outcome FROM idem_allow('regress_hook_cashier', 'client', 'hook3');
CREATE FUNCTION shop_who(moved jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'current_user %, session_user %, path %', current_user, CASE session_user WHEN current_user THEN 'the same' ELSE 'another' END, current_setting('search_path');
	PERFORM set_config('idem.wait', '42s', false), set_config('role', 'none', false);
END $$;
SET client_min_messages = notice;
REVOKE EXECUTE ON FUNCTION shop_who FROM PUBLIC;
SET ROLE regress_hook_shop;
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_who(jsonb)');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION shop_who TO regress_hook_shop;
SET ROLE regress_hook_shop;
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_who(jsonb)');
RESET ROLE;
SELECT role FROM idem_hook;
SET ROLE regress_hook_cashier;
SELECT outcome FROM idem_create_order('hook3', 'who', 1, 'CNY');
SELECT current_user, current_setting('idem.wait');
RESET ROLE;
SELECT sqlstate, message FROM idem_hook_failure WHERE tenant_id = 'hook3';
-- What it may not do is refused, and recorded.
REVOKE EXECUTE ON FUNCTION shop_who FROM regress_hook_shop;
SELECT outcome FROM idem_create_order('hook3', 'revoked', 1, 'CNY');
DROP FUNCTION shop_who;
SELECT outcome FROM idem_create_order('hook3', 'dropped', 1, 'CNY');
SELECT order_id, sqlstate FROM idem_hook_failure WHERE tenant_id = 'hook3' ORDER BY failed_at;
-- Who calls is safe from what a hook leaves behind: a deferred trigger would
-- run at commit, with other rights.  A role that has those rights anyway may.
CREATE TABLE shop_own (order_id text, CONSTRAINT known FOREIGN KEY (order_id) REFERENCES shop_order DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE shop_own OWNER TO regress_hook_shop;
GRANT SELECT, REFERENCES ON shop_order TO regress_hook_shop;
CREATE FUNCTION shop_later(moved jsonb) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$INSERT INTO shop_own VALUES ('book')$$;
CREATE FUNCTION shop_at_once(moved jsonb) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$SET CONSTRAINTS known IMMEDIATE; INSERT INTO shop_own VALUES ('book')$$;
SET ROLE regress_hook_shop;
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_later(jsonb)');
RESET ROLE;
SELECT outcome FROM idem_create_order('hook3', 'later', 1, 'CNY');
SELECT sqlstate, message FROM idem_hook_failure WHERE tenant_id = 'hook3' AND order_id = 'later';
SET SESSION AUTHORIZATION regress_hook_cashier;
SELECT outcome FROM idem_create_order('hook3', 'later, too', 1, 'CNY');
RESET SESSION AUTHORIZATION;
GRANT regress_hook_cashier TO regress_hook_shop;
SET SESSION AUTHORIZATION regress_hook_cashier;
SELECT outcome FROM idem_create_order('hook3', 'member', 1, 'CNY');
RESET SESSION AUTHORIZATION;
SET ROLE regress_hook_shop;
SELECT outcome FROM idem_set_hook('order', 'pending', 'shop_at_once(jsonb)');
RESET ROLE;
SELECT outcome FROM idem_create_order('hook3', 'at once', 1, 'CNY');
SELECT order_id, sqlstate FROM idem_hook_failure WHERE tenant_id = 'hook3' AND order_id IN ('later, too', 'member', 'at once') ORDER BY failed_at;
SELECT count(*) FROM shop_own;
-- A role that is gone takes its hooks' rights with it.
SELECT outcome FROM idem_disallow('regress_hook_shop', 'operator');
SELECT outcome FROM idem_disallow('regress_hook_cashier', 'client', 'hook3');
DROP OWNED BY regress_hook_shop, regress_hook_cashier;
DROP ROLE regress_hook_shop, regress_hook_cashier;
SELECT outcome FROM idem_create_order('hook3', 'gone', 1, 'CNY');
SELECT sqlstate, message FROM idem_hook_failure WHERE tenant_id = 'hook3' AND order_id = 'gone';
SELECT invariant, entity, key, split_part(detail, ': ', 2) AS detail FROM idem_verify() WHERE entity = 'hook';
SELECT outcome FROM idem_remove_hook('order', 'pending');

--
-- Nonsense
--
SELECT idem_set_hook('order', 'pending', 'shop_touch()');
SELECT idem_set_hook('shop', 'pending', 'shop_line(jsonb)');
SELECT idem_set_hook('order', 'succeeded', 'shop_line(jsonb)');
SELECT idem_set_hook('order', 'pending', 'shop_line(jsonb)', 'ignore');
\set VERBOSITY sqlstate
SELECT idem_set_hook('order', 'pending', 'pg_catalog.jsonb_array_elements(jsonb)');
SELECT idem_set_hook('order', 'pending', 'pg_catalog.jsonb_agg(anyelement)');
SELECT idem_set_hook('order', 'pending', 4000000000::oid::regprocedure);
SELECT idem_set_hook('order', 'pending', 'nowhere(jsonb)');
SELECT idem_set_hook('order', 'pending', NULL);
SELECT idem_set_hook(NULL, 'pending', 'shop_line(jsonb)');
SELECT idem_set_hook('', 'pending', 'shop_line(jsonb)');
SELECT idem_set_hook('order', NULL, 'shop_line(jsonb)');
SELECT idem_set_hook('order', '', 'shop_line(jsonb)');
SELECT idem_set_hook('order', 'pending', 'shop_line(jsonb)', NULL);
SELECT idem_remove_hook('order', 'succeeded');
SELECT idem_remove_hook(NULL, 'pending');
SELECT idem_retry_hooks('order', NULL);
SELECT idem_retry_hooks('shop', 'pending');
\set VERBOSITY default

-- What is left of hooks that are gone is cleared away.
SELECT r.outcome FROM (VALUES ('order', 'pending'), ('anomaly', 'opened')) h (entity, to_state), idem_retry_hooks(entity, to_state) r;
SELECT count > 3 AS several FROM idem_sweep() WHERE what = 'hooks';
SELECT count(*) FROM idem_hook_failure;
SELECT * FROM idem_verify() WHERE tenant_id LIKE 'hook%' OR entity IN ('table', 'index', 'hook');
DROP TABLE shop_parcel, shop_order, shop_log;
DROP FUNCTION shop_touch, shop_paid, shop_line, shop_grant, shop_round, shop_sleep, shop_later, shop_at_once;
