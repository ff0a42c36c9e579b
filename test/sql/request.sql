--
-- request: idempotency keys, replays, recovery points, fences.
--
\set SHOW_CONTEXT never
\pset null '-'
SET idem.wait = 0;

-- The answer of a begin without what differs from run to run.
CREATE TEMP VIEW begun AS
SELECT outcome, attempt IS NOT NULL AS handle, recovery_point AS point, recovery_state AS state,
       response_status AS status, response, lease_until > clock_timestamp() AS leased, first_at <= clock_timestamp() AS first
  FROM idem_begin_request('x', 'x', 'x') WHERE false;
CREATE FUNCTION pg_temp.show(p idem_begin_request_result) RETURNS SETOF begun LANGUAGE sql AS $$
SELECT p.outcome, p.attempt IS NOT NULL, p.recovery_point, p.recovery_state, p.response_status, p.response,
       p.lease_until > clock_timestamp(), p.first_at <= clock_timestamp()
$$;
-- The current attempt of a key, which only its worker is told.
CREATE FUNCTION pg_temp.current(k text) RETURNS bigint LANGUAGE sql AS $$
SELECT attempt FROM idem_request WHERE tenant_id = 'request' AND scope = 'shop' AND key = k
$$;

--
-- All in one transaction
--
BEGIN;
SELECT s.* FROM idem_begin_request('request', 'shop', 'one', '{"amount": 100}') p, pg_temp.show(p) s;
SELECT s.* FROM idem_begin_request('request', 'shop', 'one', '{"amount": 100}') p, pg_temp.show(p) s;
SELECT * FROM idem_complete_request('request', 'shop', 'one', pg_temp.current('one'), '{"id" : 7,  "id":8}', 201);
COMMIT;
-- replayed text for text, whatever the spelling of the request
SELECT s.* FROM idem_begin_request('request', 'shop', 'one', '{"amount": 100}') p, pg_temp.show(p) s;
SELECT s.* FROM idem_begin_request('request', 'shop', 'one', ' {"amount" :1.00e2}') p, pg_temp.show(p) s;
SELECT idem_begin_request('request', 'shop', 'one', '{"amount": 101}');
SELECT idem_begin_request('request', 'shop', 'one');

-- a rollback frees the key, of a savepoint too, and for another request
BEGIN;
SELECT s.* FROM idem_begin_request('request', 'shop', 'two', '1') p, pg_temp.show(p) s;
ROLLBACK;
BEGIN;
SAVEPOINT before;
SELECT s.* FROM idem_begin_request('request', 'shop', 'two', '2') p, pg_temp.show(p) s;
ROLLBACK TO before;
SELECT s.* FROM idem_begin_request('request', 'shop', 'two', '3') p, pg_temp.show(p) s;
SELECT outcome FROM idem_fail_request('request', 'shop', 'two', pg_temp.current('two'), '{"error": "no stock"}', 422, retryable => false);
COMMIT;
SELECT s.* FROM idem_begin_request('request', 'shop', 'two', '3') p, pg_temp.show(p) s;

-- in one statement
SELECT b.outcome, c.outcome, r.outcome, r.response
FROM idem_begin_request('request', 'shop', 'statement') b,
	idem_complete_request('request', 'shop', 'statement', b.attempt, '"done"') c,
	idem_begin_request('request', 'shop', CASE WHEN c.outcome = 'completed' THEN 'statement' END) r;

-- a response may be null, or nothing
SELECT s.* FROM idem_begin_request('request', 'shop', 'nothing') p, pg_temp.show(p) s;
SELECT outcome FROM idem_complete_request('request', 'shop', 'nothing', pg_temp.current('nothing'), NULL, 204);
SELECT outcome FROM idem_complete_request('request', 'shop', 'nothing', pg_temp.current('nothing'), NULL, 204);
SELECT outcome FROM idem_complete_request('request', 'shop', 'nothing', pg_temp.current('nothing'), 'null', 204);
SELECT s.* FROM idem_begin_request('request', 'shop', 'nothing') p, pg_temp.show(p) s;

--
-- Over several transactions
--
SELECT attempt AS first FROM idem_begin_request('request', 'shop', 'long', '{}', worker => 'w1') \gset
SELECT outcome, lease_until > clock_timestamp() AS leased FROM idem_checkpoint_request('request', 'shop', 'long', :first, 'charged', '{"charge": "ch_1"}');
-- not before the lease is over, for whoever that is
SELECT s.* FROM idem_begin_request('request', 'shop', 'long', '{}', worker => 'w2') p, pg_temp.show(p) s;
SELECT s.* FROM idem_begin_request('request', 'shop', 'long', '{}') p, pg_temp.show(p) s;
-- but the one whose answer was lost
SELECT s.* FROM idem_begin_request('request', 'shop', 'long', '{}', worker => 'w1') p, pg_temp.show(p) s;
SELECT idem_complete_request('request', 'shop', 'long', :first, '1');
SELECT pg_temp.current('long') > :first AS drew_a_new_one, pg_temp.current('long') AS second \gset
-- the time comes
UPDATE idem_request SET lease_until = now() WHERE tenant_id = 'request' AND key = 'long';
SELECT idem_begin_request('request', 'shop', 'long', '{"other": 1}', worker => 'w2');
SELECT s.* FROM idem_begin_request('request', 'shop', 'long', '{}', worker => 'w2', ttl => '1 second', on_expiry => 'unknown') p, pg_temp.show(p) s;
SELECT :'drew_a_new_one' AS drew_a_new_one, pg_temp.current('long') > :second AS and_again;
-- ttl and on_expiry are the first call's
SELECT on_expiry, expires_at - first_at AS ttl FROM idem_request WHERE tenant_id = 'request' AND key = 'long';
-- the old ones wake up
SELECT idem_checkpoint_request('request', 'shop', 'long', :first, 'x');
SELECT idem_renew_request('request', 'shop', 'long', :second, '1 hour');
SELECT idem_complete_request('request', 'shop', 'long', :second, '1');
SELECT idem_fail_request('request', 'shop', 'long', :second);
SELECT recovery_point, recovery_state, status FROM idem_request WHERE tenant_id = 'request' AND key = 'long';
-- the lease moves by a renewal alone, either way
SELECT lease_until AS leased FROM idem_request WHERE tenant_id = 'request' AND key = 'long' \gset
SELECT outcome, lease_until = :'leased' AS same FROM idem_checkpoint_request('request', 'shop', 'long', pg_temp.current('long'), 'sent');
SELECT outcome, lease_until > :'leased' AS later FROM idem_renew_request('request', 'shop', 'long', pg_temp.current('long'), '1 hour');
SELECT outcome, lease_until < :'leased' AS sooner FROM idem_renew_request('request', 'shop', 'long', pg_temp.current('long'), '1 microsecond');
-- late, but nobody has taken over
SELECT outcome FROM idem_checkpoint_request('request', 'shop', 'long', pg_temp.current('long'), 'posted');
SELECT outcome FROM idem_complete_request('request', 'shop', 'long', pg_temp.current('long'), '"late"');
SELECT s.* FROM idem_begin_request('request', 'shop', 'long', '{}') p, pg_temp.show(p) s;

-- ttl ends finished requests only, and may be over before the lease
SELECT s.* FROM idem_begin_request('request', 'shop', 'short', '1', ttl => '1 microsecond', lease => '1 hour') p, pg_temp.show(p) s;
SELECT pg_temp.current('short') AS first \gset
SELECT s.* FROM idem_begin_request('request', 'shop', 'short', '1') p, pg_temp.show(p) s;
SELECT outcome FROM idem_complete_request('request', 'shop', 'short', :first, '"one"');
-- past it the key starts anew, for another request too; the old attempt is fenced
SELECT s.* FROM idem_begin_request('request', 'shop', 'short', '2', ttl => '1 microsecond') p, pg_temp.show(p) s;
SELECT idem_complete_request('request', 'shop', 'short', :first, '"one"');
SELECT outcome FROM idem_fail_request('request', 'shop', 'short', pg_temp.current('short'), retryable => false);
SELECT pg_temp.current('short') AS second \gset
-- swept or not
SELECT count FROM idem_sweep() WHERE what = 'requests';
SELECT s.* FROM idem_begin_request('request', 'shop', 'short', '3') p, pg_temp.show(p) s;
SELECT pg_temp.current('short') > :second AND :second > :first AS attempts_never_repeat;
SELECT idem_complete_request('request', 'shop', 'short', :second, '"one"');

--
-- Every state, every call
--
CREATE TEMP TABLE state (n int, s text, attempt bigint DEFAULT 0);
INSERT INTO state VALUES (1, 'none'), (2, 'open'), (3, 'lapsed'), (4, 'open_once'), (5, 'lapsed_once'),
	(6, 'completed'), (7, 'failed'), (8, 'released'), (9, 'expired');
UPDATE state SET attempt = (SELECT attempt FROM idem_begin_request('request', 'table', s, '{"a": 1}', worker => 'w1',
	on_expiry => CASE WHEN s LIKE '%once' THEN 'unknown' ELSE 'resume' END)) WHERE s <> 'none';
SELECT s, r.outcome FROM state, idem_checkpoint_request('request', 'table', s, attempt, 'p1', '{"step": 1}') r WHERE s <> 'none' ORDER BY n;
SELECT s, r.outcome FROM state, idem_complete_request('request', 'table', s, attempt, '{"done": true}', 201) r WHERE s IN ('completed', 'expired') ORDER BY n;
SELECT s, r.outcome FROM state, idem_fail_request('request', 'table', s, attempt, '{"bad": true}', 422, false) r WHERE s = 'failed';
SELECT s, r.outcome FROM state, idem_fail_request('request', 'table', s, attempt, '{"busy": true}', 503) r WHERE s = 'released';
UPDATE idem_request SET lease_until = now() WHERE tenant_id = 'request' AND key LIKE 'lapsed%';
UPDATE idem_request SET expires_at = now() WHERE tenant_id = 'request' AND key = 'expired';

-- The outcome or the SQLSTATE of a call, which is undone.
CREATE FUNCTION pg_temp.cell(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	BEGIN
		EXECUTE 'SELECT outcome FROM ' || call INTO answer;
		RAISE EXCEPTION USING ERRCODE = 'ZZ001';
	EXCEPTION
		WHEN SQLSTATE 'ZZ001' THEN NULL;
		WHEN OTHERS THEN answer := SQLSTATE;
	END;
	RETURN answer;
END $$;

CREATE TEMP TABLE call (n serial, name text, call text);
INSERT INTO call (name, call) VALUES
	('begin', 'idem_begin_request(''request'', ''table'', %1$L, ''{"a": 1}'')'),
	('begin, same worker', 'idem_begin_request(''request'', ''table'', %1$L, ''{"a": 1}'', worker => ''w1'')'),
	('begin, other request', 'idem_begin_request(''request'', ''table'', %1$L, ''{"a": 2}'', worker => ''w1'')'),
	('checkpoint', 'idem_checkpoint_request(''request'', ''table'', %1$L, %2$s, ''p2'')'),
	('checkpoint, the same', 'idem_checkpoint_request(''request'', ''table'', %1$L, %2$s, ''p1'', ''{"step": 1.0}'')'),
	('renew', 'idem_renew_request(''request'', ''table'', %1$L, %2$s, ''1 hour'')'),
	('complete', 'idem_complete_request(''request'', ''table'', %1$L, %2$s, ''{"done": true}'', 201)'),
	('complete, other response', 'idem_complete_request(''request'', ''table'', %1$L, %2$s, ''{"done":true}'', 201)'),
	('complete, other status', 'idem_complete_request(''request'', ''table'', %1$L, %2$s, ''{"done": true}'')'),
	('fail', 'idem_fail_request(''request'', ''table'', %1$L, %2$s)'),
	('fail for good', 'idem_fail_request(''request'', ''table'', %1$L, %2$s, ''{"bad": true}'', 422, false)'),
	('fail for good, other', 'idem_fail_request(''request'', ''table'', %1$L, %2$s, NULL, 422, false)'),
	('resolve completed', 'idem_resolve_request(''request'', ''table'', %1$L, ''completed'', ''{"done": true}'')'),
	('resolve released', 'idem_resolve_request(''request'', ''table'', %1$L, ''released'')'),
	('checkpoint, stale', 'idem_checkpoint_request(''request'', ''table'', %1$L, %2$s - 1, ''p2'')'),
	('renew, stale', 'idem_renew_request(''request'', ''table'', %1$L, %2$s - 1, ''1 hour'')'),
	('complete, stale', 'idem_complete_request(''request'', ''table'', %1$L, %2$s - 1, ''{"done": true}'', 201)'),
	('fail, stale', 'idem_fail_request(''request'', ''table'', %1$L, %2$s - 1)'),
	('fail for good, stale', 'idem_fail_request(''request'', ''table'', %1$L, %2$s - 1, ''{"bad": true}'', 422, false)');
SELECT name, s, pg_temp.cell(format(call, s, attempt)) AS answer FROM call, state ORDER BY call.n, state.n
\crosstabview name s answer

-- what is not to be acted on is not handed out
SELECT state.s, b.outcome, b.handle, b.point, b.state, b.status, b.response, b.leased, b.first
FROM state, idem_begin_request('request', 'table', state.s, '{"a": 1}') p, pg_temp.show(p) b WHERE state.s NOT IN ('none', 'released', 'expired', 'lapsed') ORDER BY n;
-- what is handed to whoever goes on, and what is not
SELECT state.s, b.outcome, b.handle, b.point, b.state, b.leased
FROM state, idem_begin_request('request', 'table', state.s, '{"a": 1}') p, pg_temp.show(p) b WHERE state.s IN ('released', 'expired', 'lapsed') ORDER BY n;

--
-- Nobody knows whether it ran
--
SELECT attempt AS first FROM idem_begin_request('request', 'shop', 'once', on_expiry => 'unknown', worker => 'w1') \gset
SELECT s.* FROM idem_begin_request('request', 'shop', 'once', worker => 'w1') p, pg_temp.show(p) s;
SELECT outcome FROM idem_resolve_request('request', 'shop', 'once', 'released');
UPDATE idem_request SET lease_until = now() WHERE tenant_id = 'request' AND key = 'once';
SELECT s.* FROM idem_begin_request('request', 'shop', 'once', worker => 'w1') p, pg_temp.show(p) s;
SELECT idem_begin_request('request', 'shop', 'once', 'null');
BEGIN;
-- it ran, says its worker, who wakes up
SELECT outcome FROM idem_complete_request('request', 'shop', 'once', :first, '"ran"');
SELECT outcome FROM idem_resolve_request('request', 'shop', 'once', 'completed', '"ran"');
SELECT s.* FROM idem_begin_request('request', 'shop', 'once') p, pg_temp.show(p) s;
ROLLBACK;
BEGIN;
-- it ran, says a human
SELECT * FROM idem_resolve_request('request', 'shop', 'once', 'completed', '"found"');
SELECT * FROM idem_resolve_request('request', 'shop', 'once', 'completed', '"found"');
SELECT s.* FROM idem_begin_request('request', 'shop', 'once') p, pg_temp.show(p) s;
SELECT outcome FROM idem_complete_request('request', 'shop', 'once', :first, '"found"');
SELECT idem_complete_request('request', 'shop', 'once', :first, '"ran"');
ROLLBACK;
-- it did not
SELECT * FROM idem_resolve_request('request', 'shop', 'once', 'released');
SELECT * FROM idem_resolve_request('request', 'shop', 'once', 'released');
SELECT idem_complete_request('request', 'shop', 'once', :first, '"ran"');
SELECT s.* FROM idem_begin_request('request', 'shop', 'once', '"another"') p, pg_temp.show(p) s;

--
-- Fingerprints: golden vectors, version 1
--
CREATE TEMP TABLE vector (request jsonb, digest text);
INSERT INTO vector VALUES
	('null', '19041ad672875015bc4041c24b581eafc0869aab38ecd09ff94ede44648b50a3'),
	('[null]', 'bbbd942e59eec5827b51ced748364b8c2915d1fc75b7ad0aac8566a2fb13dccc'),
	('true', 'a06347069e3b92f3074856f990845af5453a0f7456d734ee6aac0f2375285840'),
	('false', 'c45faba35d3676d57b123d9b484c85aa28a5adaae1824a780bcfb0bf87b40ddf'),
	('0', '814c052f77ba353c9d105bab298b2e22499078197f2321780c5545a764eb0805'),
	('-0', '814c052f77ba353c9d105bab298b2e22499078197f2321780c5545a764eb0805'),
	('-0.00', '814c052f77ba353c9d105bab298b2e22499078197f2321780c5545a764eb0805'),
	('1', '9cc5abbd330fe2d885f39c85248e25b39abf2a65b6a8bb6e422bb8137454fa0e'),
	('10.0e-1', '9cc5abbd330fe2d885f39c85248e25b39abf2a65b6a8bb6e422bb8137454fa0e'),
	('-12.50', '63e8eb2b50427467dbfcc3bdaacc4bcb9e11197135b1f9cbc3524650efed8f93'),
	('1e20', 'e09862721e3e801393bfd36c64a49d9724d491b6616be170c7f0934d7721d597'),
	('1.0e-7', 'cd239055a192f66dc1f502e7fcc8f694aac82645e554d77338f5e5f71be88dc4'),
	('""', '9bebdd16700eb52ba08e6b2a192a2311238ed88db0bb56997143b6862f0da72b'),
	('"\u00e9\ud83d\ude00"', '9250363a2dbbee451c95bd26a2e388374fee4550289dbab725cde281b9c8f966'),
	('[]', 'f0b6d5f851bbca8c18fdf5574b30a5326edc8a60e888381c712e92493722e817'),
	('[1]', 'eb6bba5fa4c3d5f2eca406f76d5bc9d36a0abe1e8f0e34c03ebab7bcd74b134f'),
	('{}', 'd5d1ff4cdb5293cd78ca164854628f0fa41c274335fedd8f705efa19d97006c1'),
	('[[],{}]', 'f324a857055446144ac41d01d2c6456c2352e6903c7c6558d73a2e2b11b94081'),
	('{"amount":100,"items":[{"sku":"a","n":2}],"note":null}', '6f463f570fa44599aed89bc532d06e8808075c5ed3455ca22ad3b5eb54a30c34'),
	('{ "note" : null, "items" : [ { "n" : 2.0, "sku" : "\u0061" } ], "amount" : 1e2 }', '6f463f570fa44599aed89bc532d06e8808075c5ed3455ca22ad3b5eb54a30c34'),
	('{"b":1,"aa":2}', 'fb6bb959b74f6991bd11ad848901b5795901f6c2afac3b77fd36c13b4dbb54e6'),
	('{"a":{"b":{"c":[true,false,null]}}}', 'e525ee00a6568f64dad4298cc0131d4b5b8e211be457a14c88f0a4e515292e63');
SELECT count(*) FROM vector, idem_begin_request('request', 'vector', request::text, request);
SELECT request, encode(fingerprint, 'hex') AS digest FROM vector JOIN idem_request r ON tenant_id = 'request' AND scope = 'vector' AND key = request::text
WHERE encode(fingerprint, 'hex') <> digest OR fingerprint_version <> 1;
-- absent and null are not the same, nor are a string and a number, nor no request and null
SELECT count(*) FROM idem_begin_request('request', 'differ', 'absent', '{"a": 1}');
SELECT idem_begin_request('request', 'differ', 'absent', '{"a": 1, "b": null}');
SELECT idem_begin_request('request', 'differ', 'absent', '{"a": "1"}');
SELECT count(*) FROM idem_begin_request('request', 'differ', 'null', 'null');
SELECT idem_begin_request('request', 'differ', 'null');
SELECT outcome FROM idem_begin_request('request', 'differ', 'null', ' null ');
-- deep and wide
SELECT outcome FROM idem_begin_request('request', 'differ', 'deep', (repeat('[', 1000) || repeat(']', 1000))::jsonb);
SELECT outcome FROM idem_begin_request('request', 'differ', 'wide', (SELECT jsonb_object_agg(i, i) FROM generate_series(1, 10000) i));
SELECT outcome FROM idem_begin_request('request', 'differ', 'wide', (SELECT jsonb_object_agg(i, i + 0.0) FROM generate_series(10000, 1, -1) i));

--
-- 5 MB, stored out of line
--
CREATE TEMP TABLE big AS SELECT json_agg(md5(i::text))::text AS response FROM generate_series(1, 150000) i;
SELECT octet_length(response) > 5 * 1024 * 1024 AS five_megabytes FROM big;
SELECT outcome FROM idem_begin_request('request', 'shop', 'big');
SELECT c.outcome FROM big, idem_complete_request('request', 'shop', 'big', pg_temp.current('big'), response::json) c;
SELECT c.outcome FROM big, idem_complete_request('request', 'shop', 'big', pg_temp.current('big'), response::json) c;
SELECT b.outcome, b.response::text = big.response AS equal FROM big, idem_begin_request('request', 'shop', 'big') b;
SELECT idem_complete_request('request', 'shop', 'big', pg_temp.current('big'), '1');

--
-- Names: another tenant, another scope, every length
--
SELECT b.outcome FROM unnest(ARRAY['request', 'request_2']) t, unnest(ARRAY['a', 'b']) s, idem_begin_request(t, s, 'k', to_jsonb(t || s)) b;
SELECT count(*) FROM idem_request WHERE key = 'k' AND scope IN ('a', 'b');
-- where one name ends and the next begins
SELECT b.outcome FROM (VALUES ('ab', 'c'), ('a', 'bc')) v (s, k), idem_begin_request('request', s, k, to_jsonb(s)) b;
SELECT octet_length(k), b.outcome FROM unnest(ARRAY['k', repeat('k', 255), repeat('é', 127) || 'k']) k, idem_begin_request('request', k, k) b;
SELECT octet_length(k), b.outcome FROM unnest(ARRAY['k', repeat('k', 255), repeat('é', 127) || 'k']) k, idem_begin_request('request', k, k) b;

--
-- Nonsense
--
\set VERBOSITY sqlstate
SELECT idem_begin_request('', 's', 'k');
SELECT idem_begin_request('request', '', 'k');
SELECT idem_begin_request('request', 's', '');
SELECT idem_begin_request('request', 's', repeat('k', 256));
SELECT idem_begin_request('request', repeat('é', 128), 'k');
SELECT idem_begin_request('request', 's', NULL);
SELECT idem_begin_request('request', NULL, 'k');
SELECT idem_begin_request('request', 's', 'k', worker => '');
SELECT idem_begin_request('request', 's', 'k', worker => repeat('w', 256));
SELECT idem_begin_request('request', 's', 'k', on_expiry => 'perhaps');
SELECT idem_begin_request('request', 's', 'k', on_expiry => NULL);
SELECT idem_begin_request('request', 's', 'k', lease => '0');
SELECT idem_begin_request('request', 's', 'k', lease => '-1 second');
SELECT idem_begin_request('request', 's', 'k', lease => '1 month -31 days');
SELECT idem_begin_request('request', 's', 'k', lease => '178000000 years');
SELECT idem_begin_request('request', 's', 'k', lease => '-178000000 years');
SELECT idem_begin_request('request', 's', 'k', lease => NULL);
SELECT idem_begin_request('request', 's', 'k', ttl => '0');
SELECT idem_begin_request('request', 's', 'k', ttl => '-1 second');
SELECT idem_begin_request('request', 's', 'k', ttl => '178000000 years');
SELECT idem_begin_request('request', 's', 'k', ttl => NULL);
SELECT idem_begin_request('request', 's', 'k', wait => '-1 second');
-- for ever: the literal came with 17
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000 THEN 'infinity' ELSE '178000000 years' END AS ever \gset
SELECT idem_begin_request('request', 's', 'k', lease => :'ever');
SELECT idem_begin_request('request', 's', 'k', ttl => :'ever');
SELECT idem_begin_request('request', 's', 'k', lease => -:'ever'::interval);
SELECT idem_renew_request('request', 'shop', 'long', 1, :'ever');
SELECT idem_checkpoint_request('request', 'shop', 'long', NULL, 'p');
SELECT idem_checkpoint_request('request', 'shop', 'long', 1, NULL);
SELECT idem_checkpoint_request('request', 'shop', 'long', 1, '');
SELECT idem_renew_request('request', 'shop', 'long', NULL, '1 second');
SELECT idem_renew_request('request', 'shop', 'long', 1, NULL);
SELECT idem_renew_request('request', 'shop', 'long', 1, '0');
SELECT idem_renew_request('request', 'shop', 'long', 1, '178000000 years');
SELECT idem_complete_request('request', 'shop', 'long', NULL, '1');
SELECT idem_complete_request('request', 'shop', 'long', 1, '1', NULL);
SELECT idem_fail_request('request', 'shop', 'long', NULL);
SELECT idem_fail_request('request', 'shop', 'long', 1, retryable => NULL);
SELECT idem_resolve_request('request', 'shop', 'long', NULL);
SELECT idem_resolve_request('request', 'shop', 'long', 'perhaps');
SELECT idem_complete_request('request', 'shop', 'nowhere', 1, '1');
SELECT idem_sweep(0);
SELECT idem_sweep(-1);
SELECT idem_sweep(NULL);
-- raw SQL: the key stays
UPDATE idem_request SET key = 'x' WHERE tenant_id = 'request' AND key = 'long';
UPDATE idem_request SET scope = 'x' WHERE tenant_id = 'request' AND key = 'long';
UPDATE idem_request SET tenant_id = 'x' WHERE tenant_id = 'request' AND key = 'long';
-- nothing is written where that is forbidden, but a replay is read
BEGIN READ ONLY;
SELECT outcome FROM idem_begin_request('request', 'shop', 'long', '{}');
SELECT outcome FROM idem_begin_request('request', 'shop', 'new');
ROLLBACK;
\set VERBOSITY default

--
-- Sweep: what is finished and past its ttl, the oldest first, no more than asked for
--
DELETE FROM idem_request WHERE tenant_id LIKE 'request%';
SELECT count(*) FROM generate_series(1, 9) i, idem_begin_request('request', 'sweep', i::text);
SELECT count(*) FROM idem_request r, idem_complete_request('request', 'sweep', key, attempt, '1') c WHERE tenant_id = 'request' AND key < '5';
SELECT count(*) FROM idem_request r, idem_fail_request('request', 'sweep', key, attempt, retryable => key = '6') c WHERE tenant_id = 'request' AND key BETWEEN '5' AND '6';
UPDATE idem_request SET expires_at = now() - key::int * interval '1 minute' WHERE tenant_id = 'request' AND key <> '1';
SELECT * FROM idem_sweep(2);
SELECT key, status FROM idem_request WHERE tenant_id = 'request' ORDER BY key;
SELECT count FROM idem_sweep() WHERE what = 'requests';
SELECT count FROM idem_sweep() WHERE what = 'requests';
SELECT key, status FROM idem_request WHERE tenant_id = 'request' ORDER BY key;

SELECT * FROM idem_verify() WHERE tenant_id LIKE 'request%' OR tenant_id IS NULL;
