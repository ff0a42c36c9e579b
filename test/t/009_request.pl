# Requests that outlive who works at them, and the sweep that takes them away.
#
# A worker is killed between begin and complete.  What it had committed is
# handed to whoever comes when its lease is over, and to nobody before.  Leases
# are ended by raw UPDATEs.  So it is when the whole server dies, when a standby
# is promoted, and where each step of a worker meets another connection.  An
# attempt that was given out never comes again.
#
# A sweep among many rows is judged by what it reads, as are the plans of a
# session that saw the table empty.

use strict;
use warnings;

use IdemTest;
use Test::More;

# the suite's clusters stay down after a crash, unless asked
my $node = new_primary('request', 'restart_after_crash = on', 'wal_writer_delay = 10s');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

# ---- kill -9 between begin and complete ----------------------------------------

my $begin = "SELECT outcome, attempt IS NOT NULL, recovery_point, recovery_state FROM idem_begin_request('acme', 'pay', 'k', '{\"amount\": 100}', lease => '1 hour')";

sub kill_hard
{
	my ($session, $when) = @_;
	my $pid = $session->ask('SELECT pg_backend_pid()');
	kill 'KILL', $pid or die "could not kill $pid: $!";
	# the postmaster throws everybody out and starts again
	eval { $session->close };
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
	  or die "the server does not come back $when";
	return;
}

my $worker = open_session($node);
is($worker->ask($begin), 'started|t||', 'a worker begins');
is( $worker->ask("SELECT c.outcome FROM idem_request r, idem_checkpoint_request('acme', 'pay', 'k', r.attempt, 'charged', '{\"charge\": \"ch_1\"}') c"),
	'checkpointed', 'charges the card, and says so');
my $held = $worker->ask('SELECT attempt FROM idem_request');
# what it goes on to do is not committed
$worker->ask('BEGIN');
is($worker->ask("SELECT outcome FROM idem_complete_request('acme', 'pay', 'k', $held, '{\"paid\": true}')"), 'completed', 'is about to finish');
kill_hard($worker, 'after the worker was killed');

is($node->safe_psql('postgres', $begin), 'in_progress|f||', 'and is killed: nobody resumes before its lease is over');
$node->safe_psql('postgres', 'UPDATE idem_request SET lease_until = clock_timestamp()');
is($node->safe_psql('postgres', $begin), 'resumed|t|charged|{"charge": "ch_1"}', 'then the next begin does, from the recovery point');
my ($status, undef, $error) = $node->psql('postgres', "SELECT idem_complete_request('acme', 'pay', 'k', $held, '{\"paid\": true}')");
like($error, qr/not the current one/, 'and the attempt that was killed has nothing more to say');
is( $node->safe_psql('postgres', "SELECT c.outcome FROM idem_request r, idem_complete_request('acme', 'pay', 'k', r.attempt, '{\"paid\" :true}') c"),
	'completed', 'the new one finishes');
is( $node->safe_psql('postgres', "SELECT outcome, response, attempt FROM idem_begin_request('acme', 'pay', 'k', '{\"amount\": 100.0}')"),
	'replayed|{"paid" :true}|', 'and is replayed');

# everything in one transaction: nothing was ever there
$worker = open_session($node);
$worker->ask('BEGIN');
my $whole = "SELECT outcome, attempt IS NOT NULL FROM idem_begin_request('acme', 'pay', 'whole')";
is($worker->ask($whole), 'started|t', 'a worker begins in an open transaction');
kill_hard($worker, 'after the second worker was killed');
is($node->safe_psql('postgres', $whole), 'started|t', 'and is killed: the key is free');
cmp_ok($node->safe_psql('postgres', "SELECT attempt FROM idem_request WHERE key = 'whole'"), '>', $held, 'attempts go on after a crash');
verify_is_empty($node, 'after all that');

# ---- a million replays would be free: a few are --------------------------------

my $session = open_session($node);
my $sequence = "SELECT last_value FROM idem_attempt";
my $drawn = $session->ask($sequence);
$session->ask('BEGIN');
is( $session->ask("SELECT outcome, count(*) FROM (SELECT (idem_begin_request('acme', 'pay', 'k', '{\"amount\": 100}')).outcome FROM generate_series(1, 10000)) AS calls GROUP BY 1"),
	'replayed|10000', '10,000 replays');
is($session->ask('SELECT txid_current_if_assigned()'), '', 'assign no xid');
is($session->ask("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid')"),
	'0', 'keep no lock');
is($session->ask('SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_all_tables'), '0', 'write no row');
$session->ask('COMMIT');
is($session->ask($sequence), $drawn, 'and draw no attempt');

# ---- plans made on small tables, and a sweep among 200,000 rows ------------------

# What the session has read, in index entries and in table rows.  It is told to
# the server between transactions only: a difference within one is exact.
my $read = <<'SQL';
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)
	+ (SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0) FROM pg_stat_user_indexes)
FROM pg_stat_xact_user_tables WHERE relname LIKE 'idem\_%'
SQL

sub cost
{
	my (@calls) = @_;
	$session->ask('BEGIN');
	my $before = $session->ask($read);
	$session->ask($_) foreach @calls;
	my $cost = $session->ask($read) - $before;
	$session->ask('COMMIT');
	return $cost;
}

# The whole life of requests under keys of this prefix.
sub life
{
	my ($prefix) = @_;
	my $current = sub { return "(SELECT attempt FROM idem_request WHERE tenant_id = 'acme' AND scope = 'life' AND key = '$prefix')" };
	my $call = sub { return "SELECT idem_${_[0]}_request('acme', 'life', '$prefix'$_[1])" };
	return (
		$call->('begin', ", worker => 'w'"),
		$call->('begin', ", worker => 'w'"),
		$call->('checkpoint', ', ' . $current->() . ", 'p'"),
		$call->('renew', ', ' . $current->() . ", '1 hour'"),
		$call->('fail', ', ' . $current->()),
		$call->('begin', ''),
		$call->('complete', ', ' . $current->() . ", '1'"),
		$call->('begin', ''));
}

$node->safe_psql('postgres', 'DELETE FROM idem_request; VACUUM ANALYZE idem_request');
foreach my $n (1 .. 10)
{
	$session->ask($_) foreach (life("plan-$n"), 'SELECT idem_sweep(1000)');
}
my $life = cost(life('small'));
$node->safe_psql('postgres', <<'SQL');
INSERT INTO idem_request (tenant_id, scope, key, status, attempt, fingerprint_version, on_expiry, first_at, lease_until, expires_at, response_status, response)
SELECT 'acme', 'load', i::text, CASE WHEN i % 2 = 0 THEN 'completed' ELSE 'failed' END, 1, 1, 'resume', now(), now(),
	now() + CASE WHEN i <= 100000 THEN interval '-1 day' ELSE '1 day' END + i * interval '1 microsecond', 200, '{"ok": true}'
FROM generate_series(1, 200000) i;
-- never finished, and past their ttl: not to be swept, and not to be read
INSERT INTO idem_request (tenant_id, scope, key, status, attempt, fingerprint_version, on_expiry, first_at, lease_until, expires_at)
SELECT 'acme', 'left', i::text, 'started', 1, 1, 'resume', now(), now(), now() - interval '2 days' FROM generate_series(1, 10000) i;
SQL
my $large = cost(life('large'));
cmp_ok($large, '<=', $life + 50, "the calls of one request read no more among 200,000 rows than before ($life, $large)");

foreach my $round (1 .. 3)
{
	my $cost = cost('SELECT idem_sweep(1000)');
	# an index entry, the row to lock it, the row to delete it
	cmp_ok($cost, '<', 4000, "sweep $round of 1,000 among 100,000 expired and 100,000 live reads about 1,000 ($cost)");
}
is($session->ask("SELECT count(*), min(key::int) FROM idem_request WHERE scope = 'load'"), '197000|3001', 'and takes away the oldest');
is($node->safe_psql('postgres', "SELECT * FROM idem_sweep(200000) WHERE what = 'requests'"), 'requests|97000', 'a greedy one takes what is left');
is($node->safe_psql('postgres', "SELECT * FROM idem_sweep() WHERE what = 'requests'"), 'requests|0', 'and the next nothing');
is($node->safe_psql('postgres', "SELECT scope, count(*) FROM idem_request WHERE scope IN ('load', 'left') GROUP BY 1 ORDER BY 1"),
	"left|10000\nload|100000", 'what lives is left, and what was never finished');
$session->close;

verify_is_empty($node, 'after the sweeps');

# ---- crashes, in which commits are lost ---------------------------------------------

# without images of pages all that a call logs stands together, and is lost together
$node->safe_psql('postgres', 'ALTER SYSTEM SET synchronous_commit = off; ALTER SYSTEM SET full_page_writes = off');
$node->reload;

# begin(NODE, KEY): outcome, attempt and response.
sub begin
{
	my ($on, $key) = @_;
	return split /\|/, $on->safe_psql('postgres', "SELECT outcome, attempt, response FROM idem_begin_request('acme', 'last', '$key', '{\"of\": \"$key\"}', lease => '1 hour')"), -1;
}

# finish(NODE, KEY, ATTEMPT): the outcome, or the SQLSTATE.
sub finish
{
	my ($on, $key, $attempt) = @_;
	my (undef, $out, $error) = $on->psql('postgres', "\\set VERBOSITY verbose\nSELECT outcome FROM idem_complete_request('acme', 'last', '$key', $attempt, '{\"by\" :$attempt}')");
	return $error =~ /^\S*\s*ERROR:\s+(\w{5}):/m ? $1 : $out;
}

sub end_lease
{
	my ($on, $key) = @_;
	return $on->safe_psql('postgres', "UPDATE idem_request SET lease_until = clock_timestamp() WHERE scope = 'last' AND key = '$key'");
}

my (undef, $first) = begin($node, 'kept');
my (undef, $answered) = begin($node, 'answered');
is(finish($node, 'answered', $answered), 'completed', 'a request is answered');
foreach my $round (1 .. 3)
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	my ($begun, $attempt) = begin($node, "lost-$round");
	is($begun, 'started', 'a request is begun');
	$node->stop('immediate');
	$node->start;
	my ($again, $next) = begin($node, "lost-$round");
	if ($again eq 'in_progress')
	{
		end_lease($node, "lost-$round");
		($again, $next) = begin($node, "lost-$round");
	}
	cmp_ok($next, '>', $attempt, "after a crash the next attempt is another ($again)");
	is(finish($node, "lost-$round", $attempt), 'ID005', 'and whoever had the former has nothing more to say');
}
is_deeply([ begin($node, 'answered') ], [ 'replayed', '', "{\"by\" :$answered}" ], 'what was answered is answered again');
is_deeply([ begin($node, 'kept') ], [ 'in_progress', '', '' ], 'and who was at work is');

# ---- a restart -------------------------------------------------------------------------

$node->restart;
is_deeply([ begin($node, 'answered') ], [ 'replayed', '', "{\"by\" :$answered}" ], 'the same after a restart');
end_lease($node, 'kept');
my ($outcome, $second) = begin($node, 'kept');
is($outcome, 'resumed', 'somebody resumes');
cmp_ok($second, '>', $first, 'with another attempt');
is(finish($node, 'kept', $first), 'ID005', 'and the first is fenced off');

# ---- a standby --------------------------------------------------------------------------

my $standby = new_standby($node);
my (undef, $third) = begin($node, 'moved');
my (undef, $swept) = begin($node, 'swept');
is(finish($node, 'swept', $swept), 'completed', 'the primary goes on');
$node->safe_psql('postgres', "UPDATE idem_request SET expires_at = now() - interval '1 day' WHERE key = 'swept'; SELECT idem_sweep()");
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
is_deeply([ begin($standby, 'answered') ], [ 'replayed', '', "{\"by\" :$answered}" ], 'a standby replays');
my (undef, undef, $refused) = $standby->psql('postgres', "SELECT idem_begin_request('acme', 'last', 'new')");
like($refused, qr/read-only transaction/, 'and begins nothing');
$node->stop('immediate');
$standby->promote;

is_deeply([ begin($standby, 'answered') ], [ 'replayed', '', "{\"by\" :$answered}" ], 'promoted, it replays');
is_deeply([ begin($standby, 'moved') ], [ 'in_progress', '', '' ], 'it knows who is at work');
is(finish($standby, 'kept', $second), 'completed', 'who can finish');
end_lease($standby, 'moved');
($outcome, my $fourth) = begin($standby, 'moved');
is($outcome, 'resumed', 'or be taken over');
cmp_ok($fourth, '>', $third, 'with an attempt of its own');
is(finish($standby, 'moved', $third), 'ID005', 'that fences off the one before');
($outcome, my $fifth) = begin($standby, 'swept');
is($outcome, 'started', 'a key that was swept is begun anew');
cmp_ok($fifth, '>', $swept, 'with an attempt that it never had');
verify_is_empty($standby, 'after the promotion');

# ---- a pooler in transaction mode --------------------------------------------------------

SKIP:
{
	my $pool = open_pool($standby);
	skip 'pgbouncer is not installed', 6 unless $pool;

	# 16 clients share 8 connections and send 200 requests, each again and again.
	# Each step of a request may meet another connection.
	$standby->safe_psql('postgres', 'CREATE TABLE work (key int, attempt bigint); CREATE TABLE heard (key int, digest text)');
	my ($status, $out, $err) = pgbench($pool, <<'SQL', '-c', 16, '-j', 2, '-t', 100, '-M', 'simple');
\set key random(1, 200)
SELECT (outcome = 'started')::int AS mine, coalesce(attempt, 0) AS attempt, coalesce(md5(response::text), '') AS digest, (outcome NOT IN ('started', 'replayed', 'in_progress'))::int AS other FROM idem_begin_request('acme', 'pooled', 'k' || :key, to_jsonb(:key), lease => '1 hour', wait => '0') \gset
\if :mine
SELECT outcome FROM idem_checkpoint_request('acme', 'pooled', 'k' || :key, :attempt, 'half', to_jsonb(:client_id));
BEGIN;
INSERT INTO work VALUES (:key, :attempt);
SELECT outcome FROM idem_complete_request('acme', 'pooled', 'k' || :key, :attempt, ('{"done" :' || :attempt || '}')::json);
COMMIT;
\else
INSERT INTO heard VALUES (:key, CASE WHEN :other = 1 THEN 'other' ELSE ':digest' END);
\endif
SQL
	is($status, 0, '16 clients did all their work') or diag("$out$err");
	my $keys = $standby->safe_psql('postgres', "SELECT count(*) FROM idem_request WHERE scope = 'pooled'");
	cmp_ok($keys, '>', 100, "they sent $keys requests");
	is($standby->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key), count(DISTINCT attempt) FROM work'),
		"$keys|$keys|$keys", 'each was done once');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM idem_request WHERE scope = 'pooled' AND status <> 'completed'"),
		'0', 'all were finished');
	is( $standby->safe_psql('postgres', <<'SQL'), '0|t', 'and every other call was answered with what the first had said');
SELECT count(*) FILTER (WHERE digest <> md5('{"done" :' || attempt || '}')), count(*) FILTER (WHERE digest <> '') > 500
FROM heard LEFT JOIN work USING (key) WHERE digest <> ''
SQL
	verify_is_empty($standby, 'behind the pooler');
}

$standby->stop;
done_testing();
