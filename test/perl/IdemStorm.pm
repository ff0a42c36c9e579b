# A storm of notifications: the bodies of test/data, and how they are dealt to
# sessions that deliver them at once (test/t/storm.sql).

package IdemStorm;

use strict;
use warnings;

use Exporter 'import';
use IdemTest;
use List::Util qw(shuffle);

our @EXPORT = qw(prepare_storm bodies_of money_among creation_of deal unacknowledged books_of rest_of number_of play_in_order);

# Each body with its channel, in the order in which it happened, set by set.
my @happened;

# prepare_storm(NODE): the extension, what the storms share, and the bodies.
sub prepare_storm
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'CREATE EXTENSION idem');
	$node->safe_psql('postgres', read_file('test/t/storm.sql'));
	foreach my $file (sort glob 'test/data/*.json')
	{
		my ($channel) = $file =~ m{/([a-z]+)_};
		push @happened, map { /^\s+(\{.*\}),?$/ ? [ $channel, $1 ] : () } split /\n/, read_file($file);
	}
	return scalar @happened;
}

# number_of(ROUND): what its identifiers have where those of test/data have 9000000001
sub number_of
{
	my ($round) = @_;
	return sprintf '9%09d', 1000 + $round;
}

sub bodies_of
{
	my ($round) = @_;
	my $no = number_of($round);
	return map { [ $_->[0], $_->[1] =~ s/9000000001/$no/gr ] } @happened;
}

# money_among(DELIVERIES): those that tell of money that arrived
sub money_among
{
	return grep { $_->[1] =~ /TRADE_SUCCESS|TRANSACTION\.SUCCESS|payment_intent\.succeeded/ && $_->[1] !~ /refund_fee/ } @_;
}

# The payment of the set wechat_early is made while its money is told already.
sub creation_of
{
	my ($round) = @_;
	my $no = number_of($round);
	return [ undef, "SELECT idem_create_payment('shop-$round', 'order W04', 8888, 'CNY', payment_no => 'W04-$no')" ];
}

sub literal
{
	my ($text) = @_;
	return 'NULL' unless defined $text;
	$text =~ s/'/''/g;
	return "'$text'";
}

# deal(NODE, ROUND, SESSIONS, DELIVERIES): gives them out in turn
my $dealt = 0;

sub deal
{
	my ($node, $round, $sessions, @deliveries) = @_;
	return unless @deliveries;
	my @rows = map {
		my $n = $dealt++;
		sprintf '(%d, %d, %d, %s, %s)', $round, $n % $sessions, $n, literal($_->[0]), literal($_->[1])
	} @deliveries;
	$node->safe_psql('postgres', 'INSERT INTO delivery (round, session, n, channel, body) VALUES ' . join(', ', @rows));
	return;
}

# unacknowledged(NODE, ROUND): what the channels were told to bring again; they will
sub unacknowledged
{
	my ($node, $round) = @_;
	my $again = $node->safe_psql('postgres', <<"SQL");
WITH again AS (UPDATE delivery SET ack = true WHERE round = $round AND NOT ack AND channel IS NOT NULL RETURNING channel, body)
SELECT DISTINCT channel || E'\\t' || body FROM again
SQL
	return shuffle(map { [ split /\t/, $_, 2 ] } split /\n/, $again);
}

sub books_of
{
	my ($node, $round) = @_;
	my $no = number_of($round);
	return $node->safe_psql('postgres', "SELECT books('shop-$round', '$no')");
}

# rest_of(NODE, ROUND): moves without their event, deliveries not counted once
sub rest_of
{
	my ($node, $round) = @_;
	return $node->safe_psql('postgres', "SELECT unannounced('shop-$round') || ' ' || uncounted('shop-$round', $round)");
}

# play_in_order(NODE, ROUND): what happened, told in order by one session, each once
sub play_in_order
{
	my ($node, $round) = @_;
	my $no = number_of($round);
	my @bodies = bodies_of($round);
	my %is_money = map { $_->[1] => 1 } money_among(@bodies);

	$node->safe_psql('postgres', "CALL set_scene('shop-$round', '$no')");
	deal($node, $round, 1, creation_of($round), money_among(@bodies), [ undef, "SELECT ask_refunds('shop-$round', '$no')" ],
		grep { !$is_money{ $_->[1] } } @bodies);
	$node->safe_psql('postgres', "CALL deliver($round, 0)");
	return;
}

1;
