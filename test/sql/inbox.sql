--
-- inbox: a message takes effect once.
--
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm1');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm1');
-- another consumer, another tenant, another message
SELECT outcome FROM idem_accept_message('inbox', 'ledger', 'm1');
SELECT outcome FROM idem_accept_message('inbox-2', 'mailer', 'm1');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm2', 'digest-2');
-- parts do not run into each other
SELECT outcome FROM idem_accept_message('inbox', 'mailer m', '2');
-- the digest counts where both have one
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm2', 'digest-2');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm2');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm1', 'digest-1');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm2', 'digest-3');
\echo :LAST_ERROR_SQLSTATE
-- a rollback forgets it, to a savepoint as well
BEGIN;
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm3');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm3');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm3');
ROLLBACK TO s;
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm3');
COMMIT;
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm3');
-- in one statement
SELECT (idem_accept_message('inbox', 'mailer', 'm4')).outcome FROM generate_series(1, 3);
-- nonsense
\set VERBOSITY terse
SELECT outcome FROM idem_accept_message(NULL, 'mailer', 'm5');
SELECT outcome FROM idem_accept_message('inbox', NULL, 'm5');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', NULL);
SELECT outcome FROM idem_accept_message('inbox', '', 'm5');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', '');
SELECT outcome FROM idem_accept_message('inbox', 'mailer', repeat('m', 256));
SELECT outcome FROM idem_accept_message('inbox', 'mailer', 'm5', '');
\set VERBOSITY default
SELECT outcome FROM idem_accept_message('inbox', 'mailer', repeat('m', 255));
-- what was seen stays seen
\set VERBOSITY terse
UPDATE idem_inbox SET digest = 'other' WHERE tenant_id = 'inbox';
TRUNCATE idem_inbox;
\set VERBOSITY default
-- until it may be forgotten, which nothing may that could come again
SET idem.inbox_retention = 0;
SELECT outcome FROM idem_subscribe('inbox');
INSERT INTO idem_dead_event (subscription, seq, slot, id, tenant_id, aggregatetype, aggregateid, type, payload, created_at, attempts, dead_at)
VALUES ('inbox', 1, 0, '00000000-0000-7000-8000-000000000001', 'inbox', 'thing', 'a', 'thing.made', '{}', clock_timestamp() - interval '1 day', 10, clock_timestamp());
SELECT count FROM idem_sweep() WHERE what = 'messages';
DELETE FROM idem_dead_event WHERE subscription = 'inbox';
SELECT count FROM idem_sweep(2) WHERE what = 'messages';
SELECT count FROM idem_sweep() WHERE what = 'messages';
SELECT count(*) FROM idem_inbox;
SELECT outcome FROM idem_unsubscribe('inbox');
RESET idem.inbox_retention;
