# Behind PgBouncer in transaction mode each transaction may meet another
# server connection.  idem needs nothing that lives in a session: 32 clients
# share 8 connections and the main job comes out the same.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('pooled');
my $pool = open_pool($node);
plan skip_all => 'pgbouncer is not installed' unless $pool;
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

# The main job: 32 clients create payments for 200 orders, several for each,
# with keys that repeat, and the channel tells each confirmation more than once.
my $job = <<'SQL';
\set order random(1, 200)
\set tab random(1, 3)
SELECT outcome FROM idem_create_payment('pooled', 'order-' || :order, 100, 'CNY', 'key-' || :order || '-' || :tab);
SELECT outcome FROM idem_confirm_payment('pooled', (SELECT payment_no FROM idem_payment WHERE order_id = 'order-' || :order ORDER BY created_at LIMIT 1), 'alipay', 'trade-' || :order, 100, 'CNY');
BEGIN;
SELECT outcome FROM idem_create_order('pooled', 'cart-' || :order, 50, 'CNY');
SELECT outcome FROM idem_create_payment('pooled', 'cart-' || :order, 50, 'CNY', 'cart-key-' || :order);
END;
SQL
my ($status, $out, $err) = pgbench($pool, $job, '-c', 32, '-j', 2, '-t', 100, '-M', 'simple');
is($status, 0, '32 clients did all their work') or diag("$out$err");
unlike($out, qr/number of failed transactions: [1-9]/, 'and none failed');

is( $node->safe_psql('postgres', <<'SQL'), '200|200|200', 'every order has one payment, paid once');
SELECT count(*), count(DISTINCT order_id), count(*) FILTER (WHERE status = 'paid') FROM idem_payment WHERE order_id LIKE 'order-%'
SQL
is($node->safe_psql('postgres', 'SELECT count(*), sum(amount) FROM idem_receipt'), '200|20000', 'every trade was received once');
is( $node->safe_psql('postgres', "SELECT count(*), count(DISTINCT order_id) FROM idem_payment WHERE order_id LIKE 'cart-%'"),
	'200|200', 'and what was ordered and created in one transaction is there once');
cmp_ok(
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"),
	'<=', 8, 'through 8 connections at most');
verify_is_empty($node, 'behind the pooler');

$node->stop;
done_testing();
