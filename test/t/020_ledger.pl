# Many sessions and a naive twin: orders, payments, refunds, disputes, grants and
# notifications by 8 sessions at once over a few orders, and afterwards a
# single-threaded model of the rules, written from the contract, that is asked
# the same one call after the other.
#
# The check is a linearization.  In what order concurrent calls happened is not
# known beforehand; but those that changed something committed in some order,
# and locks see to it that calls which meet commit in the order in which they
# took effect.  So the model replays the calls in the order of their commits,
# and those that changed nothing at a moment between their beginning and their
# end.  Each answer must be the model's, each move of each row and its event,
# and after each burst every row and every counter, which the model, unlike the
# extension, counts anew each time.  What two sessions did to each other is then
# what one could have done alone; test/t/ledger_walk.sql says how it is found.
#
# IDEM_SEED chooses what the sessions draw, IDEM_ROUNDS how many bursts there
# are, IDEM_STEPS how many calls a session makes in each.  100,000 operations:
# IDEM_ROUNDS=125 IDEM_STEPS=100.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $seed = $ENV{IDEM_SEED} || 1;
my $rounds = $ENV{IDEM_ROUNDS} || 12;
my $steps = $ENV{IDEM_STEPS} || 100;
my $sessions = 8;

note("IDEM_SEED=$seed IDEM_ROUNDS=$rounds IDEM_STEPS=$steps");

my $node = new_cluster('ledger', 'track_commit_timestamp = on', 'synchronous_commit = off');
$node->safe_psql('postgres', join("\n", 'CREATE EXTENSION idem;', "ALTER SYSTEM SET idem.auto_refund_hourly = 1000000;",
	map { read_file("test/t/$_.sql") } qw(model model_walk ledger ledger_walk)));
$node->reload;

# ---- what the sessions do ----------------------------------------------------------

# One call after the other: it is planned, made, and its error kept.
my $directory = temporary_directory();
my $script = write_file("$directory/burst.sql", <<'CALL' x $steps);
SELECT * FROM model.plan(:session, :'tenant') \gexec
\if :ERROR
SELECT model.note_error(:'SQLSTATE');
\endif
CALL

# The last two are impatient: they hear in_progress.
my @sessions = map { open_session($node) } (1 .. $sessions);
foreach my $n (1 .. $sessions)
{
	my $wait = $n > $sessions - 2 ? '0' : '30s';
	$sessions[ $n - 1 ]->ask("\\o /dev/null\n\\set VERBOSITY sqlstate\n\\set session $n\nSET enable_seqscan = off; SET idem.wait = '$wait'");
}

# A burst of all sessions about a tenant that is new.  Returns what they
# complained of, but for errors that a caller can cause and lost races.
sub burst
{
	my ($round, $tenant) = @_;
	my $n = 0;
	my @complaints;

	$node->safe_psql('postgres', "SELECT idem_set_channel_account('$tenant', 'alipay', 'a1')") if $round % 3 == 0;
	foreach my $session (@sessions)
	{
		my $chance = (($seed * 1009 + $round * 31 + ++$n) % 20011) / 20011;
		$session->begin("SELECT setseed($chance), set_config('model.n', '0', false);\n\\set tenant $tenant\n\\i $script");
	}
	foreach my $session (@sessions)
	{
		push @complaints, grep { !/ERROR:  (?:ID001|ID006|22023|22004|40001)$/ } split /\n/, $session->ask('');
	}
	return @complaints;
}

# ---- the twin follows --------------------------------------------------------------

# Two followers, so that the twin keeps up with the sessions.
my @followers = map { open_session($node) } (1 .. 2);
$_->ask("SET enable_seqscan = off; SET model.story = 12") foreach @followers;

my (@differences, @complaints);

sub hear
{
	my ($follower) = @_;
	my $difference = $follower->ask('');
	push @differences, $difference if $difference =~ /\S/;
	return;
}

foreach my $round (1 .. $rounds)
{
	my $follower = $followers[ $round % @followers ];

	push @complaints, burst($round, "t$round");
	hear($follower) if $round > @followers;
	last if @differences;
	$follower->begin("SELECT model.compare('t$round')");
}
hear($_) foreach @followers;

is_deeply(\@complaints, [], 'no deadlock and no other surprise');
is(scalar(@differences), 0, "each answer, move and row of $rounds bursts is one that a single session would have had (IDEM_SEED=$seed)")
  or diag("IDEM_SEED=$seed IDEM_ROUNDS=$rounds IDEM_STEPS=$steps\n$differences[0]");
verify_is_empty($node, 'after the bursts');

note($node->safe_psql('postgres',
	"SELECT call, coalesce(answer->>'sqlstate', answer->>'outcome', ''), count(*) FROM model.log GROUP BY ROLLUP (1, 2) ORDER BY 1, 2"));

$_->close foreach @sessions, @followers;
$node->stop;
done_testing();
