# Plans made on small tables stay good when the tables grow.
#
# A session keeps plans that it made when the tables were empty, or had one row
# and statistics that said so.  Another session then loads a million rows, and
# nothing tells the first to plan again.  What each call reads is counted: a
# plan that scans a table would read millions of rows.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $million = 1_000_000;

# Each call of the main job, ten times, so that plans are generic by then.
# PREFIX keeps one round's keys apart from another's.
sub calls
{
	my ($prefix, $n) = @_;
	my $key = "$prefix-$n";
	my $create = "SELECT payment_no FROM idem_create_payment('plans', '%s', 100, 'CNY', '%s', channel => 'alipay', payment_no => '%s')";
	return (
		"SELECT outcome FROM idem_create_order('plans', 'a$key', 100, 'CNY')",
		sprintf($create, "a$key", "a$key", "no-a$key"),
		sprintf($create, "a$key", "a$key", "no-a$key"),
		"SELECT outcome FROM idem_create_payment('plans', 'a$key', 100, 'CNY', 'again-$key')",
		"SELECT outcome FROM idem_attach_channel_data('plans', 'no-a$key', '{\"qr\": 1}')",
		"SELECT outcome FROM idem_submit_payment('plans', 'no-a$key', 'alipay')",
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-a$key', 'alipay', 'trade-a$key', 100, 'CNY')",
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-a$key', 'alipay', 'trade-a$key', 100, 'CNY')",
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-a$key', 'alipay', 'trade-surplus-a$key', 100, 'CNY')",
		"SELECT outcome FROM idem_ship_order('plans', 'a$key')",
		"SELECT outcome FROM idem_complete_order('plans', 'a$key')",
		sprintf($create, "b$key", "b$key", "no-b$key"),
		"SELECT outcome FROM idem_submit_payment('plans', 'no-b$key', 'alipay')",
		"SELECT outcome FROM idem_begin_close('plans', 'no-b$key')",
		"SELECT outcome FROM idem_finish_close('plans', 'no-b$key', 'closed')",
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-b$key', 'alipay', 'trade-b$key', 99, 'CNY')",
		sprintf($create, "c$key", "c$key", "no-c$key"),
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-c$key', 'alipay', 'trade-c$key', 99, 'CNY')",
		"SELECT outcome FROM idem_resolve_review('plans', 'no-c$key', 'refund', 'wrong amount')",
		sprintf($create, "d$key", "d$key", "no-d$key"),
		"SELECT outcome FROM idem_cancel_request_key('plans', 'd$key')",
		"SELECT outcome FROM idem_cancel_request_key('plans', 'burned-$key')",
		sprintf($create, "e$key", "e$key", "no-e$key"),
		"SELECT outcome FROM idem_fail_payment('plans', 'no-e$key')",
		"SELECT outcome FROM idem_create_order('plans', 'f$key', 100, 'CNY')",
		"SELECT version FROM idem_update_order('plans', 'f$key', 90, 'CNY', 1)",
		"SELECT outcome FROM idem_cancel_order('plans', 'f$key')",
		"SELECT outcome FROM idem_confirm_payment('plans', 'no-orphan-$key', 'alipay', 'trade-o$key', 100, 'CNY')",
		sprintf($create, "o$key", "o$key", "no-orphan-$key"),
		"SELECT outcome FROM idem_receive_notification('plans', 'alipay', 'n$key', 'no-a$key', 'trade-a$key', 'TRADE_SUCCESS', 100, 'CNY')",
		"SELECT outcome FROM idem_receive_notification('plans', 'alipay', 'n$key', 'no-a$key', 'trade-a$key', 'TRADE_SUCCESS', 100, 'CNY')",
		"SELECT outcome FROM idem_receive_notification('plans', 'alipay', 'n$key', 'no-a$key', 'trade-a$key', 'TRADE_SUCCESS', 1, 'CNY')",
		"SELECT outcome FROM idem_receive_notification('plans', 'alipay', 'x$key', 'no-x$key', 'trade-x$key', 'TRADE_CLOSED', 1, 'CNY')",
		"SELECT outcome FROM idem_alipay_notification('{\"notify_id\": \"m$key\", \"out_trade_no\": \"no-a$key\", \"trade_no\": \"trade-a$key\", \"trade_status\": \"TRADE_SUCCESS\", \"total_amount\": \"1.00\", \"refund_fee\": \"0.30\"}')",
		"SELECT idem_tenant_of('alipay', 'load-1', 'no-a$key'), idem_tenant_of('alipay', 'load-1', 'none')",
		"SELECT outcome FROM idem_set_channel_account('plans', 'wechat', 'w$key')",
		"SELECT outcome FROM idem_set_channel_event('plans', 'e$key', false, 'paid')",
		"SELECT outcome FROM idem_set_channel_event('plans', 'e$key', false, 'none')",
		"SELECT outcome FROM idem_set_campaign('plans', 'sale', NULL, 100)",
		"SELECT outcome FROM idem_grant_entitlement('plans', 'g$key', 'u', 'points', 10, 'no-a$key', 'sale')",
		"SELECT outcome FROM idem_grant_entitlement('plans', 'g$key', 'u', 'points', 10, 'no-a$key', 'sale')",
		"SELECT outcome FROM idem_grant_entitlement('plans', 'h$key', 'u', 'points', 10, free => true)",
		"SELECT outcome FROM idem_revoke_entitlement('plans', 'g$key', 'r1', 1)",
		"SELECT count(*) FROM idem_sweep(10)",
		"SELECT outcome FROM idem_request_refund('plans', 'no-a$key', 'r1-$key', 30, 'CNY')",
		"SELECT outcome FROM idem_request_refund('plans', 'no-a$key', 'r1-$key', 30, 'CNY')",
		"SELECT outcome FROM idem_submit_refund('plans', 'r1-$key')",
		"SELECT outcome FROM idem_settle_refund('plans', 'r1-$key', 'failed', 'x1-$key')",
		"SELECT outcome FROM idem_retry_refund('plans', 'r1-$key')",
		"SELECT outcome FROM idem_settle_refund('plans', 'r1-$key', 'succeeded', 'x1-$key')",
		"SELECT outcome FROM idem_settle_refund('plans', NULL, 'succeeded', 'x2-$key', 10, payment_no => 'no-a$key')",
		"SELECT outcome FROM idem_settle_refund('plans', NULL, 'succeeded', 'x3-$key', 10, channel => 'alipay', trade_no => 'trade-a$key')",
		"SELECT outcome FROM idem_request_refund('plans', 'no-a$key', 'r2-$key', 10, 'CNY')",
		"SELECT outcome FROM idem_cancel_refund('plans', 'r2-$key')",
		"SELECT outcome FROM idem_release_refunds('plans', '{r1-$key,r2-$key}')",
		"SELECT outcome FROM idem_record_dispute('plans', 'alipay', '', 'trade-a$key', 'd$key', 'opened', 20, 'CNY')",
		"SELECT outcome FROM idem_record_dispute('plans', 'alipay', '', 'trade-a$key', 'd$key', 'lost', 20, 'CNY')",
		"SELECT outcome FROM idem_acquire_lease('plans', 'l$key', 'w1')",
		"SELECT outcome FROM idem_acquire_lease('plans', 'l$key', 'w2', wait => '0')",
		"SELECT outcome FROM idem_renew_lease('plans', 'l$key', 1, '1 minute')",
		"SELECT idem_assert_lease('plans', 'l$key', 1)",
		"SELECT outcome FROM idem_release_lease('plans', 'l$key', 1)",
		"SELECT outcome FROM idem_acquire_lease('plans', 'l$key', 'w2')",
		"SELECT outcome FROM idem_consume_token('plans', 's', idem_issue_token('plans', 's'))",
		"SELECT outcome FROM idem_create_payment('plans', 't$key', 100, 'CNY', token => idem_issue_token('plans', 'payment'))",
		"SELECT count(*) FROM idem_get_payment('plans', 'no-a$key')",
		"SELECT count(*) FROM idem_find_payment('plans', 'a$key')",
		"SELECT count(*) FROM idem_get_order('plans', 'a$key')",
		"SELECT count(*) FROM idem_get_receipts('plans', 'no-a$key')",
		"SELECT count(*) FROM idem_create_payments('plans', jsonb_build_array(jsonb_build_object('order_id', 'g$key', 'amount', 1, 'currency', 'CNY', 'request_key', 'g$key')))");
}

# A million orders, payments with keys, receipts, refunds, disputes, notifications, anomalies and leases of the same tenant,
# and a tenth of that of grants and of hooks that failed,
# with the triggers that a restore would meet.
my $load = <<"SQL";
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at)
	SELECT 'plans', 'load-' || i, 'paid', 100, 'CNY', now() FROM generate_series(1, $million) i;
INSERT INTO idem_payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, request_key, channel, created_at)
	SELECT 'plans', 'load-' || i, 'load-' || i, 1, 100, 'CNY', 'paid', 'load-' || i, 'alipay', now() FROM generate_series(1, $million) i;
INSERT INTO idem_payment_key (tenant_id, request_key, payment_no, created_at)
	SELECT 'plans', 'bound-' || i, 'load-' || i, now() FROM generate_series(1, $million) i;
INSERT INTO idem_receipt (tenant_id, receipt_no, payment_no, order_id, purchase_no, channel, trade_no, reported_payment_no, amount, currency, disposition, created_at)
	SELECT 'plans', '9' || i, 'load-' || i, 'load-' || i, 1, 'alipay', 'load-' || i, 'load-' || i, 100, 'CNY', 'applied', now() FROM generate_series(1, $million) i;
INSERT INTO idem_notification (tenant_id, channel, notify_id, payment_no, trade_no, kind, digest, outcome, ack, received_at, last_hit_at)
	SELECT 'plans', 'alipay', 'load-' || i, 'load-' || i, 'load-' || i, 'paid', '', 'paid', true, now(), now() FROM generate_series(1, $million) i;
INSERT INTO idem_anomaly (tenant_id, anomaly_no, kind, entity, key, status, opened_at, last_hit_at)
	SELECT 'plans', '8' || i, 'tampered', 'notification', 'load-' || i, 'opened', now(), now() FROM generate_series(1, $million) i;
INSERT INTO idem_refund (tenant_id, refund_no, receipt_no, payment_no, order_id, purchase_no, channel, amount, currency, status, cause, created_at)
	SELECT 'plans', 'load-' || i, '9' || i, 'load-' || i, 'load-' || i, 1, 'alipay', 100, 'CNY', 'cancelled', 'surplus', now() - interval '1 day' FROM generate_series(1, $million) i;
INSERT INTO idem_dispute (tenant_id, channel, account, dispute_no, trade_no, receipt_no, stage, amount, currency, created_at)
	SELECT 'plans', 'alipay', '', 'load-' || i, 'load-' || i, '9' || i, 'won', 100, 'CNY', now() FROM generate_series(1, $million) i;
INSERT INTO idem_lease (tenant_id, name, worker, fence, lease_until, acquired_at)
	SELECT 'plans', 'load-' || i, 'w', 1, now(), now() FROM generate_series(1, $million) i;
INSERT INTO idem_entitlement (tenant_id, grant_key, user_id, benefit, quantity, revoked, status, payment_no, receipt_no, order_id, purchase_no, campaign, on_refund, granted_at)
	SELECT 'plans', 'load-' || i, 'u-' || i, 'points', 10, 5, 'partly_revoked', 'load-' || i, '9' || i, 'load-' || i, 1, 'sale', 'proportional', now() FROM generate_series(1, $million / 10) i;
INSERT INTO idem_revocation (tenant_id, grant_key, revoke_no, quantity, by_refund, created_at)
	SELECT 'plans', 'load-' || i, 'r1', 5, false, now() FROM generate_series(1, $million / 10) i;
INSERT INTO idem_campaign (tenant_id, campaign, created_at) SELECT 'plans', 'load-' || i, now() FROM generate_series(1, $million / 10) i;
INSERT INTO idem_campaign_user (tenant_id, campaign, user_id, granted) SELECT 'plans', 'sale', 'u-' || i, 5 FROM generate_series(1, $million / 10) i;
INSERT INTO idem_hook_failure (tenant_id, entity, key, to_state, version, row_moved, attempts, next_at, sqlstate, message, failed_at)
	SELECT 'plans', 'order', 'load-' || i, 'paid', 1, '{}', 1, now() + interval '1 day', 'P0001', 'no', now() FROM generate_series(1, $million / 10) i;
SQL

# Two scenes, each a database with a session that stays.
my @scenes = (
	{ database => 'empty', title => 'empty tables', rows => '' },
	{
		database => 'one', title => 'tables of one analysed row', rows => <<'SQL' });
SELECT count(*) FROM idem_create_order('plans', 'one', 100, 'CNY');
SELECT count(*) FROM idem_create_payment('plans', 'one', 100, 'CNY', 'one', payment_no => 'no-one');
SELECT count(*) FROM idem_confirm_payment('plans', 'no-one', 'alipay', 'trade-one', 99, 'CNY');
SELECT count(*) FROM idem_acquire_lease('plans', 'one', 'w');
ANALYZE;
SQL

# Tuples read in this transaction, in index entries and in table rows.
my $read = <<'SQL';
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)
	+ (SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0) FROM pg_stat_user_indexes)
FROM pg_stat_xact_user_tables WHERE relname LIKE 'idem\_%'
SQL

# A plan as idem must not keep it, to show that the count would tell.
my $careless = "EXECUTE careless('plans', 'load-1')";

my $node = new_cluster('plans', 'max_wal_size = 8GB', 'wal_level = minimal', 'max_wal_senders = 0');
foreach my $scene (@scenes)
{
	my $database = $scene->{database};
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION idem; $scene->{rows}");
	my $session = $scene->{session} = open_session($node, $database);
	# while the table is as small as it looks
	$session->ask('SET plan_cache_mode = force_generic_plan;'
		  . ' PREPARE careless AS SELECT status FROM idem_payment WHERE tenant_id = $1 AND payment_no = $2');
	$session->ask($careless);
	$session->ask('RESET plan_cache_mode');
	foreach my $n (1 .. 10)
	{
		$session->ask('BEGIN');
		my $errors = join '', grep { /ERROR/ } map { $session->ask($_) } calls('before', $n);
		is($errors, '', "$scene->{title}: every call works") if $n == 1;
		# the tables stay as small as they were
		$session->ask('ROLLBACK');
	}
}

my @loads = map { begin_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c', $load, '-d', $node->connstr($_->{database})) } @scenes;
is(join(' ', map { end_program($_) } @loads), '0 0', 'a million rows are loaded');

foreach my $scene (@scenes)
{
	my ($session, $title) = ($scene->{session}, $scene->{title});
	is( $node->safe_psql($scene->{database},
			"SELECT count(*) FROM pg_stat_all_tables WHERE relname LIKE 'idem%' AND autoanalyze_count > 0"),
		'0', "$title: nobody analysed them");

	$session->ask('BEGIN');
	my ($worst, $most, $last) = ('', 0, $session->ask($read));
	foreach my $call (calls('after', 1))
	{
		my $answer = $session->ask($call);
		my $now = $session->ask($read);
		($worst, $most) = ($call, $now - $last) if $now - $last > $most;
		is($answer, '', "$title: $call") if $answer =~ /ERROR/;
		$last = $now;
	}
	cmp_ok($most, '<', 1000, "$title: no call reads more than a handful of the million rows (the most: $most)")
	  or diag($worst);
	if ($scene->{database} eq 'one')
	{
		$session->ask('SET LOCAL plan_cache_mode = force_generic_plan');
		$session->ask($careless);
		cmp_ok($session->ask($read) - $last, '>', 100_000, "$title: a careless plan would be seen");
	}
	$session->ask('COMMIT');
	$session->close;
}

$node->stop;
done_testing();
