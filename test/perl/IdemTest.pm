# What the TAP tests share: a cluster with idem in it, programs that run beside
# each other, a session that stays open, and data of every kind.

package IdemTest;

use strict;
use warnings;

use Exporter 'import';
use File::Temp ();
use IPC::Run   ();
use PostgreSQL::Test::Cluster;
use Test::More;

our @EXPORT = qw(new_cluster new_primary new_standby run_program begin_program end_program kill_program pgbench open_pool write_file
  read_file open_session temporary_directory verify_is_empty
  indexes_are_whole make_every_kind);

# A statement that hangs is a failure, not a hang of the suite.
my $NOTHING_WAITS = "statement_timeout = '10min'";

# new_cluster(NAME, SETTING...): a running cluster.  Without autovacuum, so that
# what is counted is what the test did.
sub new_cluster
{
	return run_cluster({}, @_);
}

# new_primary(NAME, SETTING...): one that new_standby can follow.
sub new_primary
{
	return run_cluster({ allows_streaming => 1 }, @_);
}

sub run_cluster
{
	my ($options, $name, @settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%$options, extra => [ '--encoding=UTF8', '--locale=C' ]);
	$node->append_conf('postgresql.conf', "$_\n")
	  foreach ('autovacuum = off', "lc_messages = 'C'", $NOTHING_WAITS, @settings);
	$node->start;
	return $node;
}

# new_standby(PRIMARY): a running one, which follows.
sub new_standby
{
	my ($primary) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($primary->name . '_standby');

	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	return $standby;
}

sub temporary_directory
{
	return File::Temp::tempdir(CLEANUP => 1);
}

sub write_file
{
	my ($path, $text) = @_;
	open my $file, '>', $path or die "could not write $path: $!";
	print $file $text;
	close $file or die "could not write $path: $!";
	return $path;
}

sub read_file
{
	my ($path) = @_;
	open my $file, '<', $path or die "could not read $path: $!";
	local $/;
	my $text = <$file>;
	close $file;
	return $text;
}

# The exit status of what ended last, as a shell tells it: a signal is no success.
sub exit_status
{
	return $? & 127 ? 128 + ($? & 127) : $? >> 8;
}

# run_program(COMMAND...): (exit status, standard output, standard error)
sub run_program
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err);
	return (exit_status(), $out, $err);
}

# The same in two steps, for programs that run beside each other.  Those that
# are still running when the test ends, or dies, are killed.
my @programs;

sub begin_program
{
	my (@command) = @_;
	my %program = (out => '', err => '');
	$program{run} = IPC::Run::start(\@command, '<', \undef, '>', \$program{out}, '2>', \$program{err});
	push @programs, \%program;
	return \%program;
}

# end_program(PROGRAM): its exit status; what it said is in {out} and {err}.
sub end_program
{
	my ($program) = @_;
	@programs = grep { $_ != $program } @programs;
	IPC::Run::finish($program->{run});
	note($program->{err}) if $?;
	return exit_status();
}

# kill_program(PROGRAM): with SIGKILL, as an accident would.
sub kill_program
{
	my ($program) = @_;
	@programs = grep { $_ != $program } @programs;
	$program->{run}->kill_kill(grace => 0);
	return;
}

END
{
	my $status = $?;
	$_->{run}->kill_kill(grace => 0) foreach @programs;
	$? = $status;
}

# pgbench(NODE, SCRIPT, OPTION...): like run_program; errors of a client end it
# and make the status non-zero.
sub pgbench
{
	my ($node, $script, @options) = @_;
	my $directory = temporary_directory();
	my $file = write_file("$directory/script.sql", $script);
	return run_program('pgbench', '-n', '-f', $file, @options,
		'-h', $node->host, '-p', $node->port, 'postgres');
}

# open_pool(NODE): a PgBouncer in transaction mode before it, with 8 server
# connections; in pgbench's eyes a node.  undef: there is no PgBouncer here.
sub open_pool
{
	my ($node) = @_;
	my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
	return unless $pgbouncer;

	my ($host, $port, $user) = ($node->host, $node->port, $node->safe_psql('postgres', 'SELECT current_user'));
	my $directory = temporary_directory();
	write_file("$directory/users.txt", qq("$user" ""\n));
	write_file("$directory/pgbouncer.ini", <<"INI");
[databases]
postgres = host=$host port=$port user=$user dbname=postgres
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $directory
auth_type = any
auth_file = $directory/users.txt
pool_mode = transaction
default_pool_size = 8
max_client_conn = 100
logfile = $directory/pgbouncer.log
pidfile = $directory/pgbouncer.pid
INI
	my $pool = bless { host => $directory, port => $port }, 'IdemTest::Pool';
	my $program = begin_program($pgbouncer, '-q', "$directory/pgbouncer.ini");
	foreach (1 .. 600)
	{
		my ($status) = run_program('psql', '-X', '-c', 'SELECT 1', '-h', $directory, '-p', $port, 'postgres');
		return $pool if $status == 0;
		select undef, undef, undef, 0.1;
	}
	die "pgbouncer does not answer: $program->{err}" . read_file("$directory/pgbouncer.log");
}

# open_session(NODE, DATABASE): a psql that stays; ask it and it answers.
sub open_session
{
	my ($node, $database) = @_;
	my %session = (in => '', out => '', err => '', asked => 0);
	$session{psql} = IPC::Run::start(
		[ 'psql', '-X', '-A', '-t', '-q', '-f', '-', '-d', $node->connstr($database || 'postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err},
		IPC::Run::timeout(600));
	return bless \%session, 'IdemTest::Session';
}

# idem_verify() has nothing to say.
sub verify_is_empty
{
	my ($node, $when, $database) = @_;
	is($node->safe_psql($database || 'postgres', 'SELECT * FROM idem_verify()'), '',
		"idem_verify() finds nothing broken $when");
}

# Each index of a table of ours has every row that belongs into it, also where
# nobody has looked for that row by it.
sub indexes_are_whole
{
	my ($node, $when) = @_;
	SKIP:
	{
		skip 'amcheck is not installed', 1
		  unless $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'");
		my ($status, undef, $err) = $node->psql('postgres', <<'SQL');
CREATE EXTENSION amcheck;
SELECT bt_index_check(i.indexrelid, true)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND c.relkind = 'i' JOIN pg_am a ON a.oid = c.relam AND a.amname = 'btree'
	JOIN pg_class t ON t.oid = i.indrelid AND t.relname LIKE 'idem\_%';
DROP EXTENSION amcheck;
SQL
		is("$status$err", '0', "amcheck finds each index whole $when");
	}
	return;
}

# make_every_kind(NODE, DATABASE): orders, payments, receipts and refunds in
# every state that calls of the API lead to.  Run again it only repeats itself.
sub make_every_kind
{
	my ($node, $database) = @_;
	return $node->safe_psql($database || 'postgres', read_file('test/t/every_kind.sql'));
}

package IdemTest::Pool;

sub host { return $_[0]{host} }
sub port { return $_[0]{port} }

package IdemTest::Session;

# ask(SQL): what psql prints for it, messages included, without the last newline.
sub ask
{
	my ($self, $sql) = @_;
	my $mark = 'asked ' . ++$self->{asked};
	$self->{out} = $self->{err} = '';
	$self->{in} .= "$sql\n;\\echo $mark\n\\warn $mark\n";
	IPC::Run::pump($self->{psql})
	  until $self->{out} =~ /^$mark\n/m && $self->{err} =~ /^$mark\n/m;
	my $answer = $self->{err} . $self->{out};
	$answer =~ s/^$mark\n//mg;
	chomp $answer;
	return $answer;
}

# begin(SQL): sends it without waiting for the answer; ask('') takes that.
sub begin
{
	my ($self, $sql) = @_;
	$self->{in} .= "$sql\n;\n";
	IPC::Run::pump_nb($self->{psql}) foreach (1 .. 3);
	return;
}

sub close
{
	my ($self) = @_;
	$self->{in} .= "\\q\n";
	IPC::Run::finish($self->{psql});
	return;
}

1;
