# Sixty-four sessions want the last unit: it is granted once, whatever is
# granted, revoked and refunded at the same time.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('entitlement', 'max_connections = 100', 'deadlock_timeout = 100ms');
$node->safe_psql('postgres', 'CREATE EXTENSION idem; CREATE TABLE seen (what text, outcome text)');

sub value { return $node->safe_psql('postgres', $_[0]); }

# storm(WHAT, CALL, OPTION...): every client notes what it was answered
sub storm
{
	my ($what, $call, @options) = @_;
	local $ENV{PGOPTIONS} = "-c idem.wait=5min";
	my ($status, undef, $err) = pgbench($node, "INSERT INTO seen SELECT '$what', outcome FROM $call;\n", @options);
	is($status, 0, "$what: no call fails") or diag($err);
	return value("SELECT string_agg(outcome || ' ' || n, ', ' ORDER BY outcome) FROM (SELECT outcome, count(*) AS n FROM seen WHERE what = '$what' GROUP BY 1) s");
}

# ---- one unit, one key, one user -----------------------------------------------

value("SELECT idem_set_campaign('t', 'one', 1, NULL), idem_set_campaign('t', 'each', NULL, 2), idem_set_campaign('t', 'both', 10, 3)");

is(storm('one unit', "idem_grant_entitlement('t', 'one ' || :client_id, 'u' || :client_id, 'coupon', campaign => 'one')", '-c', 64, '-j', 2, '-t', 1),
	'granted 1, limit_reached 63', '64 grants against a total of one');
is(storm('one key', "idem_grant_entitlement('t', 'key', 'u', 'points', free => true)", '-c', 64, '-j', 2, '-t', 1),
	'duplicate 63, granted 1', '64 grants of one key');
is(storm('one user', "idem_grant_entitlement('t', 'each ' || :client_id, 'u' || :client_id % 4, 'coupon', campaign => 'each')", '-c', 64, '-j', 2, '-t', 1),
	'granted 8, limit_reached 56', '16 grants each of four users against two for each');
is(storm('both', "idem_grant_entitlement('t', 'both ' || :client_id, 'u' || :client_id % 8, 'coupon', campaign => 'both')", '-c', 64, '-j', 2, '-t', 1),
	'granted 10, limit_reached 54', 'eight grants each of eight users against three for each, and ten in all');

# Whoever does not want to wait is told so, and takes nothing.
value("SELECT idem_set_campaign('t', 'hasty', 20, NULL)");
{
	local $ENV{PGOPTIONS} = '-c idem.wait=0';
	my ($status) = pgbench($node, "INSERT INTO seen SELECT 'hasty', outcome FROM idem_grant_entitlement('t', 'hasty ' || :client_id || ' ' || gen_random_uuid(), 'u', 'coupon', campaign => 'hasty');\n",
		'-c', 32, '-j', 2, '-t', 20);
	is($status, 0, 'those who do not wait do not fail');
}
is(value("SELECT count(*) FILTER (WHERE outcome = 'granted') = granted AND granted <= 20 AND bool_and(outcome IN ('granted', 'in_progress', 'limit_reached')) FROM seen, idem_campaign WHERE what = 'hasty' AND campaign = 'hasty' GROUP BY granted"),
	't', 'and take no more than there is');

# ---- grants, revocations and refunds at once -----------------------------------

value(<<'SQL');
SELECT idem_set_campaign('t', 'sale', 60, 12);
SELECT p.outcome, c.outcome, r.made, g.outcome FROM generate_series(1, 8) n,
	idem_create_payment('t', 'o' || n, 100, 'CNY', payment_no => 'pay-00' || n) p,
	idem_confirm_payment('t', CASE p.outcome WHEN 'created' THEN 'pay-00' || n END, 'alipay', 'trade ' || n, 100, 'CNY') c,
	LATERAL (SELECT count(idem_request_refund('t', CASE c.outcome WHEN 'paid' THEN 'pay-00' || n END, 'r' || n || '-' || i, 10, 'CNY')) AS made FROM generate_series(1, 8) i) r,
	idem_grant_entitlement('t', CASE r.made WHEN 8 THEN 'whole ' || n END, 'u', 'points', 100, 'pay-00' || n) g;
SQL
my @mix = (
	"SELECT outcome FROM idem_grant_entitlement('t', 'k' || :n || '-' || :m, 'u' || :n % 5, 'coupon', :n % 3 + 1, 'pay-00' || :m, 'sale');\n",
	"SELECT outcome FROM idem_grant_entitlement('t', 'g' || :n, 'u' || :n % 5, 'coupon', campaign => 'sale');\n",
	"SELECT outcome FROM (SELECT grant_key FROM idem_entitlement WHERE tenant_id = 't' AND campaign = 'sale' ORDER BY random() LIMIT 1) e, idem_revoke_entitlement('t', grant_key, 'by hand ' || :m, 1);\n",
	"SELECT outcome FROM idem_settle_refund('t', 'r' || :m || '-' || (:n % 8 + 1), 'succeeded');\n",
	"SELECT outcome FROM idem_set_campaign('t', 'sale', 40 + :n, 12);\n");
my @programs = map {
	my $file = temporary_directory() . '/mix.sql';
	write_file($file, "\\set n random(1, 40)\n\\set m random(1, 8)\n$_");
	local $ENV{PGOPTIONS} = '-c idem.wait=1min';
	begin_program('pgbench', '-n', '-f', $file, '-c', 6, '-j', 1, '-T', 8, '-h', $node->host, '-p', $node->port, 'postgres');
} @mix;
is(end_program($_), 0, 'grants, revocations, refunds and limits in each other\'s way: none fails') foreach @programs;
value("SELECT count(idem_settle_refund('t', 'r' || n || '-' || i, 'succeeded')) FROM generate_series(1, 8) n, generate_series(1, 8) i");
is(value("SELECT count(*), sum(quantity) FROM idem_revocation WHERE by_refund AND grant_key LIKE 'whole %'"), '64|640', 'each refund took its tenth, once');
cmp_ok(value("SELECT count(*) FROM idem_entitlement WHERE campaign = 'sale'"), '>', 20, 'many were granted something');
is(value("SELECT granted <= ceiling AND granted = (SELECT sum(quantity - withheld - revoked) FROM idem_entitlement WHERE campaign = 'sale') FROM idem_campaign WHERE campaign = 'sale'"),
	't', 'and the campaign counts what is left');
verify_is_empty($node, 'after all of it');

# ---- a crash ---------------------------------------------------------------------

value("SELECT idem_set_campaign('t', 'crash', 1000, NULL)");
my $file = temporary_directory() . '/crash.sql';
write_file($file, "\\set n random(1, 1000000)\nINSERT INTO seen SELECT 'crash', outcome FROM idem_grant_entitlement('t', 'crash ' || :n, 'u', 'coupon', campaign => 'crash');\n");
my $storm = begin_program('pgbench', '-n', '-f', $file, '-c', 8, '-T', 60, '-h', $node->host, '-p', $node->port, 'postgres');
$node->poll_query_until('postgres', "SELECT granted > 100 FROM idem_campaign WHERE campaign = 'crash'");
$node->stop('immediate');
end_program($storm);
$node->start;
is(value("SELECT granted = (SELECT count(*) FROM seen WHERE what = 'crash' AND outcome = 'granted') FROM idem_campaign WHERE campaign = 'crash'"),
	't', 'after a crash everything counted was granted, and noted');
verify_is_empty($node, 'after a crash');

$node->stop;
done_testing();
