--
-- key: numbers, and keys made of parts.
--

-- 19 digits at most, ascending, made of now; the node stands in the last ten bits.
SELECT idem_next_no() ~ '^[1-9][0-9]{0,18}$' AS digits, idem_next_no()::bigint < idem_next_no()::bigint AS ascending;
SELECT abs((idem_next_no()::bigint >> 10) - (extract(epoch FROM clock_timestamp() - timestamptz '2020-01-01 UTC') * 1e6)::bigint)
	< 60 * 1000000 AS of_now, idem_next_no()::bigint & 1023 AS node;
SET idem.node_id = 1023;
SELECT idem_next_no()::bigint & 1023 AS node;
RESET idem.node_id;
SELECT count(DISTINCT idem_next_no()) FROM generate_series(1, 10000);

-- They are not rolled back.
BEGIN;
SELECT idem_next_no() AS first \gset
SAVEPOINT s;
SELECT idem_next_no() AS second \gset
ROLLBACK TO s;
SELECT idem_next_no() AS third \gset
ROLLBACK;
SELECT idem_next_no() AS fourth \gset
SELECT :first < :second AND :second < :third AND :third < :fourth AS ascending;

-- A clock that goes back an hour: numbers go on from the last one.
SELECT setval('idem_number', last_value + 3600 * 1000000::bigint) AS ahead FROM idem_number \gset
SELECT pg_sleep(1.1) \g /dev/null
SELECT (idem_next_no()::bigint >> 10) - :ahead AS next;
SELECT (idem_next_no()::bigint >> 10) > :ahead + 1 AS later;

BEGIN READ ONLY;
SELECT idem_next_no();
ROLLBACK;

-- The end: refused, not begun again.
BEGIN;
SELECT last_value AS before FROM idem_number \gset
SELECT setval('idem_number', (1::bigint << 53) - 2) AS last \gset
SELECT pg_sleep(1.1) \g /dev/null
SELECT idem_next_no();
ROLLBACK;
SELECT setval('idem_number', :before - 3600 * 1000000::bigint) IS NOT NULL AS reset;

--
-- Keys made of parts
--

-- What the digest is of, and vectors that hold on every server.
SELECT idem_key('a', 'bc') = encode(sha256('idem_key 1\000' || '\x00000001'::bytea || 'a' || '\x00000002'::bytea || 'bc'), 'hex') AS as_documented;
SELECT idem_key('a', 'bc');
SELECT idem_key('ab', 'c');
SELECT idem_key('abc');
SELECT idem_key('');
SELECT idem_key('', '');
SELECT idem_key('acme', 'user-42', 'sku-7', '1');
SELECT idem_key('支付', 'é', E'\u20ac', '😀');
SELECT idem_key(repeat('x', 100000));
-- The array may be given whole, whatever its first index.
SELECT idem_key(VARIADIC ARRAY['a', 'bc']) = idem_key('a', 'bc') AS same, idem_key(VARIADIC '[5:6]={a,bc}') = idem_key('a', 'bc') AS same;
-- Parts that look alike when they are put together differ.
SELECT count(*), count(DISTINCT key) FROM (VALUES
	(idem_key('ab', 'c')), (idem_key('a', 'bc')), (idem_key('abc')), (idem_key('', 'abc')), (idem_key('abc', '')),
	(idem_key('a', 'b', 'c')), (idem_key('a,b', 'c')), (idem_key('a', 'b,c')), (idem_key(E'a\tb')), (idem_key('A', 'bc')),
	(idem_key('a', 'bc ')), (idem_key('')), (idem_key('', '')), (idem_key('NULL'))) AS keys (key);
-- It is a key.
SELECT octet_length(idem_key(repeat('x', 1000), 'y')) AS bytes;

SELECT idem_key(VARIADIC NULL::text[]);
SELECT idem_key('a', NULL);
SELECT idem_key(NULL);
SELECT idem_key(VARIADIC '{}'::text[]);
SELECT idem_key(VARIADIC '{{a,b},{c,d}}'::text[]);
