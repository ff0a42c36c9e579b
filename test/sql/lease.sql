--
-- lease: who may do a job, and until when.
--
\set SHOW_CONTEXT never

-- The first to come gets it, with a fence, for ttl from now.
SELECT outcome, fence, lease_until - clock_timestamp() BETWEEN interval '20 seconds' AND interval '30 seconds' AS half_a_minute, blocking_no
FROM idem_acquire_lease('lease', 'job', 'w1');
-- Its holder has the same fence again, for another ttl, longer or shorter.
SELECT outcome, fence, lease_until > clock_timestamp() + interval '59 minutes' AS an_hour, blocking_no
FROM idem_acquire_lease('lease', 'job', 'w1', '1 hour');
SELECT outcome, fence, lease_until < clock_timestamp() + interval '1 hour' AS shorter
FROM idem_acquire_lease('lease', 'job', 'w1', '10 minutes');
-- Another waits, and is told who holds it and until when, without a fence.
SELECT outcome, fence, lease_until > clock_timestamp() AS until, blocking_no
FROM idem_acquire_lease('lease', 'job', 'w2', wait => '0');
SELECT outcome, clock_timestamp() - statement_timestamp() >= interval '30 ms' AS waited
FROM idem_acquire_lease('lease', 'job', 'w2', wait => '30 ms');
SET idem.wait = '10ms';
SELECT outcome, fence, blocking_no FROM idem_acquire_lease('lease', 'job', 'w2');

-- Renewed, asserted, released; once more: the same, or nothing.
SELECT outcome, lease_until > clock_timestamp() + interval '59 minutes' AS an_hour FROM idem_renew_lease('lease', 'job', 1, '1 hour');
SELECT outcome, lease_until < clock_timestamp() + interval '1 minute' AS shorter FROM idem_renew_lease('lease', 'job', 1, '1 minute');
SELECT idem_assert_lease('lease', 'job', 1);
SELECT outcome FROM idem_release_lease('lease', 'job', 1);
SELECT outcome FROM idem_release_lease('lease', 'job', 1);
SELECT name, worker, fence, lease_until <= clock_timestamp() AS free FROM idem_lease WHERE tenant_id = 'lease';

-- Released is not held.
SELECT idem_renew_lease('lease', 'job', 1, '1 minute');
SELECT idem_assert_lease('lease', 'job', 1);

-- Whoever comes next gets a new fence, the same worker too.
SELECT outcome, fence FROM idem_acquire_lease('lease', 'job', 'w1');
SELECT outcome FROM idem_release_lease('lease', 'job', 2);
SELECT outcome, fence FROM idem_acquire_lease('lease', 'job', 'w2');

-- The old fences are good for nothing any more.
SELECT idem_renew_lease('lease', 'job', 2, '1 minute');
SELECT idem_assert_lease('lease', 'job', 2);
SELECT idem_release_lease('lease', 'job', 2);
-- nor is one that nobody had yet.
SELECT idem_assert_lease('lease', 'job', 4);
SELECT outcome, fence, blocking_no FROM idem_acquire_lease('lease', 'job', 'w1', wait => '0');

-- Past lease_until the holder holds on until somebody takes over.
UPDATE idem_lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE tenant_id = 'lease' AND name = 'job';
SELECT idem_assert_lease('lease', 'job', 3);
SELECT outcome, lease_until > clock_timestamp() AS again FROM idem_renew_lease('lease', 'job', 3, '1 minute');
UPDATE idem_lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE tenant_id = 'lease' AND name = 'job';
SELECT outcome, fence, lease_until > clock_timestamp() AS again FROM idem_acquire_lease('lease', 'job', 'w2');
UPDATE idem_lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE tenant_id = 'lease' AND name = 'job';
SELECT outcome, fence FROM idem_acquire_lease('lease', 'job', 'w3');
SELECT idem_assert_lease('lease', 'job', 3);
UPDATE idem_lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE tenant_id = 'lease' AND name = 'job';
SELECT outcome FROM idem_release_lease('lease', 'job', 4);
-- What was another's and is released is nobody's.
\set VERBOSITY sqlstate
SELECT idem_renew_lease('lease', 'job', 3, '1 minute');
SELECT idem_release_lease('lease', 'job', 3);
SELECT idem_assert_lease('lease', 'job', 3);
\set VERBOSITY default

-- It runs out while one waits for it.
SELECT outcome, fence FROM idem_acquire_lease('lease', 'short', 'w1', '50 ms');
SELECT outcome, fence FROM idem_acquire_lease('lease', 'short', 'w2', wait => '1 minute');
-- Waiting ends by statement_timeout.
SET statement_timeout = '50ms';
SELECT outcome, fence FROM idem_acquire_lease('lease', 'short', 'w3', wait => '1 hour');
RESET statement_timeout;

-- Another tenant's lease of that name is another lease.
SELECT outcome, fence FROM idem_acquire_lease('lease2', 'job', 'w1');
SELECT idem_assert_lease('lease2', 'job', 1);

-- All in one statement, and in one transaction.
SELECT a.outcome, a.fence, r.outcome, f.outcome, b.outcome, b.fence
FROM idem_acquire_lease('lease', 'chain', 'w1') a,
	idem_renew_lease('lease', 'chain', a.fence, '1 hour') r,
	idem_release_lease('lease', 'chain', a.fence) f,
	idem_acquire_lease('lease', 'chain', CASE f.outcome WHEN 'released' THEN 'w2' END) b;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, fence FROM idem_acquire_lease('lease', 'one', 'w1');
SELECT idem_assert_lease('lease', 'one', 1);
SELECT outcome FROM idem_renew_lease('lease', 'one', 1, '1 hour');
SELECT idem_assert_lease('lease', 'one', 1);
SELECT outcome FROM idem_release_lease('lease', 'one', 1);
SELECT outcome, fence FROM idem_acquire_lease('lease', 'one', 'w2');
SELECT idem_assert_lease('lease', 'one', 2);
COMMIT;

-- Rolled back, it was never given.
BEGIN;
SELECT outcome, fence FROM idem_acquire_lease('lease', 'undone', 'w1');
SAVEPOINT s;
SELECT outcome FROM idem_release_lease('lease', 'undone', 1);
ROLLBACK TO s;
SELECT idem_assert_lease('lease', 'undone', 1);
ROLLBACK;
SELECT idem_assert_lease('lease', 'undone', 1);

-- An assertion holds a lock to the end and writes nothing; whoever is told
-- "busy" or "duplicate" does not even that.
SELECT outcome, fence FROM idem_acquire_lease('lease', 'quiet', 'w1', '1 hour');
BEGIN READ ONLY;
SELECT idem_assert_lease('lease', 'quiet', 1);
SELECT idem_assert_lease('lease', 'quiet', 1);
SELECT mode, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' GROUP BY mode;
COMMIT;
BEGIN;
SELECT outcome FROM idem_acquire_lease('lease', 'quiet', 'w2', wait => '0');
SELECT outcome FROM idem_release_lease('lease', 'job', 4);
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
BEGIN READ ONLY;
SELECT outcome FROM idem_acquire_lease('lease', 'quiet', 'w1');
ROLLBACK;

-- As far as it goes: 1 byte, 255 bytes, characters of several bytes; the greatest ttl.
SELECT n, a.outcome, a.fence, r.outcome, f.outcome
FROM unnest(ARRAY['x', repeat('x', 255), repeat('锁', 85), E'a''b"c\\d\n']) WITH ORDINALITY AS u (name, n),
	idem_acquire_lease('lease', name, name, '100 years') a,
	idem_renew_lease('lease', name, a.fence, '1 microsecond') r,
	idem_release_lease('lease', name, a.fence) f
ORDER BY n;

--
-- Nonsense
--
\set VERBOSITY sqlstate
SELECT idem_acquire_lease(NULL, 'x', 'w');
SELECT idem_acquire_lease('', 'x', 'w');
SELECT idem_acquire_lease('lease', NULL, 'w');
SELECT idem_acquire_lease('lease', '', 'w');
SELECT idem_acquire_lease('lease', repeat('x', 256), 'w');
SELECT idem_acquire_lease('lease', repeat('锁', 86), 'w');
SELECT idem_acquire_lease('lease', 'x', NULL);
SELECT idem_acquire_lease('lease', 'x', '');
SELECT idem_acquire_lease('lease', 'x', repeat('x', 256));
SELECT idem_acquire_lease('lease', 'x', 'w', NULL);
SELECT idem_acquire_lease('lease', 'x', 'w', '0');
SELECT idem_acquire_lease('lease', 'x', 'w', '-1 second');
SELECT idem_acquire_lease('lease', 'x', 'w', '100 years 1 day');
SELECT idem_acquire_lease('lease', 'x', 'w', '178000000 years');
SELECT idem_acquire_lease('lease', 'x', 'w', wait => '-1 second');
SELECT idem_renew_lease('lease', NULL, 1, '1 minute');
SELECT idem_renew_lease('lease', 'job', NULL, '1 minute');
SELECT idem_renew_lease('lease', 'job', 4, NULL);
SELECT idem_renew_lease('lease', 'job', 4, '0');
SELECT idem_renew_lease('lease', 'job', 4, '-1 second');
SELECT idem_renew_lease('lease', 'job', 4, '101 years');
SELECT idem_release_lease('lease', '', 1);
SELECT idem_release_lease('lease', 'job', NULL);
SELECT idem_assert_lease('lease', NULL, 1);
SELECT idem_assert_lease('lease', 'job', NULL);
-- never there
SELECT idem_renew_lease('lease', 'nowhere', 1, '1 minute');
SELECT idem_release_lease('lease', 'nowhere', 1);
SELECT idem_assert_lease('lease', 'nowhere', 1);
\set VERBOSITY default
SELECT idem_assert_lease('lease', 'nowhere', 1);
SELECT idem_renew_lease('lease', 'job', 4, '0');

--
-- Rights: client, for the tenant
--
CREATE ROLE regress_lease;
SELECT outcome FROM idem_allow('regress_lease', 'client', 'lease2');
SET ROLE regress_lease;
SELECT outcome, fence FROM idem_acquire_lease('lease2', 'job', 'w1');
SELECT idem_assert_lease('lease2', 'job', 1);
SELECT outcome FROM idem_acquire_lease('lease', 'job', 'w1');
SELECT idem_assert_lease('lease', 'job', 4);
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_lease', 'client', 'lease2');
DROP OWNED BY regress_lease;
DROP ROLE regress_lease;

--
-- The table guards itself.
--
UPDATE idem_lease SET fence = fence - 1 WHERE tenant_id = 'lease2';
UPDATE idem_lease SET name = 'other' WHERE tenant_id = 'lease2';
UPDATE idem_lease SET tenant_id = 'other' WHERE tenant_id = 'lease2';
DELETE FROM idem_lease WHERE tenant_id = 'lease2';
TRUNCATE idem_lease;
-- An operator ends a lease by hand: the next one has another fence.
UPDATE idem_lease SET fence = fence + 10, worker = NULL WHERE tenant_id = 'lease2';
SELECT outcome, fence FROM idem_acquire_lease('lease2', 'job', 'w1');
SELECT * FROM idem_verify() WHERE tenant_id IN ('lease', 'lease2') OR entity IN ('table', 'index');

-- Renewing stays in its page, and what it leaves behind is cleared away there.
SELECT outcome, fence FROM idem_acquire_lease('lease', 'beat', 'w1');
SELECT pg_relation_size('idem_lease_pkey') AS index_size, pg_relation_size('idem_lease') AS table_size \gset
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		PERFORM idem_renew_lease('lease', 'beat', 1, '1 minute');
		COMMIT;
	END LOOP;
END $$;
SELECT pg_relation_size('idem_lease_pkey') = :index_size AS same_index, pg_relation_size('idem_lease') < :table_size + 100000 AS same_table;
