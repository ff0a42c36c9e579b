# Duplicates are free, and many calls cost no more each than one.
#
# All that a call could leave behind is counted: transaction ids, WAL, rows,
# sequence values, locks, subtransactions, memory.  Nothing here depends on time.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('free');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');

my $create = "idem_create_payment('free', %s, 100, 'CNY', %s)";
my $first = sprintf $create, "'o'", "'k'";
# what CREATE EXTENSION left dead in the catalogs is pruned now, not by those who read them
$node->safe_psql('postgres', "SELECT $first");
$node->safe_psql('postgres', 'VACUUM');
$node->safe_psql('postgres', 'CHECKPOINT');

# ---- a million replays --------------------------------------------------------

my $sequences = "SELECT coalesce(string_agg(sequencename || coalesce(last_value, 0), ',' ORDER BY sequencename), '') FROM pg_sequences";
my $next_xid = 'SELECT txid_snapshot_xmax(txid_current_snapshot())';
my $wal = "SELECT pg_current_wal_insert_lsn() - '0/0'";
my $changed = 'SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_all_tables';
my $rows = 'SELECT pg_total_relation_size(\'idem_payment\') + pg_total_relation_size(\'idem_payment_key\') + pg_total_relation_size(\'idem_history\') + pg_total_relation_size(\'idem_outbox\')';

my %before = map { $_ => $node->safe_psql('postgres', $_) } ($sequences, $next_xid, $wal, $rows);

my $session = open_session($node);
$session->ask('BEGIN');
is( $session->ask("SELECT outcome, count(*) FROM (SELECT ($first).outcome FROM generate_series(1, 1000000)) AS calls GROUP BY 1"),
	'replayed|1000000', 'a million replays');
is($session->ask('SELECT txid_current_if_assigned()'), '', 'assign no xid');
is($session->ask($changed), '0', 'write no row, of ours or of the catalog');
is($session->ask("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype NOT IN ('relation', 'virtualxid')"),
	'0', 'keep no lock of row, transaction or advisory');
$session->ask('COMMIT');

is($node->safe_psql('postgres', $next_xid), $before{$next_xid}, 'no xid in other transactions either');
is($node->safe_psql('postgres', $sequences), $before{$sequences}, 'burn no sequence value');
is($node->safe_psql('postgres', $rows), $before{$rows}, 'no table or index grew');
cmp_ok($node->safe_psql('postgres', $wal) - $before{$wal}, '<', 16384, 'write no WAL beyond noise');

# ---- 200 duplicates inside the caller's transaction ---------------------------

$session->ask('CREATE TABLE mine (id int)');
$session->ask('BEGIN; INSERT INTO mine VALUES (1)');
$session->ask("SELECT $first") foreach (1 .. 200);
is( $session->ask(
		'SELECT outcome FROM ' . sprintf($create, "'o-200'", "'k-200'")),
	'created', 'after 200 duplicates the transaction still makes payments');
is( $session->ask(
		"SELECT count(*) FROM idem_payment p, mine m WHERE p.order_id = 'o-200' AND p.xmin = m.xmin"),
	'1', 'in the very transaction of the caller: there is no subtransaction');
is( $session->ask("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid'"),
	'1', 'nor the xid of one');
is($session->ask('COMMIT'), '', 'and commits');

# ---- ROLLBACK TO around the first call ----------------------------------------

$session->ask('BEGIN; SAVEPOINT before');
is($session->ask('SELECT outcome FROM ' . sprintf $create, "'o-back'", "'k-back'"), 'created', 'a first call after a savepoint');
$session->ask('ROLLBACK TO before');
is($session->ask('SELECT outcome FROM ' . sprintf $create, "'o-other'", "'k-back'"), 'created', 'rolled back, its key is free');
$session->ask('COMMIT');
is($session->ask("SELECT order_id FROM idem_payment WHERE order_id IN ('o-back', 'o-other')"), 'o-other', 'and only the second is there');

# ---- the user's advisory locks ------------------------------------------------

# A trigger shows which advisory locks a create holds when it inserts.  A user
# then takes locks on the very same numbers, in both of the forms users have.
$session->ask(<<'SQL');
CREATE FUNCTION show_locks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE l record;
BEGIN
	FOR l IN SELECT * FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' LOOP
		RAISE NOTICE 'lock % % %', l.classid, l.objid, l.objsubid;
	END LOOP;
	RETURN NEW;
END $$;
CREATE TRIGGER show_locks BEFORE INSERT ON idem_payment FOR EACH ROW EXECUTE FUNCTION show_locks();
SQL
my $locked = sprintf $create, "'o-locked'", "'k-locked'";
$session->ask('BEGIN');
my @locks = $session->ask("SELECT $locked") =~ /NOTICE:\s+lock (\d+ \d+ \d+)/g;
$session->ask('ROLLBACK');
ok(@locks > 0, 'a create holds advisory locks while it inserts');
is(scalar(grep { / [12]$/ } @locks), 0, 'in a space that no function of SQL reaches');
my $user = open_session($node);
foreach my $lock (@locks)
{
	my ($high, $low) = split / /, $lock;
	my ($signed_high, $signed_low) = map { $_ >= 2**31 ? $_ - 2**32 : $_ } ($high, $low);
	$user->ask("SELECT pg_advisory_lock($signed_high, $signed_low); SELECT pg_advisory_lock(('x' || lpad(to_hex(${high}::bigint), 8, '0') || lpad(to_hex(${low}::bigint), 8, '0'))::bit(64)::bigint)");
}
is($user->ask("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"), 2 * @locks, 'a user locks the same numbers');
like($session->ask("SELECT 'outcome ' || outcome FROM $locked"), qr/^outcome created$/m, 'and does not stand in the way');
$user->close;
$session->ask('DROP FUNCTION show_locks() CASCADE');

# ---- memory -------------------------------------------------------------------

# A million calls, a tenth of them creates, in one session.
sub memory_of_session
{
	return $session->ask('SELECT sum(total_bytes) FROM pg_backend_memory_contexts') if $version >= 140000;
	my $status = read_file('/proc/' . $session->ask('SELECT pg_backend_pid()') . '/status');
	return $status =~ /^VmData:\s+(\d+)/m && $1 * 1024;
}

sub many_calls
{
	my ($from, $count) = @_;
	my $call = sprintf $create, "'m-' || i / 10", "'m-' || i / 10";
	return $session->ask("SELECT count(*) FROM (SELECT ($call).outcome FROM generate_series($from, $from + $count - 1) i) AS calls WHERE outcome IN ('created', 'replayed')");
}

many_calls(1, 1000);
memory_of_session();
my $memory = memory_of_session();
is(many_calls(10_000, 1_000_000), 1_000_000, 'a million calls in one session');
my $grown = memory_of_session() - $memory;
# A leak of the smallest piece of memory would be 24 MB.  Before 14 only the
# process as a whole can be asked, which malloc makes a little larger.
cmp_ok($grown, '<', $version >= 140000 ? 100_000 : 8_000_000, "leave its memory as it was ($grown bytes more)");

# Calls in transactions of their own, where caches meet commits and rollbacks.
my ($status, $out, $err) = pgbench($node, <<'SQL', '-c', 1, '-t', 20000, '-D', 'n=0', '-M', 'prepared');
\set n :n + 1
\if :n = 1000 or :n = 20000
CREATE TABLE IF NOT EXISTS memory (n int, pid int, bytes numeric);
INSERT INTO memory SELECT :n, pg_backend_pid(), sum(total_bytes) FROM pg_backend_memory_contexts;
\elif :n % 3 = 0
BEGIN;
SELECT idem_create_payment('free', 'c-' || :n, 100, 'CNY');
ROLLBACK;
\else
SELECT idem_create_payment('free', 'c-' || (:n / 10), 100, 'CNY');
\endif
SQL
SKIP:
{
	skip 'pg_backend_memory_contexts came with 14', 2 if $version < 140000;
	is($status, 0, '20,000 transactions in one session') or diag("$out$err");
	$grown = $node->safe_psql('postgres', 'SELECT max(bytes) - min(bytes) FROM memory');
	cmp_ok($grown, '<', 100_000, "leave its memory as it was ($grown bytes more)");
}

# ---- 100,000 creates in one transaction ---------------------------------------

# How much the first and the last thousand touch, and what is still locked.
my $touched = 'SELECT sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0)) FROM pg_stat_xact_all_tables';
my $thousand = sub {
	my ($n) = @_;
	my $before = $session->ask($touched) || 0;
	my $call = sprintf $create, "'l-' || i", "'l-' || i";
	$session->ask("SELECT count(($call).payment_no) FROM generate_series($n * 1000, $n * 1000 + 999) i");
	return $session->ask($touched) - $before;
};
$session->ask('BEGIN');
my @cost = map { $thousand->($_) } (1 .. 100);
is($session->ask("SELECT count(*) FROM idem_payment WHERE order_id LIKE 'l-%'"), '100000', '100,000 creates in one transaction');
cmp_ok($session->ask('SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()'), '<', 100, 'keep a handful of locks');
cmp_ok($cost[99], '<=', $cost[1] + 1000, "and the last thousand read as little as the second ($cost[1], $cost[99] tuples)");
is($session->ask('COMMIT'), '', 'the transaction commits');
$session->close;

# ---- batches in opposite orders -----------------------------------------------

# 16 clients ask for the same 1,000 payments at once, half of them backwards.
($status, $out, $err) = pgbench($node, <<'SQL', '-c', 16, '-j', 2, '-t', 3);
SELECT count(*) FROM idem_create_payments('free', (
	SELECT jsonb_agg(jsonb_build_object('order_id', 'b-' || i, 'amount', 100, 'currency', 'CNY', 'request_key', 'b-' || i)
		ORDER BY CASE WHEN :client_id % 2 = 0 THEN i ELSE -i END)
	FROM generate_series(1, 1000) i));
SQL
is($status, 0, '16 clients with batches of 1,000 in opposite orders all end') or diag("$out$err");
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT order_id) FROM idem_payment WHERE order_id LIKE 'b-%'"),
	'1000|1000', 'with one payment for each order');
is($node->safe_psql('postgres', 'SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()'), '0', 'and no deadlock');

verify_is_empty($node, 'after all that');
$node->stop;
done_testing();
