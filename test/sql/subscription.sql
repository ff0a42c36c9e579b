--
-- subscription: every subscription gets every event, in order per key.
--
SET client_min_messages = warning;

-- what a fetch hands out, and how far the subscription is
CREATE FUNCTION pg_temp.fetch(subscription text, worker text, max_events int DEFAULT 100, lease interval DEFAULT '1 minute')
	RETURNS TABLE (events text) LANGUAGE sql AS $$
	SELECT string_agg(aggregateid || coalesce(payload ->> 'n', '') || CASE WHEN attempt > 1 THEN ' again ' || attempt ELSE '' END, ', ' ORDER BY seq)
	FROM idem_fetch_events($1, $2, $3, $4) $$;
CREATE FUNCTION pg_temp.publish(key text, n int) RETURNS void LANGUAGE sql AS $$
	SELECT idem_publish('sub', 'thing', key, 'thing.made', jsonb_build_object('n', n)) $$;
-- the batch that a worker has
CREATE FUNCTION pg_temp.batch(s text, w text) RETURNS bigint LANGUAGE sql AS $$
	SELECT max(batch) FROM idem_position p WHERE subscription = s AND worker = w
	AND gen = (SELECT max(gen) FROM idem_position q WHERE q.subscription = s AND q.slot = p.slot) $$;
CREATE FUNCTION pg_temp.event(key text, n int) RETURNS uuid LANGUAGE sql AS $$
	SELECT id FROM idem_outbox WHERE tenant_id = 'sub' AND aggregateid = key AND (payload ->> 'n')::int = n $$;

--
-- subscribe
--
SELECT pg_temp.publish('early', 1);
SELECT outcome FROM idem_subscribe('mail', slots => 4);
SELECT outcome FROM idem_subscribe('mail', slots => 4);
SELECT outcome FROM idem_subscribe('ledger', types => '{thing.sold,thing.made}', slots => 1, start => 'beginning');
SELECT outcome FROM idem_subscribe('sales', types => '{thing.sold}');
\set VERBOSITY terse
SELECT outcome FROM idem_subscribe('mail', slots => 5);
SELECT outcome FROM idem_subscribe('mail', types => '{thing.sold}', slots => 4);
SELECT outcome FROM idem_subscribe('mail', slots => 4, start => 'beginning');
\set VERBOSITY default
SELECT outcome FROM idem_subscribe('mail', slots => 5);
\echo :LAST_ERROR_SQLSTATE
-- nonsense
\set VERBOSITY terse
SELECT outcome FROM idem_subscribe(NULL);
SELECT outcome FROM idem_subscribe('');
SELECT outcome FROM idem_subscribe('none', slots => 0);
SELECT outcome FROM idem_subscribe('none', slots => 65);
SELECT outcome FROM idem_subscribe('none', slots => NULL);
SELECT outcome FROM idem_subscribe('none', types => '{}');
SELECT outcome FROM idem_subscribe('none', types => '{a,NULL}');
SELECT outcome FROM idem_subscribe('none', start => 'yesterday');
SELECT outcome FROM idem_subscribe('none', start => NULL);
\set VERBOSITY default

--
-- fetch: what was committed since, or all of it; by type
--
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT * FROM pg_temp.fetch('ledger', 'w1');
SELECT pg_temp.publish('a', 1), pg_temp.publish('a', 2), pg_temp.publish('b', 1);
SELECT idem_publish('sub', 'thing', 'a', 'thing.sold', '{"n": 3}') IS NOT NULL AS published;
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT * FROM pg_temp.fetch('sales', 'w1');
-- the same worker again: the same batch; another one: nothing
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT * FROM pg_temp.fetch('mail', 'w2');
-- what comes meanwhile is not in it
SELECT pg_temp.publish('a', 4);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT * FROM pg_temp.fetch('mail', 'w2');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w2'));
SELECT * FROM pg_temp.fetch('mail', 'w2');
-- a rolled back one is not told, one behind a savepoint is
BEGIN;
SELECT pg_temp.publish('a', 5);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT pg_temp.publish('a', 6);
ROLLBACK TO s;
SELECT pg_temp.publish('a', 7);
RELEASE s;
COMMIT;
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
-- fetched, acknowledged and published in one transaction: nothing is lost
BEGIN;
SELECT pg_temp.publish('a', 8);
SELECT * FROM pg_temp.fetch('mail', 'w1');
COMMIT;
SELECT * FROM pg_temp.fetch('mail', 'w1');
BEGIN;
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT pg_temp.publish('a', 9);
SELECT * FROM pg_temp.fetch('mail', 'w1');
COMMIT;
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
-- bounded, and in order
SELECT outcome FROM idem_ack_events('ledger', pg_temp.batch('ledger', 'w1'));
SELECT * FROM pg_temp.fetch('ledger', 'w1', 3);
SELECT outcome FROM idem_ack_events('ledger', pg_temp.batch('ledger', 'w1'));
SELECT * FROM pg_temp.fetch('ledger', 'w1', 3);
SELECT outcome FROM idem_ack_events('ledger', pg_temp.batch('ledger', 'w1'));
SELECT * FROM pg_temp.fetch('ledger', 'w1', 3);
SELECT outcome FROM idem_ack_events('ledger', pg_temp.batch('ledger', 'w1'));
SELECT * FROM pg_temp.fetch('ledger', 'w1', 3);
-- by bytes too, but one at least
SELECT count(idem_publish('sub', 'thing', 'big', 'thing.made', to_jsonb(repeat('x', 3000000)))) FROM generate_series(1, 4);
SELECT count(*), sum(octet_length(payload #>> '{}')) FROM idem_fetch_events('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT count(*) FROM idem_fetch_events('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
-- nonsense
\set VERBOSITY terse
SELECT * FROM idem_fetch_events('nobody', 'w1');
SELECT * FROM idem_fetch_events(NULL, 'w1');
SELECT * FROM idem_fetch_events('mail', NULL);
SELECT * FROM idem_fetch_events('mail', '');
SELECT * FROM idem_fetch_events('mail', 'w1', 0);
SELECT * FROM idem_fetch_events('mail', 'w1', 10001);
SELECT * FROM idem_fetch_events('mail', 'w1', NULL);
SELECT * FROM idem_fetch_events('mail', 'w1', lease => '0');
SELECT * FROM idem_fetch_events('mail', 'w1', lease => NULL);
\set VERBOSITY default

--
-- ack
--
SELECT pg_temp.publish('c', 1);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT outcome FROM idem_ack_events('mail', :batch);
SELECT outcome FROM idem_ack_events('mail', :batch);
-- the lease is over: nobody else was given it
SELECT pg_temp.publish('c', 2);
SELECT * FROM pg_temp.fetch('mail', 'w1', 100, '1 microsecond');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT outcome FROM idem_ack_events('mail', :batch);
-- somebody else was
SELECT pg_temp.publish('c', 3);
SELECT * FROM pg_temp.fetch('mail', 'w1', 100, '1 microsecond');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT * FROM pg_temp.fetch('mail', 'w2');
SELECT pg_temp.batch('mail', 'w2') AS batch2 \gset
\set VERBOSITY terse
SELECT outcome FROM idem_ack_events('mail', :batch);
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_ack_events('mail', 0);
SELECT outcome FROM idem_ack_events('nobody', 1);
SELECT outcome FROM idem_ack_events('mail', NULL);
\set VERBOSITY default
SELECT outcome FROM idem_ack_events('mail', :batch2);

--
-- retry: the event, and what follows it in its key, wait; others flow
--
SELECT pg_temp.publish('x', 1), pg_temp.publish('x', 2), pg_temp.publish('y', 1), pg_temp.publish('x', 3);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT outcome, attempts, next_at > clock_timestamp() AS later FROM idem_retry_event('mail', :batch, pg_temp.event('x', 1), 'no such address', '1 hour');
SELECT outcome FROM idem_retry_event('mail', :batch, pg_temp.event('x', 1), 'no such address', '1 hour');
SELECT aggregateid, payload ->> 'n' AS n, attempts, next_at IS NOT NULL AS first, error FROM idem_parked_event ORDER BY seq;
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', :batch);
-- what comes later waits behind it
SELECT pg_temp.publish('x', 4), pg_temp.publish('y', 2);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT aggregateid, payload ->> 'n' AS n FROM idem_parked_event ORDER BY seq;
SELECT events_behind, parked, retrying, dead, why FROM idem_outbox_lag WHERE subscription = 'mail';
-- its time has come
UPDATE idem_parked_event SET next_at = clock_timestamp() WHERE next_at IS NOT NULL;
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT parked, retrying FROM idem_outbox_lag WHERE subscription = 'mail';
-- it fails again: nothing of its key was done
SELECT outcome, attempts FROM idem_retry_event('mail', :batch, pg_temp.event('x', 1), 'still no such address', '0');
SELECT outcome FROM idem_ack_events('mail', :batch);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
-- the second one fails, the first is done
SELECT outcome, attempts FROM idem_retry_event('mail', :batch, pg_temp.event('x', 2), 'odd', '0');
SELECT outcome FROM idem_ack_events('mail', :batch);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT count(*) FROM idem_parked_event;
-- all failed, and the worker asks again without having acknowledged
SELECT pg_temp.publish('x', 5);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_retry_event('mail', pg_temp.batch('mail', 'w1'), pg_temp.event('x', 5), 'odd', '1 hour');
SELECT * FROM pg_temp.fetch('mail', 'w1');
-- by itself, later each time
UPDATE idem_parked_event SET next_at = clock_timestamp();
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome, attempts, next_at - clock_timestamp() BETWEEN '1 s' AND '3 s' AS two_seconds
FROM idem_retry_event('mail', pg_temp.batch('mail', 'w1'), pg_temp.event('x', 5), 'odd');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));

--
-- dead: given up, and its key goes on
--
SET idem.max_attempts = 3;
SELECT pg_temp.publish('x', 6);
UPDATE idem_parked_event SET next_at = clock_timestamp();
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome, attempts, next_at FROM idem_retry_event('mail', pg_temp.batch('mail', 'w1'), pg_temp.event('x', 5), 'odd');
SELECT outcome FROM idem_retry_event('mail', pg_temp.batch('mail', 'w1'), pg_temp.event('x', 5), 'odd');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
SELECT aggregateid, payload ->> 'n' AS n, attempts, error FROM idem_dead_event;
SELECT parked, dead, why FROM idem_outbox_lag WHERE subscription = 'mail';
SELECT outcome FROM idem_redrive_event('mail', pg_temp.event('x', 5));
SELECT outcome FROM idem_redrive_event('mail', pg_temp.event('x', 5));
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w1'));
\set VERBOSITY terse
SELECT outcome FROM idem_redrive_event('mail', '00000000-0000-7000-8000-000000000000');
SELECT outcome FROM idem_redrive_event('nobody', '00000000-0000-7000-8000-000000000000');
SELECT outcome FROM idem_redrive_event('mail', NULL);
SELECT outcome FROM idem_retry_event('mail', 0, '00000000-0000-7000-8000-000000000000', 'e');
SELECT pg_temp.publish('z', 1);
SELECT * FROM pg_temp.fetch('mail', 'w1');
SELECT pg_temp.batch('mail', 'w1') AS batch \gset
SELECT outcome FROM idem_retry_event('mail', :batch, NULL, 'e');
SELECT outcome FROM idem_retry_event('mail', :batch, pg_temp.event('z', 1), NULL);
SELECT outcome FROM idem_retry_event('mail', :batch, pg_temp.event('z', 1), 'e', '-1 s');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_retry_event('mail', :batch, pg_temp.event('c', 1), 'e');
\set VERBOSITY default
SELECT outcome FROM idem_ack_events('mail', :batch);

--
-- one that kills its workers: the batch is halved until it stands alone
--
SELECT pg_temp.publish('k', i) FROM generate_series(1, 8) AS i;
SELECT * FROM pg_temp.fetch('mail', 'w1', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('mail', 'w2', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('mail', 'w3', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('mail', 'w4', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('mail', 'w5', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('mail', 'w6', 8, '1 minute');
SELECT aggregateid, payload ->> 'n' AS n, attempts, error FROM idem_dead_event;
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w6'));
SELECT * FROM pg_temp.fetch('mail', 'w6', 8);
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w6'));
SELECT * FROM pg_temp.fetch('mail', 'w6', 8);
SELECT outcome FROM idem_ack_events('mail', pg_temp.batch('mail', 'w6'));
SELECT * FROM pg_temp.fetch('mail', 'w6', 8);
-- nothing behind it: it is not out any more all the same
SELECT outcome FROM idem_subscribe('last', types => '{thing.last}', slots => 1);
SELECT idem_publish('sub', 'thing', 'last', 'thing.last', '{}') IS NOT NULL AS published;
SELECT count(*) FROM generate_series(1, 4) AS i, LATERAL (SELECT count(*) FROM pg_temp.fetch('last', 'w' || i, 8, '1 microsecond')) AS f;
SELECT leased_slots, dead, why FROM idem_outbox_lag WHERE subscription = 'last';
-- one that has failed, and kills them later: innocent ones are not taken along
SELECT idem_publish('sub', 'thing', key, 'thing.last', jsonb_build_object('n', n)) IS NOT NULL AS published FROM (VALUES ('bad', 1), ('bad', 2), ('good', 1)) AS v (key, n);
SELECT * FROM pg_temp.fetch('last', 'w1');
SELECT outcome, attempts FROM idem_retry_event('last', pg_temp.batch('last', 'w1'), pg_temp.event('bad', 1), 'odd', '0');
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w1'));
SELECT idem_publish('sub', 'thing', 'good', 'thing.last', jsonb_build_object('n', n)) IS NOT NULL AS published FROM generate_series(2, 3) AS n;
SELECT * FROM pg_temp.fetch('last', 'w1', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('last', 'w2', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('last', 'w3', 8, '1 microsecond');
SELECT * FROM pg_temp.fetch('last', 'w4', 8, '1 microsecond');
SELECT aggregateid, payload ->> 'n' AS n, attempts, error FROM idem_dead_event WHERE subscription = 'last' ORDER BY seq;
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w4'));
SELECT * FROM pg_temp.fetch('last', 'w5', 8);
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w5'));
RESET idem.max_attempts;
-- what is taken over is no more than what is asked for
SELECT idem_publish('sub', 'thing', 'many', 'thing.last', jsonb_build_object('n', n)) IS NOT NULL AS published FROM generate_series(1, 5) AS n;
SELECT * FROM pg_temp.fetch('last', 'w1', 5, '1 microsecond');
SELECT * FROM pg_temp.fetch('last', 'w2', 2);
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w2'));
SELECT * FROM pg_temp.fetch('last', 'w2');
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w2'));
-- one is redriven while another one of its key waits: each comes once, the second at its time
SELECT idem_publish('sub', 'thing', 'bad', 'thing.last', jsonb_build_object('n', n)) IS NOT NULL AS published FROM generate_series(3, 4) AS n;
SELECT * FROM pg_temp.fetch('last', 'w1');
SELECT outcome FROM idem_retry_event('last', pg_temp.batch('last', 'w1'), pg_temp.event('bad', 3), 'odd', '1 hour');
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w1'));
SELECT outcome FROM idem_redrive_event('last', pg_temp.event('bad', 1));
SELECT * FROM pg_temp.fetch('last', 'w1');
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w1'));
SELECT outcome FROM idem_redrive_event('last', (SELECT id FROM idem_dead_event WHERE subscription = 'last'));
UPDATE idem_parked_event SET next_at = clock_timestamp() WHERE subscription = 'last' AND next_at IS NOT NULL;
SELECT * FROM pg_temp.fetch('last', 'w1');
SELECT outcome FROM idem_ack_events('last', pg_temp.batch('last', 'w1'));
SELECT outcome FROM idem_unsubscribe('last');

--
-- a batch goes on where its window ends: it is handed out again, halved, acknowledged and fails as a whole
--
CREATE FUNCTION pg_temp.far(key text, n int) RETURNS boolean LANGUAGE sql AS $$
	SELECT idem_publish('sub', 'thing', key, 'thing.far', jsonb_build_object('n', n)) IS NOT NULL $$;
CREATE FUNCTION pg_temp.reaches() RETURNS boolean LANGUAGE sql AS $$
	SELECT next IS NOT NULL FROM idem_position WHERE subscription = 'far' ORDER BY gen DESC LIMIT 1 $$;
SELECT outcome FROM idem_subscribe('far', types => '{thing.far}', slots => 1);
SELECT pg_temp.far('fa', 1), pg_temp.far('fb', 1), pg_temp.far('fa', 2);
SELECT events, pg_temp.reaches() FROM pg_temp.fetch('far', 'w1', 2);
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w1'));
SELECT pg_temp.far('fa', 3), pg_temp.far('fb', 2), pg_temp.far('fc', 1);
SELECT * FROM pg_temp.fetch('far', 'w1', 10, '1 microsecond');
SELECT pg_temp.reaches();
SELECT pg_temp.far('fa', 4);
SELECT * FROM pg_temp.fetch('far', 'w2', 10, '1 microsecond');
SELECT pg_temp.reaches();
-- the third time a half of it, of which some is beyond, and then none
SELECT * FROM pg_temp.fetch('far', 'w3', 10, '1 microsecond');
SELECT pg_temp.reaches();
SELECT * FROM pg_temp.fetch('far', 'w4', 10);
SELECT pg_temp.reaches();
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w4'));
SELECT * FROM pg_temp.fetch('far', 'w4', 10);
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w4'));
SELECT * FROM pg_temp.fetch('far', 'w4', 10);
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w4'));
-- taken over in parts, as much as there is room for
SELECT pg_temp.far('fa', n) FROM generate_series(5, 8) AS n;
SELECT * FROM pg_temp.fetch('far', 'w1', 2);
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w1'));
SELECT pg_temp.far('fa', n) FROM generate_series(9, 11) AS n;
SELECT * FROM pg_temp.fetch('far', 'w1', 10, '1 microsecond');
SELECT * FROM pg_temp.fetch('far', 'w2', 3, '1 microsecond');
SELECT pg_temp.reaches();
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w2'));
SELECT * FROM pg_temp.fetch('far', 'w2', 1);
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w2'));
SELECT pg_temp.far('fb', 3), pg_temp.far('fa', 12);
-- one fails beyond; then one before, with what follows it beyond; the same worker asks again
SELECT * FROM pg_temp.fetch('far', 'w1');
SELECT pg_temp.reaches();
SELECT pg_temp.batch('far', 'w1') AS batch \gset
SELECT outcome, attempts FROM idem_retry_event('far', :batch, pg_temp.event('fb', 3), 'odd', '1 hour');
SELECT * FROM pg_temp.fetch('far', 'w1');
SELECT pg_temp.reaches();
SELECT outcome FROM idem_retry_event('far', :batch, pg_temp.event('fa', 11), 'odd', '1 hour');
SELECT * FROM pg_temp.fetch('far', 'w1');
SELECT aggregateid, payload ->> 'n' AS n FROM idem_parked_event WHERE subscription = 'far' ORDER BY seq;
UPDATE idem_parked_event SET next_at = clock_timestamp() WHERE subscription = 'far' AND next_at IS NOT NULL;
SELECT * FROM pg_temp.fetch('far', 'w1');
SELECT outcome FROM idem_ack_events('far', pg_temp.batch('far', 'w1'));
SELECT events_behind, parked, dead, why FROM idem_outbox_lag WHERE subscription = 'far';
SELECT outcome FROM idem_unsubscribe('far');

-- no more bytes than a batch may have, over all slots
SELECT outcome FROM idem_subscribe('wide', types => '{thing.wide}', slots => 64);
SELECT count(idem_publish('sub', 'thing', i::text, 'thing.wide', to_jsonb(repeat('x', 3000000)))) FROM generate_series(1, 5) AS i;
SELECT count(*) FROM idem_fetch_events('wide', 'w1');
SELECT outcome FROM idem_ack_events('wide', pg_temp.batch('wide', 'w1'));
SELECT count(*) FROM idem_fetch_events('wide', 'w1');
SELECT outcome FROM idem_ack_events('wide', pg_temp.batch('wide', 'w1'));
SELECT count(*) FROM idem_fetch_events('wide', 'w1');
SELECT outcome FROM idem_unsubscribe('wide');

--
-- seek
--
SELECT pg_temp.publish('s', 1);
SELECT * FROM pg_temp.fetch('sales', 'w1');
SELECT outcome FROM idem_seek_subscription('sales', 'beginning');
SELECT * FROM pg_temp.fetch('sales', 'w1');
SELECT pg_temp.batch('sales', 'w1') AS batch \gset
SELECT outcome FROM idem_seek_subscription('sales', 'now');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_ack_events('sales', :batch);
\set VERBOSITY default
SELECT * FROM pg_temp.fetch('sales', 'w1');
SELECT outcome FROM idem_seek_subscription('sales', '2000-01-01');
SELECT * FROM pg_temp.fetch('sales', 'w1');
\set VERBOSITY terse
SELECT outcome FROM idem_seek_subscription('sales', 'soon');
SELECT outcome FROM idem_seek_subscription('sales', '9999-01-01');
SELECT outcome FROM idem_seek_subscription('sales', NULL);
SELECT outcome FROM idem_seek_subscription('nobody', 'now');
\set VERBOSITY default

-- moved back, a parked key begins again with what comes before the event that failed, which has its time
SELECT outcome FROM idem_subscribe('back', '{thing.back}', 1);
CREATE FUNCTION pg_temp.back(key text, n int) RETURNS uuid LANGUAGE sql AS $$
	SELECT idem_publish('sub', 'thing', key, 'thing.back', jsonb_build_object('n', n)) $$;
SELECT count(pg_temp.back('moved', n)) FROM generate_series(1, 2) AS n;
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_ack_events('back', pg_temp.batch('back', 'w1'));
SELECT pg_temp.back('moved', 3) IS NOT NULL AS published;
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_retry_event('back', pg_temp.batch('back', 'w1'), pg_temp.event('moved', 3), 'odd', '1 hour');
SELECT outcome FROM idem_ack_events('back', pg_temp.batch('back', 'w1'));
SELECT outcome FROM idem_seek_subscription('back', 'beginning');
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_ack_events('back', pg_temp.batch('back', 'w1'));
SELECT payload ->> 'n' AS n, next_at > clock_timestamp() AS later FROM idem_parked_event WHERE subscription = 'back';
-- moved while it is out: what followed an event that was given up comes again, too
SET idem.max_attempts = 2;
SELECT count(pg_temp.back('given', n)) FROM generate_series(1, 2) AS n;
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_retry_event('back', pg_temp.batch('back', 'w1'), pg_temp.event('given', 1), 'odd', '0');
SELECT outcome FROM idem_ack_events('back', pg_temp.batch('back', 'w1'));
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_retry_event('back', pg_temp.batch('back', 'w1'), pg_temp.event('given', 1), 'odd');
SELECT outcome FROM idem_seek_subscription('back', 'now');
SELECT * FROM pg_temp.fetch('back', 'w1');
SELECT outcome FROM idem_ack_events('back', pg_temp.batch('back', 'w1'));
RESET idem.max_attempts;
SELECT outcome FROM idem_unsubscribe('back');

--
-- wait: at once inside a block, and where there is something
--
BEGIN;
CALL idem_wait_events('mail', '1 hour');
COMMIT;
CALL idem_wait_events('mail', '0');
SELECT pg_temp.publish('w', 1);
CALL idem_wait_events('mail', '1 hour');
\set VERBOSITY terse
CALL idem_wait_events('nobody', '1 s');
CALL idem_wait_events('mail', NULL);
CALL idem_wait_events('mail', '-1 s');
CALL idem_wait_events('mail', '2 days');
\set VERBOSITY default

--
-- unsubscribe
--
SELECT outcome FROM idem_unsubscribe('mail');
SELECT outcome FROM idem_unsubscribe('mail');
SELECT outcome FROM idem_unsubscribe('ledger');
SELECT outcome FROM idem_unsubscribe('sales');
SELECT (SELECT count(*) FROM idem_position), (SELECT count(*) FROM idem_parked_event), (SELECT count(*) FROM idem_dead_event);

--
-- the log is closed
--
\set VERBOSITY terse
UPDATE idem_outbox SET type = 'thing.lost' WHERE tenant_id = 'sub';
DELETE FROM idem_outbox WHERE tenant_id = 'sub';
TRUNCATE idem_outbox_0;
SELECT idem_publish('sub', 'order', 'o1', 'order.paid', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_publish('sub', '', 'o1', 'x', '{}');
SELECT idem_publish('sub', 'thing', NULL, 'x', '{}');
SELECT idem_publish('sub', 'thing', 'a', repeat('x', 256), '{}');
SELECT idem_publish('sub', 'thing', 'a', 'x', NULL);
SELECT idem_publish('', 'thing', 'a', 'x', '{}');
\set VERBOSITY default
-- the slot of a key is for ever
SELECT DISTINCT aggregateid, slot FROM idem_outbox WHERE tenant_id = 'sub' AND aggregateid IN ('a', 'b', 'x', 'k') ORDER BY 1;
SELECT * FROM idem_verify() WHERE tenant_id = 'sub' OR tenant_id IS NULL;

--
-- rights: a relay reads events, and the view with operators and auditors
--
CREATE ROLE regress_idem_relay;
SELECT outcome FROM idem_allow('regress_idem_relay', 'relay');
SELECT has_table_privilege('regress_idem_relay', 'idem_outbox_lag', 'SELECT');
SET ROLE regress_idem_relay;
SELECT outcome FROM idem_subscribe('relayed', types => '{thing.relayed}', slots => 1);
CALL idem_wait_events('relayed', '0');
SELECT count(*) FROM idem_fetch_events('relayed', 'w1');
SELECT subscription, why FROM idem_outbox_lag WHERE subscription = 'relayed';
SELECT outcome FROM idem_unsubscribe('relayed');
SELECT count(*) FROM idem_outbox;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_relay', 'auditor');
SELECT outcome FROM idem_disallow('regress_idem_relay', 'relay');
SET ROLE regress_idem_relay;
SELECT count(*) FROM idem_outbox_lag WHERE subscription = 'relayed';
CALL idem_wait_events('relayed', '0');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_idem_relay', 'auditor');
SELECT has_table_privilege('regress_idem_relay', 'idem_outbox_lag', 'SELECT');
SELECT outcome FROM idem_allow('regress_idem_relay', 'operator');
SELECT has_table_privilege('regress_idem_relay', 'idem_outbox_lag', 'SELECT');
-- its rows are of all tenants
SELECT outcome FROM idem_disallow('regress_idem_relay', 'operator');
SELECT outcome FROM idem_allow('regress_idem_relay', 'auditor', 'sub');
SET ROLE regress_idem_relay;
\set VERBOSITY sqlstate
SELECT count(*) FROM idem_outbox_lag;
\set VERBOSITY default
RESET ROLE;
DELETE FROM idem_access WHERE role LIKE 'regress%';
DROP OWNED BY regress_idem_relay;
DROP ROLE regress_idem_relay;
