# The log read by logical decoding, as docs/outbox.md configures it for Debezium:
# one INSERT of the root table for each committed event, with the columns that
# the Event Router takes; nothing when a slice is emptied.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('decoding', 'wal_level = logical', 'max_replication_slots = 1', 'max_wal_senders = 1');
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION idem;
CREATE PUBLICATION events FOR TABLE idem_outbox WITH (publish = 'insert', publish_via_partition_root = true);
SELECT pg_create_logical_replication_slot('router', 'pgoutput');
SQL

# ---- events, some of which are not ------------------------------------------------

$node->safe_psql('postgres', <<'SQL');
SELECT outcome FROM idem_create_order('acme', 'order-1', 9900, 'CNY');
BEGIN;
SELECT outcome FROM idem_create_payment('acme', 'order-1', 9900, 'CNY', channel => 'alipay', payment_no => 'payment-1');
SAVEPOINT s;
SELECT idem_publish('acme', 'thing', 'lost', 'thing.lost', '{}');
ROLLBACK TO s;
SELECT idem_publish('acme', 'thing', 'kept', 'thing.kept', '{"n": 1}', '{"trace": "abc"}');
COMMIT;
BEGIN;
SELECT idem_publish('acme', 'thing', 'lost', 'thing.lost', '{}');
ROLLBACK;
SET idem.outbox_retention = 0;
SELECT count(*) FROM idem_sweep();
SELECT count(*) FROM idem_sweep();
SELECT idem_publish('acme', 'thing', 'later', 'thing.later', '{}');
SELECT count(*) FROM idem_sweep();
SQL
is($node->safe_psql('postgres', 'SELECT count(*) FROM idem_outbox_0'), 0, 'the slice of the first events was emptied');
my @told = (
	'order|order-1|order.pending', 'order|order-1|payment.pending', 'thing|kept|thing.kept', 'thing|later|thing.later');

# ---- pgoutput -----------------------------------------------------------------------

# Its messages, version 1: a letter, then what that letter has.
my @messages = split /\n/, $node->safe_psql('postgres', <<'SQL');
SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('router', NULL, NULL, 'proto_version', '1', 'publication_names', 'events')
SQL

my (%relations, @inserts, %kinds);
foreach my $message (map { pack 'H*', $_ } @messages)
{
	my ($kind, $rest) = unpack 'a a*', $message;
	$kinds{$kind}++;
	if ($kind eq 'R')
	{
		(my $id, undef, my $name, undef, my $n, $rest) = unpack 'N Z* Z* a n a*', $rest;
		my @columns = map { (undef, my $column, undef, undef, $rest) = unpack 'C Z* N N a*', $rest; $column } 1 .. $n;
		$relations{$id} = { name => $name, columns => \@columns };
	}
	elsif ($kind eq 'I')
	{
		(my $id, undef, undef, $rest) = unpack 'N a n a*', $rest;
		my %row = (relation => $relations{$id}{name});
		foreach my $column (@{ $relations{$id}{columns} })
		{
			(my $how, $rest) = unpack 'a a*', $rest;
			($row{$column}, $rest) = unpack 'N/a a*', $rest if $how eq 't';
		}
		push @inserts, \%row;
	}
}
is(join(' ', map { $_->{relation} } @inserts), join(' ', ('idem_outbox') x @told), 'events are those of the root table');
is_deeply([ map { join '|', @$_{qw(aggregatetype aggregateid type)} } @inserts ], \@told, 'each committed event is one INSERT, in order');
is(scalar(grep { $_->{id} =~ /^[0-9a-f-]{36}$/ && $_->{payload} =~ /^\{/ && $_->{tenant_id} eq 'acme' } @inserts),
	scalar @told, 'with the columns that the Event Router takes');
is($inserts[2]{headers}, '{"trace": "abc"}', 'and headers');
is(join('', sort grep { !/[BCRY]/ } keys %kinds), 'I', 'and nothing else: a slice that is emptied says nothing');

verify_is_empty($node, 'after all that');
done_testing();
