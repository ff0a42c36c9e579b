# The four steps of an order, in a table of a shop's own and through an ORM: the
# program of test/clients/orm.  Two sessions that do the same at once are both seen
# at the order, which is locked, before either may go on.

use strict;
use warnings;

use IdemTest;
use Test::More;

# the distribution's own: it has the packages
my $python = '/usr/bin/python3';
plan skip_all => 'python3-sqlalchemy (1.4 or later) and python3-psycopg2 are not installed'
  unless -x $python && (run_program($python, '-c', 'import psycopg2, sqlalchemy; from sqlalchemy.orm import declarative_base'))[0] == 0;

my $node = new_cluster('orm');
$node->safe_psql('postgres', read_file('test/clients/orm/schema.sql'));
# two that are at one order wait for each other
$node->safe_psql('postgres', "ALTER ROLE shop SET idem.wait = '1min'");
$ENV{ORDERS_DATABASE} = 'host=' . $node->host . ' port=' . $node->port . ' user=shop dbname=postgres';

my @program = ($python, '-B', 'test/clients/orm/orders.py');

sub said
{
	my ($out, $err) = @_;
	chomp $out;
	return $err eq '' ? $out : $err;
}

# orders(COMMAND...): what the program prints.
sub orders
{
	my (undef, $out, $err) = run_program(@program, @_);
	return said($out, $err);
}

sub sql { return $node->safe_psql('postgres', $_[0]) }

# error_of(SQL): what psql says when the shop runs it.
sub error_of
{
	my (undef, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET ROLE shop; $_[0]");
	return $error;
}

# ---- one after another ------------------------------------------------------------

is(orders('place', 'tea', 4900), '待支付 1', 'an order is placed');
is(orders('ship', 'tea'), 'illegal 待支付 None 1', 'it is not shipped before it is paid');
is(orders('complete', 'tea'), 'illegal 待支付 None 1', 'nor completed');
is(orders('pay', 'tea'), 'moved 待支付 已支付 2', 'it is paid');
is(orders('pay', 'tea'), 'duplicate 待支付 已支付 2', 'paid again: nothing happens');
is(orders('pay', 'milk'), 'not_found None None None', 'an order that is not there');
is(orders('complete', 'tea'), 'illegal 已支付 None 2', 'a step cannot be skipped');
is(orders('ship', 'tea'), 'moved 已支付 已发货 3', 'it is shipped');
is(orders('ship', 'tea'), 'duplicate 已支付 已发货 3', 'shipped again: no second parcel');
is(orders('complete', 'tea', 2), 'stale 已发货 None 3', 'who has seen an older order is told so');
is(orders('complete', 'tea', 3), 'moved 已发货 已完成 4', 'it is completed');
is(orders('pay', 'tea'), 'illegal 已完成 None 4', 'which is the end');
is(sql("SELECT count(*) FROM shop_parcel WHERE order_no = 'tea'"), '1', 'one parcel was sent');
is(sql(<<'SQL'), "|待支付|1\n待支付|已支付|2\n已支付|已发货|3\n已发货|已完成|4", 'the history tells every step, once');
SELECT from_state, to_state, version FROM idem_history_of('shop_order', '{"order_no": "tea"}') ORDER BY version
SQL

# ---- by attribute, and past the program -------------------------------------------

is(orders('place', 'rice', 300), '待支付 1', 'another is placed');
like(orders('set', 'rice', '已发货'), qr/^refused: .*待支付.*已发货.*已支付/s, 'by attribute no step is skipped either, and the legal one is named');
is(orders('show', 'rice'), '待支付 1', 'and nothing of it stays');
is(sql('SELECT count(*) FROM shop_parcel'), '1', 'the parcel neither');
is(orders('set', 'rice', '已支付'), 'moved', 'the next step is taken');
is(orders('set', 'rice', '已支付'), 'duplicate', 'once');
is(orders('show', 'rice'), '已支付 2', 'and counted once, by mapping and guard');
like(orders('set', 'rice', '已取消'), qr/^refused: /, 'a state that there is not');
like(orders('set_all', '已完成'), qr/^refused: /, 'all at once, without the mapping');
like(error_of("UPDATE shop_order SET state = '已完成' WHERE order_no = 'rice'"), qr/ID003/, 'by SQL of the shop');
like(error_of("INSERT INTO shop_order VALUES ('rice', 1) ON CONFLICT (order_no) DO UPDATE SET state = '待支付'"), qr/ID003/, 'by an upsert');
like(error_of("INSERT INTO shop_order VALUES ('free', 1, '已支付')"), qr/ID003/, 'by a birth that is paid');
like(error_of("UPDATE shop_order SET amount = 1 WHERE order_no = 'rice'"), qr/ID007/, 'the amount stays');
like(error_of("DELETE FROM shop_order WHERE order_no = 'rice'"), qr/ID007/, 'and so does the order');

# ---- two sessions at once -----------------------------------------------------------

# both(ORDER, COMMAND...): what two of the same say that meet at the order.
sub both
{
	my ($order, @command) = @_;
	my $session = open_session($node);
	$session->ask("BEGIN; SELECT FROM shop_order WHERE order_no = '$order' FOR UPDATE");
	my @rivals = map { begin_program(@program, @command) } 1 .. 2;
	$node->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = 'shop' AND state = 'active'")
	  or die 'they do not come';
	$session->ask('COMMIT');
	$session->close;
	end_program($_) foreach @rivals;
	return join ', ', sort map { said($_->{out}, $_->{err}) } @rivals;
}

orders('place', $_, 100) foreach qw(move attribute pay);
is(both('pay', 'pay', 'pay'), 'duplicate 待支付 已支付 2, moved 待支付 已支付 2', 'two sessions take the money at once: one does');
orders('pay', $_) foreach qw(move attribute);
is(both('move', 'ship', 'move'), 'duplicate 已支付 已发货 3, moved 已支付 已发货 3', 'two sessions ship at once: one does');
is(both('attribute', 'set', 'attribute', '已发货'), 'duplicate, moved', 'by attribute: the slower one looks again, and finds it done');
is(sql("SELECT order_no, count(*) FROM shop_parcel WHERE order_no IN ('move', 'attribute') GROUP BY 1 ORDER BY 1"),
	"attribute|1\nmove|1", 'one parcel for each');
is(sql("SELECT count(*) FROM idem_history_of('shop_order', '{\"order_no\": \"attribute\"}')"), '3', 'and one step');

verify_is_empty($node, 'after all that');
$node->stop;
done_testing();
