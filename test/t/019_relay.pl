# Writers, two relays, RabbitMQ and two consumers run, and something is killed
# twenty times: a relay, a consumer, a backend, the whole server.  In the end each
# committed event took effect exactly once, in order per key.
#
# IDEM_ROUNDS: how often something is killed (20).

use strict;
use warnings;

use IdemTest;
use Test::More;

my $broker_program = '/usr/lib/rabbitmq/bin/rabbitmq-server';
my $python = '/usr/bin/python3';
plan skip_all => 'rabbitmq-server is not installed' unless -x $broker_program;
plan skip_all => 'python3-pika (1.0 or later) and python3-psycopg2 are not installed'
  if (run_program($python, '-c', 'import pika, psycopg2; assert int(pika.__version__.split(".")[0]) >= 1'))[0];

my $rounds = $ENV{IDEM_ROUNDS} || 20;
srand($ENV{IDEM_SEED} || 1);

# ---- the broker --------------------------------------------------------------------

my $home = temporary_directory();
my ($amqp, $dist, $epmd) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
my %broker = (
	HOME => $home,
	RABBITMQ_MNESIA_BASE => "$home/mnesia",
	RABBITMQ_LOG_BASE => "$home/log",
	RABBITMQ_NODENAME => 'idem@localhost',
	RABBITMQ_NODE_IP_ADDRESS => '127.0.0.1',
	RABBITMQ_NODE_PORT => $amqp,
	RABBITMQ_DIST_PORT => $dist,
	ERL_EPMD_PORT => $epmd,
	ERL_EPMD_ADDRESS => '127.0.0.1',
	RABBITMQ_ENABLED_PLUGINS_FILE => "$home/plugins",
	RABBITMQ_CONF_ENV_FILE => "$home/none",
	RABBITMQ_CONFIG_FILE => "$home/none",
	RABBITMQ_PID_FILE => "$home/pid",
	RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS => '+S 1');

sub with_broker
{
	my (@command) = @_;
	local @ENV{ keys %broker } = values %broker;
	return begin_program(@command);
}

# until(WHAT, CODE): wait for it, for three minutes at most
sub until_true
{
	my ($what, $code) = @_;
	for (1 .. 1800)
	{
		return 1 if $code->();
		IPC::Run::run([ 'sleep', '0.1' ]);
	}
	die "it did not come to pass: $what";
}

my $broker = with_broker($broker_program);
until_true('the broker stands', sub { IPC::Run::pump_nb($broker->{run}); $broker->{out} =~ /Starting broker\.\.\. completed/ });

# ---- the database --------------------------------------------------------------------

my $node = new_cluster('relay', 'max_connections = 40', "restart_after_crash = on", 'shared_preload_libraries = idem');
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idem;
CREATE TABLE thing (key text PRIMARY KEY, turn bigint NOT NULL);
INSERT INTO thing SELECT i, 0 FROM generate_series(1, 20) AS i;
CREATE TABLE said (key text, turn bigint);
CREATE TABLE ledger (key text, turn bigint, at bigserial);
CREATE TABLE place (consumer text PRIMARY KEY, reached bigint NOT NULL);
SELECT outcome FROM idem_subscribe('relay', types => '{thing.turned}', slots => 8);
SQL
my $directory = temporary_directory();
my $writer = write_file("$directory/writer.sql", <<'PGBENCH');
\set a random(1, 20)
\set how random(1, 10)
BEGIN;
WITH t AS (UPDATE thing SET turn = turn + 1 WHERE key = :a::text RETURNING key, turn),
s AS (INSERT INTO said SELECT key, turn FROM t)
SELECT idem_publish('t', 'thing', key, 'thing.turned', jsonb_build_object('turn', turn)) FROM t;
\if :how = 1
ROLLBACK;
\else
COMMIT;
\endif
PGBENCH

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
local $ENV{AMQP_URL} = "amqp://guest:guest\@127.0.0.1:$amqp/%2F?heartbeat=30";
local $ENV{LEASE} = '2 seconds';

sub begin_relay { return begin_program($python, 'test/clients/relay/relay.py', 'relay', "relay-$_[0]") }
sub begin_consumer { return begin_program($python, 'test/clients/relay/consumer.py', 'ledger', 'ledger') }

# A slow trickle, so that it lasts: it begins anew when the server has thrown it out.
sub begin_writers
{
	return begin_program('pgbench', '-n', '-f', $writer, '-c', 4, '-R', 150, '-T', 600, 'postgres');
}

my %running = (
	relay_1 => begin_relay(1), relay_2 => begin_relay(2),
	consumer_1 => begin_consumer(), consumer_2 => begin_consumer(), writers => begin_writers());
my %begin = (
	relay_1 => sub { begin_relay(1) }, relay_2 => sub { begin_relay(2) },
	consumer_1 => \&begin_consumer, consumer_2 => \&begin_consumer, writers => \&begin_writers);

sub again
{
	my ($name) = @_;
	kill_program($running{$name});
	$running{$name} = $begin{$name}->();
	return;
}

# what the server answers; undef while it is away
sub ask
{
	my ($sql) = @_;
	my ($status, $answer) = run_program('psql', '-XAtqc', $sql);
	chomp $answer;
	return $status ? undef : $answer;
}

sub effects { return ask('SELECT count(*) FROM ledger') }

# a crash replaces it
sub checkpointer { return ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'") }

# Kill a backend that works for somebody, and wait until the server has noticed: one
# that waits for the disk dies only after that, and the writers of before die with it.
sub kill_backend
{
	my $before = checkpointer();
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'psql' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");

	return unless $pid && kill('KILL', $pid);
	until_true('the server is back', sub { my $now = checkpointer(); $now && $now ne $before });
	return;
}

my %killed;
for my $round (1 .. $rounds)
{
	# things move between two kills
	my $before;
	until_true('the server answers', sub { defined($before = effects()) });
	until_true("events take effect (round $round)", sub { my $now = effects(); defined $now && $now > $before + 10 });

	my $victim = (qw(relay_1 relay_2 consumer_1 consumer_2 backend server))[ int rand 6 ];
	$killed{$victim}++;
	if ($victim eq 'backend')
	{
		kill_backend();
		again('writers');
	}
	elsif ($victim eq 'server')
	{
		$node->stop('immediate');
		$node->start;
		again('writers');
	}
	else
	{
		again($victim);
	}
}
note(join ', ', map { "$_ $killed{$_} times" } sort keys %killed);

# ---- in the end ------------------------------------------------------------------------

kill_program($running{writers});
until_true('the writers are gone', sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") eq '0' });
my $said = $node->safe_psql('postgres', 'SELECT count(*) FROM said');
cmp_ok($said, '>', 10 * $rounds, "$said things were said, through $rounds kills");
until_true('all of it has arrived', sub { $node->safe_psql('postgres', 'SELECT count(*) FROM ledger') >= $said });
until_true('all of it is acknowledged', sub { $node->safe_psql('postgres', "SELECT why FROM idem_outbox_lag WHERE subscription = 'relay'") eq 'all is delivered' });
kill_program($running{$_}) foreach grep { $_ ne 'writers' } keys %running;

is($node->safe_psql('postgres', <<'SQL'), '0|0', 'each took effect exactly once');
SELECT (SELECT count(*) FROM (SELECT key, turn FROM said EXCEPT ALL SELECT key, turn FROM ledger) AS lost),
	(SELECT count(*) FROM (SELECT key, turn FROM ledger EXCEPT ALL SELECT key, turn FROM said) AS twice)
SQL
is($node->safe_psql('postgres', <<'SQL'), '', 'in order per key');
SELECT format('key %s: turn %s came after turn %s', key, turn, before)
FROM (SELECT key, turn, lag(turn) OVER (PARTITION BY key ORDER BY at) AS before FROM ledger) AS l WHERE turn <= before
SQL
is($node->safe_psql('postgres', "SELECT parked, dead FROM idem_outbox_lag"), '0|0', 'and nothing was given up');
verify_is_empty($node, 'after all that');

kill_program($broker);
# its port mapper stays behind, and goes only when it has heard that the broker is gone
until_true('nothing of the broker is left', sub {
	my $kill = with_broker('epmd', '-port', $epmd, '-kill');
	end_program($kill);
	return $kill->{out} =~ /Killed|not running|Cannot connect/i || $kill->{err} =~ /Cannot connect/i;
});
$node->stop;
done_testing();
