# Many sessions and a naive twin: orders, payments, refunds, disputes, grants and
# notifications by 8 sessions at once over a few orders, and afterwards a
# single-threaded model of the rules, written from the contract, that is asked
# the same one call after the other.
#
# The check is a linearization.  In what order concurrent calls took effect is
# not known beforehand; but those that changed something committed in some
# order, and locks see to it that calls which meet commit in the order in which
# they took effect.  So the model replays the calls in the order of their
# commits, and those that changed nothing at a moment between their beginning
# and their end.  Each answer must be the model's, each move of each row and its
# event, and after each burst every row and every counter, which the model,
# unlike the extension, counts anew each time.  What the sessions did to each
# other is then what one could have done alone; test/t/ledger_walk.sql says how
# the order is found.
#
# Then the same with faults switched on, one at a time: each must be found.
#
# IDEM_SEED chooses what the sessions draw, IDEM_ROUNDS how many bursts there
# are, IDEM_STEPS how many calls a session makes in each; IDEM_FAULT is the name
# of a fault, all, or none.  100,000 operations: IDEM_ROUNDS=125 IDEM_STEPS=100.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $seed = $ENV{IDEM_SEED} || 1;
my $rounds = $ENV{IDEM_ROUNDS} || 8;
my $steps = $ENV{IDEM_STEPS} || 100;
my $fault = $ENV{IDEM_FAULT} || 'some';
my $number_of_sessions = 8;

note("IDEM_SEED=$seed IDEM_ROUNDS=$rounds IDEM_STEPS=$steps");

# Automatic refunds are not held: their brake has tests of its own.
my $node = new_cluster('ledger', 'track_commit_timestamp = on', 'synchronous_commit = off');
$node->safe_psql('postgres', join("\n", 'CREATE EXTENSION idem;', 'ALTER SYSTEM SET idem.auto_refund_hourly = 1000000;',
	map { read_file("test/t/$_.sql") } qw(model ledger model_walk ledger_walk)));
$node->safe_psql('template1', 'CREATE DATABASE faultless TEMPLATE postgres');
$node->reload;

# ---- what the sessions do ----------------------------------------------------------

# One call after the other: it is planned, made, and its error kept.  Not by \gexec,
# after which psql of 17 and 18 no longer knows the SQLSTATE.
my $call = <<'CALL';
SELECT * FROM model.plan(:session, :'tenant') \gset
\if :{?first}
:first;
\endif
:second;
\if :{?third}
:third;
\endif
\if :ERROR
SELECT model.note_error(:'SQLSTATE');
\endif
CALL
my $directory = temporary_directory();
my $script = write_file("$directory/burst.sql", $call x $steps);
my $short_script = write_file("$directory/short.sql", $call x 40);

# The last two are impatient: they hear in_progress.
sub open_sessions
{
	my ($database) = @_;
	my @sessions = map { open_session($node, $database) } (1 .. $number_of_sessions);

	foreach my $n (1 .. $number_of_sessions)
	{
		my $wait = $n > $number_of_sessions - 2 ? '0' : '30s';
		$sessions[ $n - 1 ]->ask("\\o /dev/null\n\\set VERBOSITY sqlstate\n\\set session $n\nSET enable_seqscan = off; SET idem.wait = '$wait'");
	}
	return @sessions;
}

# A burst of all sessions about a tenant that is new.  Returns what they
# complained of, but for errors that a caller can cause and lost races.
sub burst
{
	my ($script, $round, @sessions) = @_;
	my $tenant = "t$round";
	my $n = 0;
	my @complaints;

	# every third tenant has entered an account
	$sessions[0]->ask("SELECT idem_set_channel_account('$tenant', 'alipay', 'a1')") if $round % 3 == 0;
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

# ---- and the twin after them ---------------------------------------------------------

# Bursts, until there are that many or one differs.  While the twin follows a
# burst, the next ones run, one for each follower beyond the first.  Returns the
# complaints, and the differences.  patience: how often the order may be mended.
sub play
{
	my ($database, $script, $bursts, $number_of_followers, $patience) = @_;
	my (@sessions, @followers, @complaints, @differences);

	foreach my $round (1 .. $bursts)
	{
		# a session has its time
		if ($round % 25 == 1)
		{
			push @differences, map { $_->ask('') } @followers;
			$_->close foreach @sessions, @followers;
			@sessions = open_sessions($database);
			@followers = map { open_session($node, $database) } (1 .. $number_of_followers);
			$_->ask("SET enable_seqscan = off; SET model.story = 12; SET model.patience = $patience") foreach @followers;
		}
		push @complaints, burst($script, $round, @sessions);
		$followers[ $round % @followers ]->begin("SELECT model.compare('t$round')");
		push @differences, $followers[ ($round + 1) % @followers ]->ask('');
		last if grep { /\S/ } @differences;
	}
	push @differences, map { $_->ask('') } @followers;
	$_->close foreach @sessions, @followers;
	return (\@complaints, [ grep { /\S/ } @differences ]);
}

if ($fault =~ /^(?:some|all|none)$/)
{
	my ($complaints, $differences) = play('postgres', $script, $rounds, 2, 20);

	is_deeply($complaints, [], 'no deadlock and no other surprise');
	is(scalar(@$differences), 0, "each answer, move and row of $rounds bursts is one that a single session would have had (IDEM_SEED=$seed)")
	  or diag("IDEM_SEED=$seed IDEM_ROUNDS=$rounds IDEM_STEPS=$steps\n$differences->[0]");
	verify_is_empty($node, 'after the bursts');
	indexes_are_whole($node, 'after the bursts');

	note($node->safe_psql('postgres',
		"SELECT call, coalesce(answer->>'sqlstate', answer->>'outcome', ''), count(*) FROM model.log GROUP BY ROLLUP (1, 2) ORDER BY 1, 2"));
}

# ---- faults ------------------------------------------------------------------------

# Triggers that do to a row what a mistake in the code would have done, with the
# constraint that stands in the way taken out of it.
my $unchecked = 'ALTER TABLE idem_receipt DROP CONSTRAINT idem_receipt_sums;';
my %faults = (
	'a reserve is not taken' => [ 'receipt', 'UPDATE', 'NEW.refund_reserved > OLD.refund_reserved AND NEW.refunded = OLD.refunded',
		'NEW.refund_reserved := OLD.refund_reserved;', $unchecked ],
	'a failure frees nothing' => [ 'receipt', 'UPDATE', 'NEW.refund_reserved < OLD.refund_reserved AND NEW.refunded = OLD.refunded',
		'NEW.refund_reserved := OLD.refund_reserved;', $unchecked ],
	'a success counts twice' => [ 'receipt', 'UPDATE', 'NEW.refunded > OLD.refunded',
		'NEW.refunded := 2 * NEW.refunded - OLD.refunded;', $unchecked ],
	'a purchase is paid twice' => [ 'receipt', 'INSERT', "NEW.disposition = 'surplus'",
		"NEW.disposition := 'applied';", "DROP INDEX idem_receipt_applied;
		CREATE INDEX idem_receipt_applied ON idem_receipt (tenant_id, order_id, purchase_no) WHERE disposition = 'applied';" ],
	'an order stays when all went back' => [ 'order', 'UPDATE', "NEW.status = 'refunded'", 'NEW := OLD;', '' ],
	'a campaign grants one too many' => [ 'campaign', 'UPDATE', 'NEW.granted > OLD.granted AND OLD.granted = 0', 'NEW.granted := NEW.granted - 1;', '' ],
	'a refund takes too little of a grant' => [ 'entitlement', 'UPDATE', 'NEW.revoked > OLD.revoked + 1', 'NEW.revoked := NEW.revoked - 1;', '' ],
	'a notification is not remembered' => [ 'notification', 'INSERT', 'true', 'NEW.notify_id := NEW.notify_id || random();', '' ],
	'a won dispute still counts' => [ 'receipt', 'UPDATE', 'NEW.disputed < OLD.disputed', 'NEW.disputed := OLD.disputed;', $unchecked ],
	'a sum is forgotten' => [ 'receipt', 'UPDATE', 'NEW.refund_told <> OLD.refund_told',
		'NEW.refund_told := OLD.refund_told; NEW.refund_told_at := OLD.refund_told_at;', '' ],
	'what fails explains a sum for good' => [ 'refund', 'UPDATE', "NEW.status IN ('failed', 'closed') AND OLD.status = 'processing'", 'NEW.takes_back := true;', '' ],
	'a retry is sent with nothing reserved' => [ 'refund', 'UPDATE', "OLD.status = 'failed' AND NEW.status = 'processing'",
		"UPDATE public.idem_receipt SET refund_reserved = refund_reserved - NEW.amount WHERE tenant_id = NEW.tenant_id AND receipt_no = NEW.receipt_no;", $unchecked ]);

my $n = 0;
my @some = ('a reserve is not taken', 'a success counts twice', 'a sum is forgotten', 'a purchase is paid twice', 'an order stays when all went back', 'a campaign grants one too many');
my @chosen = $fault eq 'all' ? sort keys %faults : $fault eq 'some' ? @some : $fault eq 'none' ? () : ($fault);
foreach my $name (@chosen)
{
	my ($table, $event, $condition, $mistake, $before) = @{ $faults{$name} };
	my $database = 'fault' . ++$n;

	$node->safe_psql('template1', "CREATE DATABASE $database TEMPLATE faultless");
	$node->safe_psql($database, "$before
		CREATE FUNCTION model.mistake() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN $mistake RETURN NEW; END \$\$;
		CREATE TRIGGER mistake BEFORE $event ON idem_$table FOR EACH ROW WHEN ($condition) EXECUTE FUNCTION model.mistake()");
	my ($complaints, $differences) = play($database, $short_script, 15, 1, 2);
	cmp_ok(scalar(@$differences), '>', 0, "found: $name") or diag("IDEM_SEED=$seed IDEM_STEPS=$steps IDEM_FAULT='$name'");
	note($1) if @$differences && $differences->[0] =~ /((?:.*\n){0,3}.*)$/;
	$node->safe_psql('template1', "DROP DATABASE $database");
}

$node->stop;
done_testing();
