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

use IdemTest;
use List::Util qw(shuffle);
use Test::More;

my $rounds = $ENV{IDEM_SHUFFLES} || 60;
my $first_seed = $ENV{IDEM_SEED} || 1;
my $sessions = 16;

my $node = new_cluster('notification', 'max_connections = 40', 'fsync = off', "idem.orphan_grace = '1h'");
$node->safe_psql('postgres', 'CREATE EXTENSION idem');
$node->safe_psql('postgres', read_file('test/t/storm.sql'));

# Each body with its channel, in the order in which it happened, set by set.
my @happened;
foreach my $file (sort glob 'test/data/*.json')
{
	my ($channel) = $file =~ m{/([a-z]+)_};
	push @happened, map { /^\s+(\{.*\}),?$/ ? [ $channel, $1 ] : () } split /\n/, read_file($file);
}
cmp_ok(scalar(@happened), '>=', 40, 'there are bodies of three channels');

# The payment of the set wechat_early is made while its money is told already.
my $create_late = sub {
	my ($tenant, $no) = @_;
	return [ undef, "SELECT idem_create_payment('$tenant', 'order W04', 8888, 'CNY', payment_no => 'W04-$no')" ];
};

sub literal
{
	my ($text) = @_;
	return 'NULL' unless defined $text;
	$text =~ s/'/''/g;
	return "'$text'";
}

# deal(ROUND, SESSIONS, DELIVERIES): gives them out in turn
my $dealt = 0;

sub deal
{
	my ($round, $hands, @deliveries) = @_;
	my @rows = map {
		my $n = $dealt++;
		sprintf '(%d, %d, %d, %s, %s)', $round, $n % $hands, $n, literal($_->[0]), literal($_->[1])
	} @deliveries;
	$node->safe_psql('postgres', 'INSERT INTO delivery (round, session, n, channel, body) VALUES ' . join(', ', @rows)) if @rows;
	return;
}

my @workers = map { open_session($node) } 1 .. $sessions;

# All sessions deliver what they have, at once.
sub deliver_all
{
	my ($round) = @_;
	$workers[$_]->begin("CALL deliver($round, $_)") foreach 0 .. $#workers;
	return join '', map { $_->ask('') } @workers;
}

# What is not acknowledged comes again, shuffled.
sub repeat_until_acknowledged
{
	my ($round, $said) = @_;
	foreach my $attempt (1 .. 20)
	{
		my @again = map { [ split /\t/, $_, 2 ] } split /\n/,
		  $node->safe_psql('postgres', "SELECT channel || E'\\t' || body FROM delivery WHERE round = $round AND NOT ack AND channel IS NOT NULL");
		return $said unless @again;
		$node->safe_psql('postgres', "UPDATE delivery SET ack = true WHERE round = $round AND NOT ack");
		deal($round, $sessions, shuffle(@again));
		$said .= deliver_all($round);
	}
	return $said . 'never acknowledged';
}

# The refunds that we ask for exist before their notifications do.
sub play
{
	my ($round, @later) = @_;
	my $tenant = "shop-$round";
	my $no = sprintf '9%09d', 1000 + $round;
	my @bodies = map { [ $_->[0], $_->[1] =~ s/9000000001/$no/gr ] } @happened;
	my @money = grep { $_->[1] =~ /TRADE_SUCCESS|TRANSACTION\.SUCCESS|payment_intent\.succeeded/ && $_->[1] !~ /refund_fee/ } @bodies;
	my %is_money = map { $_->[1] => 1 } @money;
	my $said = '';

	$node->safe_psql('postgres', "CALL set_scene('$tenant', '$no')");
	if ($round == 0)
	{
		deal(0, 1, $create_late->($tenant, $no), @money, [ undef, "SELECT ask_refunds('$tenant', '$no')" ], grep { !$is_money{ $_->[1] } } @bodies);
		$node->safe_psql('postgres', 'CALL deliver(0, 0)');
	}
	else
	{
		srand($round + $first_seed - 1);
		my @copies = map { my $body = $_; map { $body } 0 .. rand(3) } @bodies;
		# we ask for refunds of money that is there, but it is told again at any time
		deal($round, $sessions, shuffle(@money, grep { rand() < 0.5 } @money), $create_late->($tenant, $no));
		$said .= deliver_all($round);
		$said = repeat_until_acknowledged($round, $said) if rand() < 0.5;
		$node->safe_psql('postgres', "SELECT ask_refunds('$tenant', '$no')");
		deal($round, $sessions, shuffle(@copies));
		$said .= deliver_all($round);
	}
	return repeat_until_acknowledged($round, $said);
}

# ---- what happened ------------------------------------------------------------

is(play(0), '', 'what happened can be told');
my $expected = $node->safe_psql('postgres', "SELECT books('shop-0', '9000001000')");
note($expected);
foreach my $line (
	'order order A06: cancelled', 'payment A02-N: closed', 'payment S02-N: closed', 'payment W02-N: review', 'payment W04-N: paid',
	'receipt A03-N: applied 8888 CNY, reserved 3000, refunded 3000, disputed 0, excess 0',
	'receipt A04-N: applied 8888 CNY, reserved 8888, refunded 8888, disputed 0, excess 0',
	'receipt A06-N: late 8888 CNY, reserved 8888, refunded 0, disputed 0, excess 0',
	'receipt S03-N: applied 8888 USD, reserved 8888, refunded 8888, disputed 0, excess 0',
	'receipt S05-N: applied 8888 USD, reserved 0, refunded 0, disputed 8888, excess 0',
	'receipt W03-N: applied 8888 CNY, reserved 6000, refunded 6000, disputed 0, excess 0',
	'order order A05: refunded', 'refund RS4-N: reversed 3000', 'refund RW3c-N: closed 500', 'anomaly of order A06: late')
{
	like($expected, qr/^\Q$line\E$/m, "it leads to: $line");
}

# ---- and whatever is told of it -------------------------------------------------

my $differ = 0;
foreach my $round (1 .. $rounds)
{
	my $said = play($round);
	my ($tenant, $no, $seed) = ("shop-$round", sprintf('9%09d', 1000 + $round), $round + $first_seed - 1);
	my $books = $node->safe_psql('postgres', "SELECT books('$tenant', '$no')");
	my $rest = $node->safe_psql('postgres', "SELECT unannounced('$tenant') || ' ' || uncounted('$tenant', $round)");
	next if $said eq '' && $books eq $expected && $rest eq '0 0';

	$differ++;
	diag("seed $seed: unannounced and uncounted $rest; $said");
	my $directory = temporary_directory();
	write_file("$directory/expected", "$expected\n");
	write_file("$directory/books", "$books\n");
	my (undef, $diff) = run_program('diff', '-U0', "$directory/expected", "$directory/books");
	diag($diff) if $differ <= 5;
}
is($differ, 0, sprintf('%d shuffles, seeds %d to %d, end with the same books', $rounds, $first_seed, $first_seed + $rounds - 1));
$_->close foreach @workers;
verify_is_empty($node, 'after all of them');

$node->stop;
done_testing();
