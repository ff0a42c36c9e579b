--
-- entitlement: what a user may have, granted once and revoked with the money.
--
\set SHOW_CONTEXT never

--
-- The scene: a payment that is not paid, one that is, and one that another
-- attempt paid for.
--
SELECT outcome FROM idem_create_payment('grant', 'open', 100, 'CNY', payment_no => 'grant-open');
SELECT outcome FROM idem_create_payment('grant', 'paid', 100, 'CNY', payment_no => 'grant-paid');
SELECT outcome FROM idem_confirm_payment('grant', 'grant-paid', 'alipay', 'grant-1', 100, 'CNY');
SELECT outcome FROM idem_create_payment('grant', 'twice', 100, 'CNY', payment_no => 'grant-first');
SELECT outcome FROM idem_close_payment('grant', 'grant-first');
SELECT outcome FROM idem_create_payment('grant', 'twice', 100, 'CNY', payment_no => 'grant-second');
SELECT outcome FROM idem_confirm_payment('grant', 'grant-second', 'alipay', 'grant-2', 100, 'CNY');

-- Granted once, with what to hand out; after that, only what stands.
SELECT outcome, quantity, status, remaining, granted_at <= clock_timestamp() AS granted, available
FROM idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid');
SELECT outcome, quantity, status, remaining, granted_at <= clock_timestamp() AS granted, available
FROM idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid');
-- Money must have arrived, for the purchase, by whichever attempt.
SELECT * FROM idem_grant_entitlement('grant', 'early', 'ann', 'vip-days', 30, 'grant-open');
SELECT outcome, quantity FROM idem_grant_entitlement('grant', 'first', 'ann', 'game', payment_no => 'grant-first');
SELECT outcome, quantity FROM idem_grant_entitlement('grant', 'second', 'ann', 'film', payment_no => 'grant-second');
SELECT e.grant_key, e.order_id, e.purchase_no, r.payment_no AS paid_by
FROM idem_entitlement e JOIN idem_receipt r USING (tenant_id, receipt_no) WHERE e.tenant_id = 'grant' ORDER BY 1;
SELECT outcome FROM idem_confirm_payment('grant', 'grant-open', 'alipay', 'grant-3', 100, 'CNY');
SELECT outcome, quantity FROM idem_grant_entitlement('grant', 'early', 'ann', 'vip-days', 30, 'grant-open');
-- Whatever became of it otherwise, it pays for nothing.
SELECT count(p.outcome) FROM unnest(ARRAY['closed', 'failed', 'review', 'closing', 'late']) o, idem_create_payment('grant', o, 100, 'CNY', payment_no => 'grant-' || o) p;
SELECT outcome FROM idem_close_payment('grant', 'grant-closed');
SELECT outcome FROM idem_fail_payment('grant', 'grant-failed');
SELECT outcome FROM idem_confirm_payment('grant', 'grant-review', 'alipay', 'grant-4', 99, 'CNY');
SELECT outcome FROM idem_begin_close('grant', 'grant-closing');
SELECT outcome FROM idem_cancel_order('grant', 'late');
SELECT outcome FROM idem_confirm_payment('grant', 'grant-late', 'alipay', 'grant-5', 100, 'CNY');
SELECT p.payment_no, p.status, g.outcome, g.quantity
FROM idem_payment p, idem_grant_entitlement('grant', 'for ' || p.payment_no, 'ann', 'game', 1, p.payment_no) g
WHERE p.tenant_id = 'grant' AND p.status <> 'paid' AND p.payment_no <> 'grant-first' ORDER BY 1;
-- Free, if that is said; a tenant's keys are his own.
SELECT outcome, quantity FROM idem_grant_entitlement('grant', 'gift', 'ann', 'points', 5, free => true);
SELECT outcome, quantity FROM idem_grant_entitlement('grant2', 'gift', 'bob', 'points', 7, free => true);
SELECT outcome, quantity FROM idem_grant_entitlement('grant', 'gift2', 'ann', 'points', free => true, on_refund => 'none');
-- It shows what was granted.
SELECT grant_key, user_id, benefit, quantity, withheld, revoked, status, version, payment_no, order_id, campaign, on_refund, free
FROM idem_get_entitlement('grant', 'vip');
SELECT grant_key FROM idem_get_entitlement('grant', 'nowhere');

-- The same key for something else, told by the first difference.
SELECT outcome FROM idem_grant_entitlement('grant', 'vip', 'bob', 'x', 1, 'grant-open', 'c', 'none');
CREATE FUNCTION pg_temp.differs(grant_call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE 'SELECT ' || grant_call;
	RETURN 'nothing differs';
EXCEPTION WHEN SQLSTATE 'ID001' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN detail;
END $$;
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'x', 1, 'grant-open', 'c', 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 1, 'grant-open', 'c', 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-open', 'c', 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, NULL, 'c', 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid', 'c', 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid', NULL, 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'gift2', 'ann', 'points', campaign => 'c', on_refund => 'none')$$);
SELECT pg_temp.differs($$ idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid')$$);

--
-- Revoked by hand: once per number
--
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-1', 10, 'chargeback at the bank');
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-1', 10, 'said otherwise');
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-1', 11);
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-2', 21);
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-2', 5);
SELECT outcome, quantity, status, remaining FROM idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid');
-- all that is left; once more there is nothing
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-3');
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-3');
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-3', 15);
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-4');
SELECT * FROM idem_revoke_entitlement('grant', 'vip', 'fraud-4', 1);
-- A number is good for every grant; a revoked grant is not granted again.
SELECT * FROM idem_revoke_entitlement('grant', 'gift', 'fraud-1', 5);
SELECT outcome, quantity, status, remaining FROM idem_grant_entitlement('grant', 'vip', 'ann', 'vip-days', 30, 'grant-paid');
SELECT grant_key, revoke_no, asked, quantity, by_refund, reason FROM idem_revocation WHERE tenant_id = 'grant' ORDER BY 1, 2;
SELECT * FROM idem_revoke_entitlement('grant', 'nowhere', 'fraud-1');

-- Its moves are told in its order's story, those of a gift in its own.
SELECT version, from_state, to_state, event, reason FROM idem_history WHERE tenant_id = 'grant' AND entity = 'entitlement' AND key = 'vip' ORDER BY version;
SELECT type, aggregatetype, aggregateid, payload - 'at' - 'receipt_no' AS payload FROM idem_outbox
WHERE tenant_id = 'grant' AND payload ->> 'grant_key' IN ('vip', 'gift') ORDER BY created_at;

-- One statement, and one transaction.
SELECT a.outcome, b.outcome, r.outcome, r.remaining, s.outcome, s.remaining
FROM idem_grant_entitlement('grant', 'chain', 'ann', 'points', 4, free => true) a,
	idem_grant_entitlement('grant', CASE a.outcome WHEN 'granted' THEN 'chain' END, 'ann', 'points', 4, free => true) b,
	idem_revoke_entitlement('grant', CASE b.outcome WHEN 'duplicate' THEN 'chain' END, 'r1', 1) r,
	idem_revoke_entitlement('grant', CASE r.outcome WHEN 'revoked' THEN 'chain' END, 'r1', 1) s;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_grant_entitlement('grant', 'serial', 'ann', 'points', 4, free => true);
SELECT outcome FROM idem_revoke_entitlement('grant', 'serial', 'r1', 4);
SELECT outcome, status FROM idem_grant_entitlement('grant', 'serial', 'ann', 'points', 4, free => true);
COMMIT;
-- Rolled back, nothing was granted.
BEGIN;
SELECT outcome FROM idem_grant_entitlement('grant', 'undone', 'ann', 'points', free => true);
ROLLBACK;
SELECT outcome FROM idem_grant_entitlement('grant', 'undone', 'bob', 'points', free => true);

-- A repetition, or a refusal, writes nothing and keeps no lock.
SELECT outcome FROM idem_create_payment('grant', 'none', 100, 'CNY', payment_no => 'grant-none');
BEGIN;
SELECT outcome FROM idem_grant_entitlement('grant', 'second', 'ann', 'film', payment_no => 'grant-second');
SELECT outcome FROM idem_grant_entitlement('grant', 'none', 'ann', 'film', payment_no => 'grant-none');
SELECT outcome FROM idem_revoke_entitlement('grant', 'vip', 'fraud-1', 10);
SELECT outcome FROM idem_revoke_entitlement('grant', 'vip', 'fraud-2', 5);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;

-- As far as it goes: 255 bytes, characters of several bytes, the greatest quantity.
SELECT n, g.outcome, g.quantity, r.outcome, r.remaining
FROM unnest(ARRAY['x', repeat('x', 255), repeat('锁', 85), E'a''b"c\\d\n']) WITH ORDINALITY AS u (name, n),
	idem_grant_entitlement('grant3', name, name, name, 9223372036854775807, free => true) g,
	idem_revoke_entitlement('grant3', name, name, 9223372036854775806, name) r
ORDER BY n;

--
-- The money goes back, and takes its share with it.
--
CREATE FUNCTION pg_temp.paid(order_id text, payment_no text, purchase int DEFAULT 1) RETURNS text LANGUAGE sql AS $$
	SELECT p.outcome || ', ' || c.outcome FROM idem_create_payment('back', order_id, 100, 'CNY', 'key of ' || payment_no, repurchase => purchase > 1, payment_no => payment_no) p,
		idem_confirm_payment('back', CASE p.outcome WHEN 'created' THEN payment_no END, 'alipay', 'trade of ' || payment_no, 100, 'CNY') c $$;
CREATE FUNCTION pg_temp.refunded(payment_no text, refund_no text, amount bigint) RETURNS text LANGUAGE sql AS $$
	SELECT r.outcome || ', ' || s.outcome FROM idem_request_refund('back', payment_no, refund_no, amount, 'CNY') r,
		idem_settle_refund('back', CASE r.outcome WHEN 'requested' THEN refund_no END, 'succeeded') s $$;
CREATE TEMP VIEW granted AS
	SELECT grant_key, quantity, withheld, revoked, quantity - withheld - revoked AS remaining, status FROM idem_entitlement WHERE tenant_id = 'back';

-- In proportion, rounded in the user's favour; all of it; nothing; a thing that cannot be divided.
SELECT pg_temp.paid('a', 'back-a');
SELECT g.outcome, g.quantity FROM unnest(ARRAY['proportional', 'full', 'none']) w, idem_grant_entitlement('back', 'a-' || w, 'ann', w, 10, 'back-a', on_refund => w) g;
SELECT g.outcome, g.quantity FROM idem_grant_entitlement('back', 'a-thing', 'ann', 'thing', 1, 'back-a') g;
SELECT pg_temp.refunded('back-a', 'back-a1', 33);
SELECT * FROM granted WHERE grant_key LIKE 'a-%' ORDER BY 1;
SELECT outcome FROM idem_settle_refund('back', 'back-a1', 'succeeded');
SELECT pg_temp.refunded('back-a', 'back-a2', 33);
SELECT * FROM granted WHERE grant_key LIKE 'a-%' ORDER BY 1;
-- Granted between two refunds: what went back before is withheld.
SELECT outcome, quantity, status, remaining FROM idem_grant_entitlement('back', 'a-late', 'ann', 'late', 10, 'back-a');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'a-late-none', 'ann', 'late', 10, 'back-a', on_refund => 'none');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'a-late-full', 'ann', 'late', 10, 'back-a', on_refund => 'full');
SELECT pg_temp.refunded('back-a', 'back-a3', 34);
SELECT * FROM granted WHERE grant_key LIKE 'a-%' ORDER BY 1;
SELECT grant_key, revoke_no, quantity, by_refund FROM idem_revocation WHERE tenant_id = 'back' ORDER BY 1, 2;
-- All of it is gone: nothing is granted for it any more.
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'a-never', 'ann', 'late', 10, 'back-a');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'a-never', 'ann', 'late', 10, 'back-a', on_refund => 'none');
SELECT outcome, quantity, status, remaining FROM idem_grant_entitlement('back', 'a-late', 'ann', 'late', 10, 'back-a');
SELECT outcome, remaining, status FROM idem_revoke_entitlement('back', 'a-proportional', 'back-a2');
SELECT outcome, remaining, status FROM idem_revoke_entitlement('back', 'a-proportional', 'by hand');

-- Whatever order refunds settle in, they end in the same.
SELECT pg_temp.paid(o, 'back-' || o) FROM unnest(ARRAY['b1', 'b2', 'b3', 'b4', 'b5', 'b6']) o;
SELECT count(g.outcome) FROM unnest(ARRAY['b1', 'b2', 'b3', 'b4', 'b5', 'b6']) o, idem_grant_entitlement('back', o, 'ann', 'points', 7, 'back-' || o) g;
SELECT o, pg_temp.refunded('back-' || o, 'r' || a || o, a), pg_temp.refunded('back-' || o, 'r' || b || o, b), pg_temp.refunded('back-' || o, 'r' || c || o, c)
FROM (VALUES ('b1', 10, 20, 37), ('b2', 10, 37, 20), ('b3', 20, 10, 37), ('b4', 20, 37, 10), ('b5', 37, 10, 20), ('b6', 37, 20, 10)) v (o, a, b, c);
SELECT DISTINCT quantity, withheld, revoked, status FROM granted WHERE grant_key LIKE 'b_';

-- Bought again, granted anew; a late refund of the first purchase leaves the second alone.
SELECT pg_temp.paid('c', 'back-c1');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'c-1', 'ann', 'game', 1, 'back-c1');
SELECT pg_temp.refunded('back-c1', 'back-c-1', 50);
SELECT pg_temp.paid('c', 'back-c2', 2);
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'c-2', 'ann', 'game', 1, 'back-c2');
SELECT pg_temp.refunded('back-c1', 'back-c-2', 50);
SELECT e.grant_key, e.status, e.purchase_no FROM idem_entitlement e WHERE tenant_id = 'back' AND grant_key LIKE 'c-%' ORDER BY 1;
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'c-3', 'ann', 'game', 1, 'back-c1');

-- A campaign gets back what refunds take, several of them in one.
SELECT outcome FROM idem_set_campaign('back', 'sale-1', 10, 6);
SELECT outcome FROM idem_set_campaign('back', 'sale-2', 10, NULL);
SELECT pg_temp.paid('d', 'back-d');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'd-1', 'ann', 'coupon', 4, 'back-d', 'sale-2');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'd-2', 'ann', 'coupon', 4, 'back-d', 'sale-1');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'd-3', 'bob', 'coupon', 6, 'back-d', 'sale-1');
SELECT outcome, available FROM idem_grant_entitlement('back', 'd-4', 'bob', 'coupon', 1, 'back-d', 'sale-1');
SELECT pg_temp.refunded('back-d', 'back-d1', 50);
SELECT campaign, granted FROM idem_campaign WHERE tenant_id = 'back' ORDER BY 1;
SELECT campaign, user_id, granted FROM idem_campaign_user WHERE tenant_id = 'back' ORDER BY 1, 2;
-- what is withheld does not count
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'd-4', 'bob', 'coupon', 6, 'back-d', 'sale-1');
SELECT campaign, granted FROM idem_campaign WHERE tenant_id = 'back' ORDER BY 1;

-- A refund's number that was used by hand takes what is missing.
SELECT pg_temp.paid('e', 'back-e');
SELECT outcome, quantity FROM idem_grant_entitlement('back', 'e', 'ann', 'points', 10, 'back-e');
SELECT outcome, remaining FROM idem_revoke_entitlement('back', 'e', 'back-e1', 2);
SELECT pg_temp.refunded('back-e', 'back-e1', 50);
SELECT * FROM granted WHERE grant_key = 'e';
SELECT revoke_no, asked, quantity, by_refund FROM idem_revocation WHERE tenant_id = 'back' AND grant_key = 'e';
SELECT outcome, remaining FROM idem_revoke_entitlement('back', 'e', 'back-e1', 2);
-- What was taken by hand counts.
SELECT outcome, remaining FROM idem_revoke_entitlement('back', 'e', 'by hand', 3);
SELECT pg_temp.refunded('back-e', 'back-e2', 30);
SELECT pg_temp.refunded('back-e', 'back-e3', 10);
SELECT * FROM granted WHERE grant_key = 'e';
-- A refund that is reversed grants nothing back, and its successor takes nothing twice.
SELECT outcome, status FROM idem_settle_refund('back', 'back-e3', 'reversed');
SELECT * FROM granted WHERE grant_key = 'e';
SELECT pg_temp.refunded('back-e', 'back-e4', 10);
SELECT * FROM granted WHERE grant_key = 'e';

-- The product of quantity and amount may be greater than any bigint.
SELECT outcome FROM idem_create_payment('back', 'f', 9223372036854775807, 'CNY', payment_no => 'back-f');
SELECT outcome FROM idem_confirm_payment('back', 'back-f', 'alipay', 'back-f', 9223372036854775807, 'CNY');
SELECT outcome FROM idem_grant_entitlement('back', 'f', 'ann', 'points', 9223372036854775807, 'back-f');
SELECT pg_temp.refunded('back-f', 'back-f1', 9223372036854775806);
SELECT * FROM granted WHERE grant_key = 'f';
-- An order without entitlements goes back as before.
SELECT pg_temp.paid('g', 'back-g');
SELECT pg_temp.refunded('back-g', 'back-g1', 100);

-- Its order's story tells of it, after the refund.
SELECT type, payload ->> 'grant_key' AS grant_key FROM idem_outbox WHERE tenant_id = 'back' AND aggregateid = 'c' AND aggregatetype = 'order' ORDER BY created_at;

--
-- Nonsense
--
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points');
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', payment_no => 'grant-paid', free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', payment_no => 'grant-nowhere');
\set VERBOSITY sqlstate
SELECT idem_grant_entitlement(NULL, 'x', 'ann', 'points', free => true);
SELECT idem_grant_entitlement('', 'x', 'ann', 'points', free => true);
SELECT idem_grant_entitlement('grant', NULL, 'ann', 'points', free => true);
SELECT idem_grant_entitlement('grant', '', 'ann', 'points', free => true);
SELECT idem_grant_entitlement('grant', repeat('x', 256), 'ann', 'points', free => true);
SELECT idem_grant_entitlement('grant', 'x', NULL, 'points', free => true);
SELECT idem_grant_entitlement('grant', 'x', '', 'points', free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', NULL, free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', '', free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', NULL, free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', 0, free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', -1, free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', payment_no => '');
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', campaign => '');
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', on_refund => NULL, free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', on_refund => 'partial', free => true);
SELECT idem_grant_entitlement('grant', 'x', 'ann', 'points', free => NULL);
SELECT idem_revoke_entitlement(NULL, 'vip', 'r');
SELECT idem_revoke_entitlement('grant', NULL, 'r');
SELECT idem_revoke_entitlement('grant', '', 'r');
SELECT idem_revoke_entitlement('grant', 'vip', NULL);
SELECT idem_revoke_entitlement('grant', 'vip', '');
SELECT idem_revoke_entitlement('grant', 'vip', 'r', 0);
SELECT idem_revoke_entitlement('grant', 'vip', 'r', -1);
SELECT idem_get_entitlement('grant', '');
\set VERBOSITY default

--
-- The tables guard themselves.
--
UPDATE idem_entitlement SET status = 'granted' WHERE tenant_id = 'grant' AND grant_key = 'vip';
UPDATE idem_entitlement SET status = 'pending' WHERE tenant_id = 'grant' AND grant_key = 'gift2';
UPDATE idem_entitlement SET quantity = 31 WHERE tenant_id = 'grant' AND grant_key = 'second';
UPDATE idem_entitlement SET revoked = 0 WHERE tenant_id = 'grant' AND grant_key = 'vip';
\set VERBOSITY terse
UPDATE idem_entitlement SET revoked = 31 WHERE tenant_id = 'grant' AND grant_key = 'vip';
\set VERBOSITY default
UPDATE idem_revocation SET quantity = 1 WHERE tenant_id = 'grant' AND revoke_no = 'fraud-1' AND grant_key = 'vip';
UPDATE idem_revocation SET revoke_no = 'x' WHERE tenant_id = 'grant' AND revoke_no = 'fraud-1' AND grant_key = 'vip';
DELETE FROM idem_entitlement WHERE tenant_id = 'grant' AND grant_key = 'vip';
DELETE FROM idem_revocation WHERE tenant_id = 'grant' AND grant_key = 'vip';

SELECT * FROM idem_verify() WHERE tenant_id LIKE 'grant%' OR tenant_id = 'back' OR entity IN ('table', 'index');
