# Whatever the channels repeat, in whatever order, to however many servers: the
# books are the same.
#
# test/data has what three channels send about sixteen payments, in their own
# shapes.  Each round gives all of it, duplicated and shuffled, to 16 sessions
# that deliver at once; what a channel is not acknowledged it delivers again.
# Round 0 is what happened: one session, in order, each once.  Every other round
# must end with the same books, one event per move, and every delivery counted.
#
# IDEM_SHUFFLES sets how many rounds (60); a round that differs prints its seed,
# and IDEM_SEED starts with that one.

use strict;
use warnings;

use IdemStorm;
use IdemTest;
use List::Util qw(shuffle);
use Test::More;

my $rounds = $ENV{IDEM_SHUFFLES} || 60;
my $first_seed = $ENV{IDEM_SEED} || 1;
my $sessions = 16;

my $node = new_cluster('notification', 'max_connections = 40', "idem.orphan_grace = '1h'");
cmp_ok(prepare_storm($node), '>=', 40, 'there are bodies of three channels');

# ---- what happened ------------------------------------------------------------

play_in_order($node, 0);
is(join('', map { "$_->[1]\n" } unacknowledged($node, 0)), '', 'what happened can be told');
my $expected = books_of($node, 0);
note($expected);
foreach my $line (
	'order order A06: cancelled', 'payment A02-N: closed', 'payment S02-N: closed', 'payment W02-N: review', 'payment W04-N: paid',
	'receipt A03-N: applied 8888 CNY, reserved 3000, refunded 3000, disputed 0, excess 0',
	'receipt A04-N: applied 8888 CNY, reserved 8888, refunded 8888, disputed 0, excess 0',
	'receipt A06-N: late 8888 CNY, reserved 8888, refunded 0, disputed 0, excess 0',
	'receipt S03-N: applied 8888 USD, reserved 8888, refunded 8888, disputed 0, excess 0',
	'receipt S05-N: applied 8888 USD, reserved 0, refunded 0, disputed 8888, excess 0',
	'receipt W03-N: applied 8888 CNY, reserved 6000, refunded 6000, disputed 0, excess 0',
	'grant A04: revoked, 10 of 10 revoked', 'grant A05: revoked, 10 of 10 revoked', 'grant W03: partly_revoked, 6 of 10 revoked', 'grant A01: granted, 0 of 10 revoked',
	'order order A05: refunded', 'refund RS4-N: reversed 3000', 'refund RW3c-N: closed 500', 'anomaly of order A06: late')
{
	like($expected, qr/^\Q$line\E$/m, "it leads to: $line");
}

# ---- and whatever is told of it -------------------------------------------------

my @workers;

# open_workers(): new sessions; a session has its time
sub open_workers
{
	$_->close foreach @workers;
	@workers = map { open_session($node) } 1 .. $sessions;
	return;
}

# deliver(ROUND, DELIVERIES): all sessions at once; returns what they complain of
sub deliver
{
	my ($round, @deliveries) = @_;
	deal($node, $round, $sessions, @deliveries);
	$workers[$_]->begin("CALL deliver($round, $_)") foreach 0 .. $#workers;
	return join '', map { $_->ask('') } @workers;
}

sub repeat_until_acknowledged
{
	my ($round) = @_;
	my $said = '';
	foreach my $attempt (1 .. 20)
	{
		my @again = unacknowledged($node, $round) or return $said;
		$said .= deliver($round, @again);
	}
	return $said . 'never acknowledged';
}

# The refunds that we ask for are asked for before they are told of.
sub play
{
	my ($round, $seed) = @_;
	my ($tenant, $no) = ("shop-$round", number_of($round));
	my @bodies = bodies_of($round);
	my @money = money_among(@bodies);
	my $said = '';

	srand($seed);
	$node->safe_psql('postgres', "CALL set_scene('$tenant', '$no')");
	$said .= deliver($round, shuffle(@money, grep { rand() < 0.5 } @money), creation_of($round));
	$said .= repeat_until_acknowledged($round) if rand() < 0.5;
	$node->safe_psql('postgres', "SELECT ask_refunds('$tenant', '$no')");
	$said .= deliver($round, shuffle(map { my $body = $_; map { $body } 0 .. rand(3) } @bodies));
	return $said . repeat_until_acknowledged($round);
}

my $differ = 0;
foreach my $round (1 .. $rounds)
{
	my $seed = $first_seed + $round - 1;
	open_workers() if $round % 50 == 1;
	my $said = play($round, $seed);
	my $books = books_of($node, $round);
	my $rest = rest_of($node, $round);
	next if $said eq '' && $books eq $expected && $rest eq '0 0';

	diag("seed $seed: unannounced and uncounted $rest; $said");
	my $directory = temporary_directory();
	write_file("$directory/expected", "$expected\n");
	write_file("$directory/books", "$books\n");
	my (undef, $diff) = run_program('diff', '-U0', "$directory/expected", "$directory/books");
	diag($diff) if $differ++ < 5;
}
is($differ, 0, sprintf('%d shuffles, seeds %d to %d, end with the same books', $rounds, $first_seed, $first_seed + $rounds - 1));
$_->close foreach @workers;
verify_is_empty($node, 'after all of them');

$node->stop;
done_testing();
