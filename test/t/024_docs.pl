# What the documentation shows can be done: every block of SQL in README.md and
# docs/*.md is run, those of a page one after the other in a database of its own.
#
# An example may name what only its reader has: then the call says that there is
# no such thing, or that it is somebody else's.  Anything else is a mistake of the
# page, be it an argument, a column, or a word left out.  Blocks that are no
# statements are not called sql in the page.

use strict;
use warnings;

use IdemTest;
use Test::More;

# Not found, taken over by another, no such token; and what waits for events waits
# no longer than this.
my %is_readers = map { $_ => 1 } qw(ID006 ID005 ID002 57014);
my $patience = '3s';

# What the reader of a page is taken to have made before.
my $ticket = <<'SQL';
CREATE TABLE ticket (id int PRIMARY KEY, seat text, status text, version int NOT NULL DEFAULT 1);
SELECT idem_define_machine('ticket', '{"initial": ["open"], "active": ["open", "doing"], "moves": [{"event": "take", "from": "open", "to": "doing"}]}');
INSERT INTO ticket VALUES (7, 'A1', 'open');
SQL
my $paid = <<'SQL';
SELECT idem_create_payment('acme', 'order-1', 9900, 'CNY', payment_no => 'pay-000001'), idem_confirm_payment('acme', 'pay-000001', 'alipay', 'trade-1', 9900, 'CNY');
SQL
my %scene = (
	'README.md' => 'CREATE SCHEMA shop; CREATE FUNCTION shop.payment_paid(jsonb) RETURNS void LANGUAGE sql AS $$ SELECT $$;',
	'docs/attach.md' => $ticket,
	'docs/entitlement.md' => $paid,
	'docs/hook.md' => 'CREATE SCHEMA shop; CREATE TABLE shop.shop_order (order_id text, status text);',
	'docs/inbox.md' => 'CREATE TABLE ledger (message_id text, amount bigint);',
	'docs/lease.md' => 'CREATE TABLE report (line text);',
	'docs/machine.md' => 'CREATE SCHEMA shop; CREATE FUNCTION shop.may_deliver(jsonb, jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;',
	'docs/move.md' => "$ticket SELECT idem_attach_machine('ticket', 'status', 'ticket', version_column => 'version');",
	'docs/orm.md' => 'CREATE TABLE shop_order (id int PRIMARY KEY, state text, amount bigint, version int NOT NULL DEFAULT 1);');

# blocks_of(PAGE): its SQL, each block by the line that it begins in.
sub blocks_of
{
	my ($page) = @_;
	my $text = read_file($page);
	my @blocks;

	while ($text =~ /^```sql\n(.*?)^```$/msg)
	{
		my $line = 1 + (substr($text, 0, $-[1]) =~ tr/\n//);
		push @blocks, [ $line, $1 ];
	}
	return @blocks;
}

# mistakes_of(DATABASE, LINE, SQL): the errors, by their line in the page.
sub mistakes_of
{
	my ($node, $database, $line, $sql) = @_;
	my ($status, undef, $said) = run_program('psql', '-XqAt', '-h', $node->host, '-p', $node->port, '-v', 'VERBOSITY=sqlstate',
		'-f', write_file(temporary_directory() . '/block.sql', $sql), $database);
	my @mistakes;

	push @mistakes, $said if $status != 0;
	while ($said =~ /:(\d+): ERROR:  (\w{5})/g)
	{
		push @mistakes, 'line ' . ($line + $1 - 1) . ": $2" if !$is_readers{$2};
	}
	return @mistakes;
}

my $node = new_cluster('docs');
$node->safe_psql('postgres', 'CREATE ROLE web; CREATE ROLE webhooks; CREATE ROLE shop; CREATE DATABASE bare;');
$node->safe_psql('postgres', 'CREATE DATABASE whole');
$node->safe_psql('whole', 'CREATE EXTENSION idem');
$node->append_conf('postgresql.conf', "statement_timeout = '$patience'\n");
$node->reload;

my $n = 0;
foreach my $page ('README.md', sort glob('docs/*.md'))
{
	my @blocks = blocks_of($page) or next;
	my $template = $page eq 'docs/install.md' ? 'bare' : 'whole';
	my $database = 'page' . ++$n;

	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE $template");
	$node->safe_psql($database, $scene{$page}) if $scene{$page};
	is(join("\n", map { mistakes_of($node, $database, @$_) } @blocks), '', "$page can be followed");
	$node->safe_psql('postgres', "DROP DATABASE $database");
}
cmp_ok($n, '>', 25, "$n pages show SQL");

$node->stop;
done_testing();
