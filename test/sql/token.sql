-- tokens: signed when issued, remembered when consumed, once for each payment.
\pset null '-'

-- What the owner can do who reads the secret: take a token apart and make one.
CREATE FUNCTION bytes_of(token text) RETURNS bytea LANGUAGE sql AS $$
	SELECT decode(translate(token, '-_', '+/') || '=', 'base64')
$$;
CREATE FUNCTION token_of(bytes bytea) RETURNS text LANGUAGE sql AS $$
	SELECT translate(encode(bytes, 'base64'), E'+/=\n', '-_')
$$;
-- what is stored of one
CREATE FUNCTION digest_of(token text) RETURNS bytea LANGUAGE sql AS $$
	SELECT substring(bytes_of(token), 10, 6) || substring(bytes_of(token), 34, 26)
$$;
CREATE FUNCTION hmac_of(key bytea, message bytea) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
	inner_block bytea;
	outer_block bytea;
BEGIN
	IF length(key) > 64 THEN
		key := sha256(key);
	END IF;
	inner_block := key || decode(repeat('00', 64 - length(key)), 'hex');
	outer_block := inner_block;
	FOR i IN 0..63 LOOP
		inner_block := set_byte(inner_block, i, get_byte(inner_block, i) # 54);
		outer_block := set_byte(outer_block, i, get_byte(outer_block, i) # 92);
	END LOOP;
	RETURN sha256(outer_block || sha256(inner_block || message));
END $$;
-- the length in two bytes, and the key
CREATE FUNCTION prefixed(key text) RETURNS bytea LANGUAGE sql AS $$
	SELECT decode(lpad(to_hex(octet_length(key)), 4, '0'), 'hex') || convert_to(key, 'UTF8')
$$;
CREATE FUNCTION mac_of(tenant_id text, scope text, bytes bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT hmac_of(s.secret, substring(bytes, 1, 1) || prefixed(tenant_id) || prefixed(scope) || substring(bytes, 2, 32))
	  FROM idem_token_secret s WHERE s.secret_id = substring(bytes, 2, 8)
$$;
CREATE FUNCTION made(tenant_id text, scope text, expires_at timestamptz, version text DEFAULT '01', nonce text DEFAULT 'n') RETURNS text LANGUAGE sql AS $$
	SELECT token_of(b.bytes || mac_of(tenant_id, scope, b.bytes))
	  FROM (SELECT decode(version, 'hex') || s.secret_id
				   || decode(lpad(to_hex((extract(epoch FROM expires_at - timestamptz '2000-01-01 UTC') * 1000000)::bigint), 16, '0'), 'hex')
				   || substring(sha256(convert_to(nonce, 'UTF8')), 1, 16) AS bytes
			  FROM idem_token_secret s WHERE s.retired_at IS NULL ORDER BY s.created_at DESC LIMIT 1) b
$$;

-- RFC 4231, test cases 1, 2 and 6: that it is HMAC-SHA-256 what is compared with below
SELECT hmac_of(decode(repeat('0b', 20), 'hex'), 'Hi There') = '\xb0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7' AS case_1,
       hmac_of('Jefe', 'what do ya want for nothing?') = '\x5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843' AS case_2,
       hmac_of(decode(repeat('aa', 131), 'hex'), 'Test Using Larger Than Block-Size Key - Hash Key First')
	   = '\x60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54' AS case_6;

-- a token: 87 characters, no two alike, with the MAC that it should have
SELECT idem_issue_token('token', 'form') AS t \gset
SELECT :'t' ~ '^[A-Za-z0-9_-]{87}$' AS url_safe, :'t' <> idem_issue_token('token', 'form') AS another_one,
       get_byte(bytes_of(:'t'), 0) AS version,
       substring(bytes_of(:'t'), 34) = mac_of('token', 'form', bytes_of(:'t')) AS signed;
SELECT count(DISTINCT idem_issue_token('token', 'form')) FROM generate_series(1, 1000);
-- the longest keys, of several bytes to a character
SELECT substring(bytes_of(t), 34) = mac_of(repeat(U&'\6C49', 85), repeat('s', 255), bytes_of(t)) AS signed
  FROM idem_issue_token(repeat(U&'\6C49', 85), repeat('s', 255)) AS t;
-- and its expiry: whoever has the secret makes tokens
SELECT outcome FROM idem_consume_token('token', 'form', made('token', 'form', clock_timestamp() + interval '1 minute'));

-- issuing writes nothing, checking what is wrong neither
BEGIN;
SELECT count(idem_issue_token('token', 'form')) FROM generate_series(1, 10);
SELECT outcome FROM idem_consume_token('token', 'other', :'t');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- once; and again
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT payment_no, digest = digest_of(:'t') AS by_its_mac
  FROM idem_token_used WHERE tenant_id = 'token' AND digest = digest_of(:'t');
BEGIN READ ONLY;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- two in one statement
SELECT array_agg((idem_consume_token('token', 'form', t)).outcome) FROM idem_issue_token('token', 'form') AS t, generate_series(1, 3);

-- unknown: another scope or tenant, any other character anywhere, truncated, prolonged, spelled otherwise, nonsense
SELECT idem_issue_token('token', 'form', '1 hour') AS t \gset
SELECT outcome FROM idem_consume_token('token', 'other', :'t');
SELECT outcome FROM idem_consume_token('token-2', 'form', :'t');
SELECT outcome FROM idem_consume_token('tokenf', 'orm', :'t');
SELECT outcome, count(*) FROM generate_series(1, 87) AS i,
       regexp_split_to_table('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=. ', '') AS c,
       idem_consume_token('token', 'form', overlay(:'t' PLACING c FROM i FOR 1))
 WHERE substring(:'t', i, 1) <> c GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(0, 64) AS i, generate_series(0, 7) AS bit,
       idem_consume_token('token', 'form', token_of(set_byte(bytes_of(:'t'), i, get_byte(bytes_of(:'t'), i) # (1 << bit)))) GROUP BY 1;
SELECT outcome, count(*) FROM generate_series(0, 86) AS i, idem_consume_token('token', 'form', left(:'t', i)) GROUP BY 1;
SELECT outcome, count(*) FROM unnest(ARRAY[:'t' || 'A', :'t' || '=', :'t' || E'\n', ' ' || :'t', :'t' || :'t', repeat('A', 87), repeat(U&'\6C49', 29), repeat('x', 100000)]) AS bad,
       idem_consume_token('token', 'form', bad) GROUP BY 1;
SELECT outcome FROM idem_consume_token('token', 'form', made('token', 'form', 'tomorrow', '02'));
-- none of which has used it up
SELECT outcome FROM idem_consume_token('token', 'form', :'t');

-- expired
SELECT idem_issue_token('token', 'form', '1 microsecond') AS t \gset
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT made('token', 'form', now() - interval '1 hour') AS t \gset
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
-- consumed wins, until it is forgotten, whether or not a sweep has run
BEGIN;
INSERT INTO idem_token_used (tenant_id, digest, consumed_at)
VALUES ('token', digest_of(:'t'), now() - interval '2 hours');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
SELECT made('token', 'form', now() - interval '1 day 1 minute') AS t \gset
BEGIN;
INSERT INTO idem_token_used (tenant_id, digest, consumed_at)
VALUES ('token', digest_of(:'t'), now() - interval '25 hours');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
-- just before that it is remembered
SELECT made('token', 'form', now() - interval '23 hours 59 minutes') AS t \gset
BEGIN;
INSERT INTO idem_token_used (tenant_id, digest, consumed_at)
VALUES ('token', digest_of(:'t'), now() - interval '25 hours');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;

-- a rollback gives it back, to a savepoint too
SELECT idem_issue_token('token', 'form') AS t \gset
BEGIN;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK TO s;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
COMMIT;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');

-- what was used stays used, until it may be forgotten
UPDATE idem_token_used SET payment_no = 'x' WHERE tenant_id = 'token';
INSERT INTO idem_token_used (tenant_id, digest, consumed_at) VALUES ('token', 'short', now());


-- Secrets.

-- the first call that needs one makes it; before that nothing can be issued read-only, and nothing is known
SELECT idem_issue_token('token', 'form') AS old \gset
BEGIN;
DELETE FROM idem_token_secret;
SELECT outcome FROM idem_consume_token('token', 'form', :'old');
SELECT idem_issue_token('token', 'form') AS t \gset
SELECT count(*) AS secrets, count(retired_at) AS retired FROM idem_token_secret;
SELECT idem_issue_token('token', 'form') AS t \gset
SELECT count(*) AS secrets FROM idem_token_secret;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
-- it was rolled back, and its tokens with it
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
BEGIN;
DELETE FROM idem_token_secret;
SAVEPOINT s;
SELECT idem_issue_token('token', 'form') AS t \gset
ROLLBACK TO s;
SELECT idem_issue_token('token', 'form') AS t_2 \gset
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT outcome FROM idem_consume_token('token', 'form', :'t_2');
ROLLBACK TO s;
SET TRANSACTION READ ONLY;
SELECT idem_issue_token('token', 'form');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_issue_token('token', 'form') IS NOT NULL AS issued;
ROLLBACK;

-- rotated: the new one signs, the old one is honoured, for three days
BEGIN;
SELECT outcome FROM idem_rotate_token_secret();
SELECT idem_issue_token('token', 'form') AS t \gset
SELECT substring(bytes_of(:'t'), 2, 8) <> substring(bytes_of(:'old'), 2, 8) AS by_another,
       substring(bytes_of(:'t'), 2, 8) = (SELECT secret_id FROM idem_token_secret WHERE retired_at IS NULL) AS by_the_new_one;
SELECT count(*) AS secrets, count(retired_at) AS retired FROM idem_token_secret;
SAVEPOINT s;
SELECT outcome FROM idem_consume_token('token', 'form', :'old');
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK TO s;
UPDATE idem_token_secret SET retired_at = retired_at - interval '71 hours 59 minutes' WHERE retired_at IS NOT NULL;
SELECT outcome FROM idem_consume_token('token', 'form', :'old');
ROLLBACK TO s;
UPDATE idem_token_secret SET retired_at = retired_at - interval '3 days' WHERE retired_at IS NOT NULL;
SELECT outcome FROM idem_consume_token('token', 'form', :'old');
-- the next one throws it out
SELECT outcome FROM idem_rotate_token_secret();
SELECT count(*) AS secrets, count(retired_at) AS retired FROM idem_token_secret;
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
-- nothing of this has happened
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
SELECT outcome FROM idem_consume_token('token', 'form', :'old');
-- a secret that is deleted takes its tokens with it
BEGIN;
SELECT idem_issue_token('token', 'form') AS t \gset
DELETE FROM idem_token_secret WHERE secret_id = substring(bytes_of(:'t'), 2, 8);
SELECT outcome FROM idem_consume_token('token', 'form', :'t');
ROLLBACK;
INSERT INTO idem_token_secret (secret_id, secret, created_at) VALUES ('12345678', 'short', now());


-- In idem_create_payment, scope payment.

-- created consumes; the second use is told of the payment that the first one made
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', payment_no => 'token-1');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', payment_no => 'token-1');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t');
SELECT payment_no, repurchase, asked_payment_no FROM idem_token_used WHERE tenant_id = 'token' AND digest = digest_of(:'t');
SELECT outcome FROM idem_consume_token('token', 'payment', :'t');
BEGIN READ ONLY;
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- for something else: DETAIL names the first field that differs
SELECT idem_create_payment('token', 'o2', 1, 'USD', token => :'t');
SELECT idem_create_payment('token', 'o1', 1, 'USD', token => :'t');
SELECT idem_create_payment('token', 'o1', 100, 'USD', token => :'t');
SELECT idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', repurchase => true, request_key => 'k');
SELECT idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', payment_no => 'token-2');
SELECT count(*) AS payments FROM idem_payment WHERE tenant_id = 'token';

-- existing consumes too, and its repetition may name the number that was asked for in vain
SELECT idem_issue_token('token', 'payment') AS t_2 \gset
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t_2', payment_no => 'token-1b');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t_2', payment_no => 'token-1b');
SELECT payment_no, asked_payment_no FROM idem_token_used WHERE tenant_id = 'token' AND digest = digest_of(:'t_2');
SELECT outcome FROM idem_consume_token('token', 'payment', :'t_2');

-- the handle stands while the payment is pending; whatever became of it, nothing new is made
SELECT outcome FROM idem_submit_payment('token', 'token-1', 'alipay', 'm1');
SELECT idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', channel => 'wechat');
SELECT idem_create_payment('token', 'o1', 100, 'CNY', token => :'t', account => 'm2');
SELECT outcome FROM idem_confirm_payment('token', 'token-1', 'alipay', 'token-t1', 100, 'CNY');
SELECT outcome, payment_no, status, blocking_no FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t');

-- every other outcome leaves it
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT outcome FROM idem_create_payment('token', 'o1', 100, 'CNY', token => :'t');
SELECT outcome FROM idem_create_payment('token', 'o3', 100, 'CNY', request_key => 'k3', channel => 'alipay', payment_no => 'token-3');
SELECT outcome FROM idem_create_payment('token', 'o3', 100, 'CNY', token => :'t', channel => 'wechat');
SELECT outcome FROM idem_create_payment('token', 'o3', 100, 'CNY', token => :'t', request_key => 'k3');
SELECT idem_create_payment('token', 'o3', 999, 'CNY', token => :'t');
SELECT outcome FROM idem_begin_close('token', 'token-3');
SELECT outcome FROM idem_create_payment('token', 'o3', 100, 'CNY', token => :'t');
SELECT outcome FROM idem_cancel_request_key('token', 'k-burned');
SELECT outcome FROM idem_create_payment('token', 'o4', 100, 'CNY', token => :'t', request_key => 'k-burned');
SELECT outcome FROM idem_create_order('token', 'o5', 100, 'CNY');
SELECT outcome FROM idem_create_payment('token', 'o5', 100, 'CNY', payment_no => 'token-5');
SELECT outcome FROM idem_cancel_order('token', 'o5');
SELECT outcome FROM idem_create_payment('token', 'o5', 100, 'CNY', token => :'t');
SELECT outcome FROM idem_create_payment('token', 'o6', 100, 'CNY', payment_no => 'token-6');
SELECT outcome FROM idem_confirm_payment('token', 'token-6', 'alipay', 'token-t6', 99, 'CNY');
SELECT outcome FROM idem_create_payment('token', 'o6', 100, 'CNY', token => :'t');
-- money came before, so that what is created can no longer be paid
SELECT outcome FROM idem_confirm_payment('token', 'token-7', 'alipay', 'token-t7', 100, 'CNY');
SELECT outcome, blocking_no FROM idem_create_payment('token', 'o7', 100, 'CNY', token => :'t', payment_no => 'token-7');
SELECT outcome FROM idem_confirm_payment('token', 'token-8', 'alipay', 'token-t8', 99, 'CNY');
SELECT outcome, blocking_no FROM idem_create_payment('token', 'o8', 100, 'CNY', token => :'t', payment_no => 'token-8');
-- a submitted payment that has expired is put into closing, which is no use of the token; an unsubmitted one makes room
SELECT outcome FROM idem_create_payment('token', 'o9', 100, 'CNY', payment_no => 'token-9');
SELECT outcome FROM idem_submit_payment('token', 'token-9', 'alipay');
SELECT outcome FROM idem_create_payment('token', 'o10', 100, 'CNY', payment_no => 'token-10');
UPDATE idem_payment SET expires_at = now() - interval '1 second' WHERE tenant_id = 'token' AND payment_no IN ('token-9', 'token-10');
SELECT outcome FROM idem_create_payment('token', 'o9', 100, 'CNY', token => :'t');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o10', 100, 'CNY', token => :'t', payment_no => 'token-10b');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o10', 100, 'CNY', token => :'t', payment_no => 'token-10b');
-- a rollback gives it back
SELECT idem_issue_token('token', 'payment') AS t \gset
BEGIN;
SELECT outcome FROM idem_create_payment('token', 'o11', 100, 'CNY', token => :'t', payment_no => 'token-11');
ROLLBACK;
SELECT outcome FROM idem_create_payment('token', 'o12', 100, 'CNY', token => :'t', payment_no => 'token-12');

-- ID002: unknown, of another scope or tenant, expired, consumed without a payment
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => '');
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => left(idem_issue_token('token', 'payment'), 86));
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => idem_issue_token('token', 'form'));
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => idem_issue_token('token-2', 'payment'));
SELECT idem_issue_token('token', 'payment', '1 microsecond') AS t \gset
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => :'t');
-- before what the key knows, after what is wrong with the other arguments
SELECT idem_create_payment('token', 'o3', 100, 'CNY', token => :'t', request_key => 'k3');
SELECT idem_create_payment('token', 'o3', 100, 'CNY', token => 'nonsense', request_key => 'k3');
SELECT idem_create_payment('token', 'o13', -1, 'CNY', token => 'nonsense');
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => 'nonsense', repurchase => true);
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT outcome FROM idem_consume_token('token', 'payment', :'t');
SELECT idem_create_payment('token', 'o13', 100, 'CNY', token => :'t');
SELECT count(*) AS payments FROM idem_payment WHERE tenant_id = 'token' AND order_id = 'o13';
-- consumed wins over expired, until it is forgotten
SELECT made('token', 'payment', now() - interval '1 hour') AS t \gset
BEGIN;
INSERT INTO idem_token_used (tenant_id, digest, payment_no, consumed_at)
VALUES ('token', digest_of(:'t'), 'token-12', now() - interval '2 hours');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o12', 100, 'CNY', token => :'t');
ROLLBACK;
SELECT made('token', 'payment', now() - interval '1 day 1 minute') AS t \gset
BEGIN;
INSERT INTO idem_token_used (tenant_id, digest, payment_no, consumed_at)
VALUES ('token', digest_of(:'t'), 'token-12', now() - interval '25 hours');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o12', 100, 'CNY', token => :'t');
ROLLBACK;

-- With a request key: both lead to the same payment.
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14', token => :'t', payment_no => 'token-14');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14', token => :'t', payment_no => 'token-14');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14');
-- another key with the used token is bound to its payment, once
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14b', token => :'t');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14b', token => :'t');
SELECT request_key, payment_no FROM idem_payment_key WHERE tenant_id = 'token' AND request_key LIKE 'k14%' ORDER BY 1;
-- a known key with a new token leaves that
SELECT idem_issue_token('token', 'payment') AS t_2 \gset
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14', token => :'t_2');
SELECT outcome FROM idem_consume_token('token', 'payment', :'t_2');
-- of two payments, of two orders, and a burned key
SELECT outcome FROM idem_cancel_request_key('token', 'k14');
SELECT outcome, payment_no FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k14c', payment_no => 'token-14c');
SELECT idem_create_payment('token', 'o14', 100, 'CNY', 'k14c', token => :'t');
SELECT idem_create_payment('token', 'o3', 100, 'CNY', 'k3', token => :'t');
SELECT idem_create_payment('token', 'o14', 100, 'CNY', 'k3', token => :'t');
SELECT outcome FROM idem_create_payment('token', 'o14', 100, 'CNY', 'k-burned', token => :'t');
-- a repurchase
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT outcome, purchase_no FROM idem_create_payment('token', 'o1', 100, 'CNY', 'k1', token => :'t', repurchase => true, payment_no => 'token-1c');
SELECT outcome, purchase_no FROM idem_create_payment('token', 'o1', 100, 'CNY', 'k1', token => :'t', repurchase => true);
SELECT idem_create_payment('token', 'o1', 100, 'CNY', token => :'t');


-- In a batch: as single calls, one after the other.
SELECT idem_issue_token('token', 'payment') AS t \gset
SELECT idem_issue_token('token', 'payment') AS t_2 \gset
SELECT idem_issue_token('token', 'payment', '1 microsecond') AS t_3 \gset
SELECT idem_issue_token('token', 'payment') AS t_4 \gset
SELECT ord, outcome, payment_no, order_id, error
  FROM idem_create_payments('token', jsonb_build_array(
	jsonb_build_object('order_id', 'b1', 'amount', 100, 'currency', 'CNY', 'token', :'t'::text, 'payment_no', 'token-b1'),
	jsonb_build_object('order_id', 'b1', 'amount', 100, 'currency', 'CNY', 'token', :'t'::text),
	jsonb_build_object('order_id', 'b1', 'amount', 999, 'currency', 'CNY', 'token', :'t'::text),
	jsonb_build_object('order_id', 'b2', 'amount', 100, 'currency', 'CNY', 'token', :'t'::text),
	jsonb_build_object('order_id', 'b1', 'amount', 100, 'currency', 'CNY', 'token', :'t_2'::text),
	jsonb_build_object('order_id', 'b2', 'amount', 100, 'currency', 'CNY', 'token', :'t_3'::text),
	jsonb_build_object('order_id', 'b2', 'amount', 100, 'currency', 'CNY', 'token', 'nonsense'),
	jsonb_build_object('order_id', 'b2', 'amount', 100, 'currency', 'CNY', 'token', 5),
	jsonb_build_object('order_id', 'b2', 'amount', -1, 'currency', 'CNY', 'token', 'nonsense'),
	jsonb_build_object('order_id', 'o1', 'amount', 100, 'currency', 'CNY', 'token', :'t_4'::text, 'channel', 'wechat', 'request_key', 'k1', 'repurchase', true),
	jsonb_build_object('order_id', 'b3', 'amount', 100, 'currency', 'CNY', 'token', NULL, 'payment_no', 'token-b3')));
SELECT outcome FROM idem_consume_token('token', 'payment', :'t_2');
SELECT outcome FROM idem_consume_token('token', 'payment', :'t_4');


-- nonsense
SELECT idem_issue_token(NULL, 'form');
SELECT idem_issue_token('', 'form');
SELECT idem_issue_token('token', NULL);
SELECT idem_issue_token('token', '');
SELECT idem_issue_token('token', repeat('x', 256));
SELECT idem_issue_token('token', 'form', NULL);
SELECT idem_issue_token('token', 'form', '0');
SELECT idem_issue_token('token', 'form', '-1 second');
SELECT idem_issue_token('token', 'form', '24 hours 1 microsecond');
SELECT idem_issue_token('token', 'form', '1000 years');
SELECT idem_issue_token('token', 'form', '1 day') IS NOT NULL AS good, idem_issue_token('token', 'form', '24 hours') IS NOT NULL AS good;
SELECT idem_consume_token('token', NULL, 'x');
SELECT idem_consume_token('token', '', 'x');
SELECT idem_consume_token('token', 'form', NULL);
SELECT idem_consume_token('', 'form', 'x');

-- what may be forgotten is swept, what may not stays
INSERT INTO idem_token_used (tenant_id, digest, consumed_at)
SELECT 'token-sweep', digest_of(made('token-sweep', 'form', now() - CASE WHEN i > 3 THEN interval '23 hours 59 minutes' ELSE '1 day 1 minute' END, nonce => i::text)), now()
  FROM generate_series(1, 5) i;
SELECT count FROM idem_sweep(2) WHERE what = 'tokens';
SELECT count FROM idem_sweep() WHERE what = 'tokens';
SELECT count(*) FROM idem_token_used WHERE tenant_id = 'token-sweep';

DROP FUNCTION made(text, text, timestamptz, text, text), mac_of(text, text, bytea), prefixed(text), hmac_of(bytea, bytea), token_of(bytea), bytes_of(text);
SELECT * FROM idem_verify();
