# Hooks under load: what fails is tried again until it succeeds, by whichever
# sweep comes first, and happens once.  A session that is killed in a hook
# leaves nothing.  And the example of the documentation works.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('hook');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

sub value { return $node->safe_psql('postgres', $_[0]); }

# ---- the example ------------------------------------------------------------------

my ($example) = read_file('docs/hook.md') =~ /```sql\n(.*?)```/s;
value('CREATE SCHEMA shop; CREATE TABLE shop.shop_order (order_id text PRIMARY KEY, status text)');
value($example);
value("INSERT INTO shop.shop_order VALUES ('order-1', 'open')");
value("SELECT idem_create_payment('acme', 'order-' || n, 100, 'CNY', payment_no => 'pay-00000' || n) FROM generate_series(1, 2) n");
is(value("SELECT outcome FROM idem_confirm_payment('acme', 'pay-000001', 'alipay', 't1', 100, 'CNY')"), 'paid', 'a payment is paid');
is(value("SELECT status FROM shop.shop_order WHERE order_id = 'order-1'"), 'paid', 'and the shop\'s own order with it');
is(value("SELECT outcome FROM idem_confirm_payment('acme', 'pay-000002', 'alipay', 't2', 100, 'CNY')"), 'paid', 'another is paid');
is(value("SELECT kind, key, why FROM idem_stuck WHERE tenant_id = 'acme'"),
	'hook_failed|pay-000002|the hook of payment.paid has failed, attempts 1: P0001 the shop knows no order order-2', 'which the shop does not know');
value("INSERT INTO shop.shop_order VALUES ('order-2', 'open')");
is(value("SELECT outcome FROM idem_retry_hooks('payment', 'paid')"), 'scheduled', 'mended, it is to be tried again');
value('SELECT * FROM idem_sweep()');
is(value("SELECT status FROM shop.shop_order WHERE order_id = 'order-2'"), 'paid', 'and succeeds');
is(value("SELECT count(*) FROM idem_stuck WHERE tenant_id = 'acme'"), '0', 'nothing is stuck any more');
is(value("SELECT outcome FROM idem_remove_hook('payment', 'paid')"), 'removed', 'the hook is removed');

# ---- killed in a hook ---------------------------------------------------------------

value(<<'SQL');
CREATE FUNCTION shop.sleep(moved jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); END';
SELECT idem_set_hook('order', 'pending', 'shop.sleep(jsonb)');
SQL
foreach my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $sleeper = begin_program('psql', '-X', '-d', $node->connstr('postgres'), '-c', "SELECT idem_create_order('killed', 'o', 1, 'CNY')");
	$node->poll_query_until('postgres', "SELECT count($how(pid)) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
	isnt(end_program($sleeper), 0, "$how ends a call whose hook hangs");
	is(value("SELECT count(*) FROM idem_order WHERE tenant_id = 'killed'"), '0', 'and nothing has happened');
	is(value('SELECT count(*) FROM idem_hook_failure'), '0', 'nor failed');
}
value("SELECT idem_remove_hook('order', 'pending')");

# ---- a storm ------------------------------------------------------------------------

# Every third call fails; so does every third retry.
value(<<'SQL');
CREATE TABLE shop.heard (order_id text, at timestamptz DEFAULT clock_timestamp());
CREATE SEQUENCE shop.luck;
CREATE FUNCTION shop.hear(moved jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO shop.heard VALUES (moved ->> 'order_id');
	IF nextval('shop.luck') % 3 = 0 THEN
		RAISE EXCEPTION 'no luck';
	END IF;
END $$;
SELECT idem_set_hook('order', 'pending', 'shop.hear(jsonb)');
SQL
my ($status) = pgbench($node, "SELECT idem_create_order('storm', 'o' || :client_id || '-' || nextval('shop.luck'), 1, 'CNY');\n", '-c', 16, '-j', 2, '-t', 50);
is($status, 0, '800 orders are created, though hooks fail');
is(value("SELECT count(*) FROM idem_order WHERE tenant_id = 'storm'"), '800', 'all of them');
cmp_ok(value('SELECT count(*) FROM idem_hook_failure'), '>', 100, 'hooks did fail');
foreach my $round (1 .. 20)
{
	value("SELECT idem_retry_hooks('order', 'pending')");
	pgbench($node, "SELECT * FROM idem_sweep(20);\n", '-c', 8, '-j', 2, '-t', 2);
	last if value('SELECT count(*) FROM idem_hook_failure') eq '0';
}
is(value('SELECT count(*) FROM idem_hook_failure'), '0', 'eight sweeps at once try all of it again');
is(value('SELECT count(*), count(DISTINCT order_id) FROM shop.heard'), '800|800', 'each was heard of, once');
is(value("SELECT count(*) FROM idem_anomaly WHERE status = 'opened'"), '0', 'and every anomaly is resolved');
verify_is_empty($node, 'after the storm');

$node->stop;
done_testing();
