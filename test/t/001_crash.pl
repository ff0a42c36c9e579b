# A crash loses nothing that was acknowledged and leaves nothing half done.
#
# pgbench notes a transaction in its log when the answer has come.  Each client
# numbers its orders, so the log says which orders had been created and paid
# when the server was stopped.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $clients = 8;
my $node = new_cluster('crash');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

# What a till does: creates a payment, and the channel confirms it.
my $till = <<'SQL';
\set n :n + 1
SELECT outcome FROM idem_create_payment('till', ':round-:client_id-:n', 100, 'CNY', 'key-:round-:client_id-:n', payment_no => 'pay-:round-:client_id-:n');
SELECT outcome FROM idem_confirm_payment('till', 'pay-:round-:client_id-:n', 'alipay', 'trade-:round-:client_id-:n', 100, 'CNY');
SQL

foreach my $round (1 .. 3)
{
	my $directory = temporary_directory();
	my $script = write_file("$directory/till.sql", $till);
	my $load = begin_program('pgbench', '-n', '-f', $script, '-c', $clients, '-j', 2, '-T', 600, '-M', 'simple',
		'-D', "round=$round", '-D', 'n=0', '-l', '--log-prefix', "$directory/acknowledged",
		'-h', $node->host, '-p', $node->port, 'postgres');

	$node->poll_query_until('postgres',
		"SELECT count(*) > 500 FROM idem_receipt WHERE payment_no LIKE 'pay-$round-%'")
	  or die 'the load does not get going';
	$node->stop('immediate');
	isnt(end_program($load), 0, "round $round: the clients are cut off");

	my %acknowledged;
	foreach my $log (glob "$directory/acknowledged*")
	{
		foreach my $line (split /\n/, read_file($log))
		{
			my ($client, $transaction) = split / /, $line;
			$acknowledged{$client} = $transaction;
		}
	}
	is(scalar(keys %acknowledged), $clients, "round $round: every client had work acknowledged");

	$node->start;
	verify_is_empty($node, "after crash $round");

	my $total = 0;
	$total += $_ foreach values %acknowledged;
	my $told = join ', ', map { "($_, $acknowledged{$_})" } sort keys %acknowledged;
	is( $node->safe_psql('postgres', <<"SQL"), $total, "round $round: all $total acknowledged payments are there and paid");
SELECT count(*) FROM (VALUES $told) AS told (client, last) CROSS JOIN LATERAL generate_series(1, last) AS n
JOIN idem_payment ON tenant_id = 'till' AND payment_no = 'pay-$round-' || client || '-' || n AND status = 'paid'
JOIN idem_receipt r USING (tenant_id, payment_no) WHERE r.disposition = 'applied' AND r.amount = 100
SQL

	# The clients that heard nothing call again.
	$node->safe_psql('postgres', <<"SQL");
SELECT count((idem_create_payment('till', format('%s-%s-%s', $round, client, last + 1), 100, 'CNY',
	format('key-%s-%s-%s', $round, client, last + 1), payment_no => format('pay-%s-%s-%s', $round, client, last + 1))).outcome)
FROM (VALUES $told) AS told (client, last);
SELECT count((idem_confirm_payment('till', format('pay-%s-%s-%s', $round, client, last + 1), 'alipay',
	format('trade-%s-%s-%s', $round, client, last + 1), 100, 'CNY')).outcome)
FROM (VALUES $told) AS told (client, last);
SQL
	is( $node->safe_psql('postgres',
			"SELECT count(*), count(DISTINCT order_id), count(*) FILTER (WHERE status = 'paid') FROM idem_payment WHERE payment_no LIKE 'pay-$round-%'"),
		join('|', ($total + $clients) x 3),
		"round $round: a second call finishes what was cut off, once");
	verify_is_empty($node, "after the second calls of round $round");
}

$node->stop;
done_testing();
