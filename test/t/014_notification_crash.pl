# A crash in the middle of a storm of notifications: what was answered is there,
# the channels' retries complete the rest, and nothing is done twice.

use strict;
use warnings;

use IdemStorm;
use IdemTest;
use List::Util qw(shuffle);
use Test::More;

my $sessions = 16;
my $node = new_cluster('notification_crash', 'max_connections = 40', "idem.orphan_grace = '1h'");
prepare_storm($node);
play_in_order($node, 0);
my $expected = books_of($node, 0);

# One call a session, so that a session ends with its deliveries.
sub begin_delivering
{
	my ($round) = @_;
	my $script = write_file(temporary_directory() . '/deliver.sql', "CALL deliver($round, :client_id);\n");
	return begin_program('pgbench', '-n', '-f', $script, '-c', $sessions, '-j', 2, '-t', 1, '-M', 'simple',
		'-h', $node->host, '-p', $node->port, 'postgres');
}

# crash_while_delivering(ROUND, WHEN): stop the server once so many were delivered
sub crash_while_delivering
{
	my ($round, $when) = @_;
	my $watch = open_session($node);
	my $storm = begin_delivering($round);
	for (;;)
	{
		last if $watch->ask("SELECT count(*) FROM delivery WHERE round = $round AND ack IS NOT NULL") >= $when;
	}
	$node->stop('immediate');
	end_program($storm);
	$watch->close;
	$node->start;
	return $node->safe_psql('postgres', "SELECT count(*) FROM delivery WHERE round = $round AND ack IS NULL");
}

# What was cut off is told again, and with it what was answered: that answer may be lost.
sub retry
{
	my ($round, @bodies) = @_;
	deal($node, $round, $sessions, shuffle(@bodies));
	foreach my $attempt (1 .. 20)
	{
		is(end_program(begin_delivering($round)), 0, "round $round: the channels deliver again");
		my @again = unacknowledged($node, $round) or return;
		deal($node, $round, $sessions, @again);
	}
	fail("round $round: never acknowledged");
	return;
}

foreach my $round (1 .. 3)
{
	my ($tenant, $no) = ("shop-$round", number_of($round));
	my @bodies = bodies_of($round);
	my @money = money_among(@bodies);

	srand($round);
	$node->safe_psql('postgres', "CALL set_scene('$tenant', '$no')");
	deal($node, $round, $sessions, shuffle((@money) x 80), creation_of($round));
	cmp_ok(crash_while_delivering($round, 50), '>', 0, "round $round: cut off while money is told");
	verify_is_empty($node, "after the first crash of round $round");
	retry($round, @money);

	$node->safe_psql('postgres', "SELECT ask_refunds('$tenant', '$no')");
	deal($node, $round, $sessions, shuffle((@bodies) x 40));
	my $told = $node->safe_psql('postgres', "SELECT count(*) FROM delivery WHERE round = $round AND ack IS NOT NULL");
	cmp_ok(crash_while_delivering($round, $told + 60 * $round), '>', 0, "round $round: cut off while everything is told");
	verify_is_empty($node, "after the second crash of round $round");
	retry($round, @bodies);

	is(books_of($node, $round), $expected, "round $round: the books are those of what happened");
	is(rest_of($node, $round), '0 0', "round $round: one event per move, every delivery counted");
	verify_is_empty($node, "after the retries of round $round");
}

$node->stop;
done_testing();
