# A fence that was given out never comes again: not after a crash, not in a
# restored database, not on a standby that was promoted, and not behind a pooler
# that hands each transaction another connection.

use strict;
use warnings;

use IdemTest;
use Test::More;

# Commits do not wait for the disk here, unless they say so themselves.
my $node = new_primary('lease', 'max_prepared_transactions = 2', 'synchronous_commit = off', 'wal_writer_delay = 10s');
$node->safe_psql('postgres', 'CREATE EXTENSION idem; CREATE TABLE work (fence bigint, seen bigint)');

sub acquire
{
	my ($on, $name, $worker, $database) = @_;
	return $on->safe_psql($database || 'postgres',
		"SELECT concat_ws(' ', outcome, fence, blocking_no) FROM idem_acquire_lease('t', '$name', '$worker', '1 hour', '0')");
}

sub release
{
	my ($on, $name, $fence) = @_;
	return $on->safe_psql('postgres', "SELECT outcome FROM idem_release_lease('t', '$name', $fence)");
}

sub expire
{
	my ($on, $name) = @_;
	return $on->safe_psql('postgres', "UPDATE idem_lease SET lease_until = now() - interval '1 second' WHERE name = '$name'");
}

# error_of(NODE, SQL): what psql says.
sub error_of
{
	my ($on, $sql) = @_;
	my (undef, undef, $error) = $on->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	return $error;
}

# ---- a zombie -------------------------------------------------------------------

my $zombie = open_session($node);
is($zombie->ask("SELECT fence FROM idem_acquire_lease('t', 'zombie', 'z')"), '1', 'a worker acquires a lease');
$zombie->ask('BEGIN; INSERT INTO work VALUES (1, 0)');
expire($node, 'zombie');
is(acquire($node, 'zombie', 'w'), 'acquired 2', 'sleeps too long, and another takes over');
like($zombie->ask("SELECT idem_assert_lease('t', 'zombie', 1)"), qr/not held with fence 1/, 'it wakes up and learns of it');
$zombie->ask('COMMIT');
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'what it did is not committed');
is($zombie->ask("SELECT 'held' FROM (SELECT idem_assert_lease('t', 'zombie', 2)) AS a"), 'held', 'the other goes on');
$zombie->close;

# ---- a crash --------------------------------------------------------------------

foreach my $round (1 .. 3)
{
	is(acquire($node, 'crash', "w$round"), "acquired $round", "fence $round is given out");
	$node->stop('immediate');
	$node->start;
	like(acquire($node, 'crash', 'other'), qr/^busy w$round/, 'and held after a crash, though commits do not wait for the disk');
	$round % 2 ? release($node, 'crash', $round) : expire($node, 'crash');
	# what is lost here is a release at most
	$node->safe_psql('postgres', 'CHECKPOINT');
}

# An assertion that was prepared stands until it is decided, crash or no crash.
is(acquire($node, 'prepared', 'w1'), 'acquired 1', 'a lease is acquired');
$node->safe_psql('postgres', "BEGIN; INSERT INTO work VALUES (1, 1); SELECT idem_assert_lease('t', 'prepared', 1); PREPARE TRANSACTION 'work'");
expire($node, 'prepared');
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop('immediate');
$node->start;
is(acquire($node, 'prepared', 'w2'), 'busy w1', 'a prepared transaction that asserted it keeps it from being taken over');
$node->safe_psql('postgres', "COMMIT PREPARED 'work'");
is(acquire($node, 'prepared', 'w2'), 'acquired 2', 'until it is committed');

# ---- dump and restore -----------------------------------------------------------

is(acquire($node, 'kept', 'w1'), 'acquired 1', 'a lease is acquired');
is(acquire($node, 'given', 'w1'), 'acquired 1', 'another too');
is(release($node, 'given', 1), 'released', 'and released');
my $directory = temporary_directory();
my ($status, undef, $error) = run_program('pg_dump', '-f', "$directory/dump.sql", '-d', $node->connstr('postgres'));
is("$status$error", '0', 'pg_dump says nothing');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
($status, undef, $error) = run_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$directory/dump.sql", '-d', $node->connstr('restored'));
is("$status$error", '0', 'the restore neither');
is( $node->safe_psql('restored', 'SELECT * FROM idem_lease ORDER BY name'),
	$node->safe_psql('postgres', 'SELECT * FROM idem_lease ORDER BY name'),
	'every lease is back');
is(acquire($node, 'kept', 'w2', 'restored'), 'busy w1', 'who held one holds it in the restored database');
is(acquire($node, 'kept', 'w1', 'restored'), 'renewed 1', 'with the same fence');
is(acquire($node, 'given', 'w1', 'restored'), 'acquired 2', 'a released one gets the next');
is(acquire($node, 'zombie', 'z', 'restored'), 'busy w', 'a lost one stays lost');
verify_is_empty($node, 'after the restore', 'restored');

# ---- a standby ------------------------------------------------------------------

my $standby = new_standby($node);
is(release($node, 'zombie', 2), 'released', 'the primary goes on');
is(acquire($node, 'zombie', 'z'), 'acquired 3', 'and gives out another fence');
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
is(acquire($standby, 'zombie', 'w'), 'busy z', 'a standby sees who holds it');
like(error_of($standby, "SELECT idem_assert_lease('t', 'zombie', 3)"), qr/25006/, 'but proves nothing');
like(error_of($standby, "SELECT idem_acquire_lease('t', 'given', 'w', wait => '0')"), qr/25006/, 'and gives out no fence');
$node->stop('immediate');
$standby->promote;
is(acquire($standby, 'zombie', 'w'), 'busy z', 'promoted, it has the holder');
$standby->safe_psql('postgres', "SELECT idem_assert_lease('t', 'zombie', 3)");
is(release($standby, 'zombie', 3), 'released', 'who can use his fence');
is(acquire($standby, 'zombie', 'w'), 'acquired 4', 'and fences grow');
verify_is_empty($standby, 'after the promotion');

# ---- a pooler in transaction mode -----------------------------------------------

SKIP:
{
	my $pool = open_pool($standby);
	skip 'pgbouncer is not installed', 5 unless $pool;

	# 16 clients share 8 connections, and want one lease.  Each acquire, each
	# piece of work and each release may meet another connection.
	$standby->safe_psql('postgres', 'TRUNCATE work');
	my $job = <<'SQL';
SELECT (outcome = 'acquired')::int AS mine, coalesce(fence, 0) AS fence FROM idem_acquire_lease('t', 'pooled', 'client ' || :client_id, '1 hour', '20 ms') \gset
\if :mine
BEGIN;
SELECT idem_assert_lease('t', 'pooled', :fence);
INSERT INTO work SELECT :fence, count(*) FROM work;
COMMIT;
SELECT outcome FROM idem_release_lease('t', 'pooled', :fence);
\endif
SQL
	my ($status, $out, $err) = pgbench($pool, $job, '-c', 16, '-j', 2, '-t', 50, '-M', 'simple');
	is($status, 0, '16 clients did all their work') or diag("$out$err");
	my $turns = $standby->safe_psql('postgres', 'SELECT count(*) FROM work');
	cmp_ok($turns, '>', 16, "they had $turns turns");
	is($standby->safe_psql('postgres', 'SELECT fence, worker IS NULL FROM idem_lease WHERE name = \'pooled\''),
		"$turns|t", 'with a fence for each, the last one released');
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM work WHERE seen <> fence - 1'),
		'0', 'and each found the work of all before it done');
	verify_is_empty($standby, 'behind the pooler');
}

$standby->stop;
done_testing();
