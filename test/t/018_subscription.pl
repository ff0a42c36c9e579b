# Subscriptions get what was committed, all of it and nothing else, in order per
# key: whatever the order of commits, with savepoints, rollbacks and prepared
# transactions; beside transactions that stay open; out of one huge transaction;
# after a crash without synchronous commit, on a promoted standby, in a
# restored database; and the log is emptied while somebody holds a snapshot.
#
# IDEM_ROUNDS: transactions of each of the 32 writers (40).

use strict;
use warnings;

use IdemTest;
use Test::More;

my $rounds = $ENV{IDEM_ROUNDS} || 40;

my $node = new_cluster('subscription', 'max_prepared_transactions = 40', 'max_connections = 80',
	"wal_level = replica", 'max_wal_senders = 4', 'hot_standby = on');
$node->safe_psql('postgres', 'CREATE EXTENSION idem; CREATE DATABASE elsewhere');

# ---- order of commits ------------------------------------------------------------

# Each transaction takes turns at some keys, whose value tells the order of the
# turns, and says so.  What it has said stands in "said" if and only if it was committed.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE thing (key text PRIMARY KEY, turn bigint NOT NULL);
INSERT INTO thing SELECT i, 0 FROM generate_series(1, 40) AS i;
CREATE TABLE said (key text, turn bigint);
CREATE TABLE heard (key text, turn bigint, worker int, at bigserial);
SELECT outcome FROM idem_subscribe('all', types => '{thing.turned}', slots => 8);
SELECT outcome FROM idem_subscribe('rare', types => '{thing.rare}', slots => 1);
SELECT outcome FROM idem_subscribe('slow', types => '{thing.turned}', slots => 2);
CREATE FUNCTION turn(which int) RETURNS void LANGUAGE sql AS $$
	WITH t AS (UPDATE thing SET turn = turn + 1 WHERE key = which::text RETURNING key, turn),
	s AS (INSERT INTO said SELECT key, turn FROM t)
	SELECT idem_publish('t', 'thing', key, 'thing.turned', jsonb_build_object('turn', turn)) FROM t $$;
CREATE FUNCTION hear(subscription text, worker int, many int) RETURNS bigint LANGUAGE sql AS $$
	WITH f AS MATERIALIZED (SELECT * FROM idem_fetch_events(subscription, worker::text, many, '10 s')),
	h AS (INSERT INTO heard (key, turn, worker) SELECT aggregateid, (payload ->> 'turn')::bigint, worker FROM f ORDER BY seq)
	SELECT coalesce(max(batch), 0) FROM f $$;
SQL

my $directory = temporary_directory();
my $writer = write_file("$directory/writer.sql", <<'PGBENCH');
\set a random(1, 20)
\set b random(21, 40)
\set how random(1, 10)
\set g random(1, 1000000000)
BEGIN;
SELECT pg_current_xact_id();
SELECT turn(:a);
SAVEPOINT s;
SELECT turn(:b);
\if :how <= 3
ROLLBACK TO s;
\elif :how <= 6
RELEASE s;
\endif
\if :how = 10
ROLLBACK;
\elif :how = 9
PREPARE TRANSACTION 'g:client_id-:g';
COMMIT PREPARED 'g:client_id-:g';
\elif :how = 8
PREPARE TRANSACTION 'g:client_id-:g';
ROLLBACK PREPARED 'g:client_id-:g';
\else
COMMIT;
\endif
PGBENCH

# Effect and acknowledgement are one transaction; one in ten dies before it.
my $reader = write_file("$directory/reader.sql", <<'PGBENCH');
\set how random(1, 10)
BEGIN;
SELECT hear('all', :client_id, :how * :how) AS batch \gset
\if :how = 1
ROLLBACK;
\else
SELECT outcome FROM idem_ack_events('all', :batch) WHERE :batch > 0;
COMMIT;
\endif
PGBENCH

sub reader_until_done
{
	my ($subscription, $worker) = @_;
	my $batch;
	do
	{
		$batch = $node->safe_psql('postgres', "SELECT hear('$subscription', $worker, 1000)");
		$node->safe_psql('postgres', "SELECT outcome FROM idem_ack_events('$subscription', $batch)") if $batch;
	} while ($batch);
	return;
}

my @connection = ('-h', $node->host, '-p', $node->port, 'postgres');
my $writers = begin_program('pgbench', '-n', '-f', $writer, '-c', 32, '-j', 2, '-t', $rounds, @connection);
my $readers = begin_program('pgbench', '-n', '-f', $reader, '-c', 4, '-j', 1, '-t', $rounds * 10, @connection);
is(end_program($writers), 0, '32 writers take turns, roll back, prepare');
is(end_program($readers), 0, '4 workers hear of it meanwhile');
reader_until_done('all', 99);

my $said = $node->safe_psql('postgres', 'SELECT count(*) FROM said');
cmp_ok($said, '>', 10 * $rounds, "$said things were said");
is($node->safe_psql('postgres', <<'SQL'), '0|0', 'each was heard exactly once, and nothing else');
SELECT (SELECT count(*) FROM (SELECT key, turn FROM said EXCEPT ALL SELECT key, turn FROM heard) AS lost),
	(SELECT count(*) FROM (SELECT key, turn FROM heard EXCEPT ALL SELECT key, turn FROM said) AS made_up)
SQL
is($node->safe_psql('postgres', <<'SQL'), '0', 'in the order of the turns');
SELECT count(*) FROM (SELECT turn, lag(turn) OVER (PARTITION BY key ORDER BY at) AS before FROM heard) AS h WHERE turn <= before
SQL

# another subscription has its own pace
$node->safe_psql('postgres', 'TRUNCATE heard');
reader_until_done('slow', 1);
is($node->safe_psql('postgres', <<'SQL'), '0', 'who reads later hears the same');
SELECT count(*) FROM (SELECT key, turn FROM said EXCEPT ALL SELECT key, turn FROM heard) AS lost
SQL

# The number of a transaction says nothing about whose turn it was.
my $early = open_session($node);
$early->ask('BEGIN; SELECT pg_current_xact_id()');
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'causal', 'thing.turned', '{\"turn\": 1}')");
$early->ask("SELECT idem_publish('t', 'thing', 'causal', 'thing.turned', '{\"turn\": 2}'); COMMIT");
$node->safe_psql('postgres', 'TRUNCATE heard');
reader_until_done('all', 1);
is($node->safe_psql('postgres', "SELECT string_agg(turn::text, ' ' ORDER BY at) FROM heard WHERE key = 'causal'"),
	'1 2', 'an older transaction that came second is second');

# ---- who stays open delays nobody ------------------------------------------------

my $idle = open_session($node);
$idle->ask("BEGIN; SELECT idem_publish('t', 'thing', 'idle', 'thing.turned', '{\"turn\": 1}')");
my $stranger = open_session($node, 'elsewhere');
$stranger->ask('BEGIN; CREATE TABLE t ()');
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'busy', 'thing.turned', '{\"turn\": 1}'); TRUNCATE heard");
reader_until_done('all', 1);
is($node->safe_psql('postgres', 'SELECT string_agg(key, \' \') FROM heard'), 'busy', 'what is committed is heard beside what is open');
$idle->ask('COMMIT');
reader_until_done('all', 1);
is($node->safe_psql('postgres', 'SELECT string_agg(key, \' \' ORDER BY at) FROM heard'), 'busy idle', 'and what was open once it is committed');
$stranger->ask('ROLLBACK');
$_->close foreach ($early, $idle, $stranger);

# ---- one huge transaction ----------------------------------------------------------

$node->safe_psql('postgres', <<'SQL');
TRUNCATE heard;
SELECT count(idem_publish('t', 'thing', (i % 100)::text, 'thing.turned', jsonb_build_object('turn', i))) FROM generate_series(1, 100000) AS i;
SQL
my ($batches, $batch, $most) = (0, 0, 0);
do
{
	$batch = $node->safe_psql('postgres', "SELECT hear('all', 1, 5000)");
	my $size = $node->safe_psql('postgres', 'SELECT count(*) FROM heard');
	$most = $size if $size > $most;
	$node->safe_psql('postgres', "SELECT outcome FROM idem_ack_events('all', $batch)") if $batch;
	$node->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS all_heard (LIKE heard); INSERT INTO all_heard TABLE heard; TRUNCATE heard');
	$batches++ if $batch;
} while ($batch);
cmp_ok($most, '<=', 5000, 'one transaction with 100,000 events comes in bounded batches');
cmp_ok($batches, '>=', 20, "$batches of them");
is($node->safe_psql('postgres', <<'SQL'), '100000|0', 'all of it, in order');
SELECT count(*), count(*) FILTER (WHERE turn <= before)
FROM (SELECT turn, lag(turn) OVER (PARTITION BY key ORDER BY at) AS before FROM all_heard) AS h
SQL

# A subscription that wants one of them finds it, and may say that it failed.
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'rare', 'thing.rare', '{}')");
is($node->safe_psql('postgres', <<'SQL'), 'rare|parked', 'one event behind 100,000 that are not wanted');
SELECT f.aggregateid, r.outcome FROM idem_fetch_events('rare', 'w', 10) AS f, idem_retry_event('rare', f.batch, f.id, 'odd', '0') AS r
SQL
is($node->safe_psql('postgres', <<'SQL'), '1|1|acked', 'which comes again, alone');
SELECT count(*), max(attempt) - 1, max(a.outcome) FROM (SELECT outcome FROM idem_ack_events('rare', (SELECT max(batch) FROM idem_position WHERE subscription = 'rare'))) AS a, idem_fetch_events('rare', 'w', 10)
SQL
$node->safe_psql('postgres', "SELECT outcome FROM idem_ack_events('rare', (SELECT max(batch) FROM idem_position WHERE subscription = 'rare'))");

# Who waits is not kept busy by what is in other hands, or by what he does not want.
my $busy = open_session($node);
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'rare', 'thing.rare', '{}')");
$busy->ask("BEGIN; SELECT count(*) FROM idem_fetch_events('rare', 'w')");
my $waited = 'DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN CALL idem_wait_events(\'rare\', \'300 ms\'); RAISE NOTICE \'%\', clock_timestamp() - began >= \'300 ms\'; END $$';
like(($node->psql('postgres', $waited))[2], qr/NOTICE:  t/, 'he sleeps while another one has it in hand');
$busy->ask('ROLLBACK');
like(($node->psql('postgres', $waited))[2], qr/NOTICE:  f/, 'and goes at once when it is free');
reader_until_done('rare', 1);
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'common', 'thing.turned', '{\"turn\": 1}')");
like(($node->psql('postgres', $waited))[2], qr/NOTICE:  t/, 'nor does he rise for what he does not want');
$busy->close;
reader_until_done('all', 1);

# ---- the log is emptied --------------------------------------------------------------

my $holder = open_session($node);
$holder->ask('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM thing LIMIT 1; SELECT pg_current_xact_id()');
my $sleeper = open_session($node);
$sleeper->begin("CALL idem_wait_events('rare', '10 minutes')");
my $full = $node->safe_psql('postgres', 'SELECT pg_relation_size(\'idem_outbox_0\')');
cmp_ok($full, '>', 1000000, 'the first slice is full');
my $sweep = 'SET idem.outbox_retention = 0; SELECT count FROM idem_sweep() WHERE what = \'outbox\'';
$node->safe_psql('postgres', $sweep) foreach (1 .. 2);
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'next', 'thing.turned', '{\"turn\": 1}')");
$node->safe_psql('postgres', $sweep);
is($node->safe_psql('postgres', 'SELECT pg_relation_size(\'idem_outbox_0\')'), $full, 'a slice that a subscription has not read stays');
reader_until_done('slow', 1);
$node->safe_psql('postgres', $sweep) foreach (1 .. 3);
is($node->safe_psql('postgres', 'SELECT pg_relation_size(\'idem_outbox_0\')'), 0,
	'one that all have read is emptied, whoever holds a snapshot, has written elsewhere, or waits');
my $positions = $node->safe_psql('postgres', <<'SQL');
DO $$ DECLARE b bigint; BEGIN
	FOR i IN 1 .. 2000 LOOP
		PERFORM idem_publish('t', 'thing', 'p', 'thing.turned', '{"turn": 1}');
	END LOOP;
END $$;
SELECT pg_relation_size('idem_position_0') + pg_relation_size('idem_position_1')
SQL
my $pace = write_file("$directory/pace.sql", <<'PGBENCH');
SELECT idem_publish('t', 'thing', 'pace', 'thing.turned', '{"turn": 1}');
SELECT coalesce(max(batch), 0) AS batch FROM idem_fetch_events('all', 'pace', 10) \gset
SELECT outcome FROM idem_ack_events('all', :batch) WHERE :batch > 0;
PGBENCH
for (1 .. 4)
{
	is(end_program(begin_program('pgbench', '-n', '-f', $pace, '-t', 1500, @connection)), 0, 'events come and go');
	$node->safe_psql('postgres', $sweep) foreach (1 .. 3);
}
cmp_ok($node->safe_psql('postgres', 'SELECT pg_relation_size(\'idem_position_0\') + pg_relation_size(\'idem_position_1\')'),
	'<', 3000000, 'and positions do not pile up behind a held snapshot');
$holder->ask('COMMIT');

# The sweep writes positions, too: whoever moves a subscription waits for it.
reader_until_done($_, 1) foreach ('all', 'slow');
$node->safe_psql('postgres', $sweep) foreach (1 .. 3);
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'common', 'thing.turned', '{\"turn\": 2}')");
$node->safe_psql('postgres', $sweep);
$holder->ask('BEGIN; SET LOCAL idem.outbox_retention = 0; SELECT count(*) FROM idem_sweep()');
is($node->safe_psql('postgres', "SET idem.wait = 0; SELECT outcome FROM idem_seek_subscription('slow', 'now')"), 'in_progress',
	'a subscription is not moved beside the sweep');
$holder->ask('COMMIT');
is($node->safe_psql('postgres', "SELECT outcome FROM idem_seek_subscription('slow', 'now')"), 'moved', 'but after it');
reader_until_done('all', 1);
$holder->close;
verify_is_empty($node, 'after the sweep');
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'rare', 'thing.rare', '{}')");
is($sleeper->ask(''), '', 'and who has waited through all that is woken by what he waited for');
$sleeper->close;

# ---- waiting ---------------------------------------------------------------------------

my $waiter = open_session($node);
my $pid = $waiter->ask('SELECT pg_backend_pid()');
reader_until_done('all', 1);
$waiter->begin("CALL idem_wait_events('all', '1 minute')");
$node->poll_query_until('postgres', "SELECT state = 'active' AND wait_event_type = 'Extension' AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid")
	or die 'nobody waits';
pass('who waits holds no snapshot');
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'bell', 'thing.turned', '{\"turn\": 1}')");
is($waiter->ask(''), '', 'and is woken by a commit');
reader_until_done('all', 1);
$waiter->begin("CALL idem_wait_events('all', '1 minute')");
$node->poll_query_until('postgres', "SELECT state = 'active' AND wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid");
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
like($waiter->ask(''), qr/canceling statement/, 'or cancelled');
$waiter->close;

# ---- crash, promotion, restore -----------------------------------------------------------

$node->safe_psql('postgres', <<'SQL');
TRUNCATE heard;
SET synchronous_commit = off;
SELECT idem_publish('t', 'thing', 'async', 'thing.turned', '{"turn": 1}');
SELECT hear('all', 1, 100);
SQL
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT count(*) FROM idem_outbox WHERE aggregateid = 'async'"), 1,
	'what was handed out exists after a crash, without synchronous commit');
$node->safe_psql('postgres', "SELECT outcome FROM idem_seek_subscription('all', 'now')");

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', <<'SQL');
SELECT idem_publish('t', 'thing', 'moved', 'thing.turned', '{"turn": 1}');
TRUNCATE heard;
SQL
reader_until_done('all', 1);
$node->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'moved', 'thing.turned', '{\"turn\": 2}'); TRUNCATE heard");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$node->stop('immediate');
$standby->promote;
is($standby->safe_psql('postgres', "SELECT string_agg(payload ->> 'turn', ' ') FROM idem_fetch_events('all', 'other')"),
	'2', 'a promoted standby goes on where the other ended');

my $dump = "$directory/dump";
is((run_program('pg_dump', '-Fc', '-f', $dump, '-h', $standby->host, '-p', $standby->port, 'postgres'))[0], 0, 'dumped');
my $restored = new_cluster('restored');
is((run_program('pg_restore', '--exit-on-error', '-d', 'postgres', '-h', $restored->host, '-p', $restored->port, $dump))[0], 0, 'restored');
my $kept = $restored->safe_psql('postgres', "SELECT count(*) FROM idem_outbox WHERE type = 'thing.turned'");
cmp_ok($kept, '>', 0, 'the log is there');
my $again = 0;
while (my $n = $restored->safe_psql('postgres', "SELECT count(*) FROM idem_fetch_events('all', 'other', 10000)"))
{
	$again += $n;
	$restored->safe_psql('postgres', "SELECT outcome FROM idem_ack_events('all', (SELECT max(batch) FROM idem_position WHERE subscription = 'all'))");
}
is($again, $kept, 'and all of it is delivered once more, in another cluster');
$restored->safe_psql('postgres', "SELECT idem_publish('t', 'thing', 'new', 'thing.turned', '{\"turn\": 1}')");
is($restored->safe_psql('postgres', "SELECT string_agg(aggregateid, ' ') FROM idem_fetch_events('all', 'other')"), 'new', 'then what is new');
verify_is_empty($restored, 'in the restored database');

done_testing();
