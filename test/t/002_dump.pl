# A dump and a restore lose nothing, repeat nothing and tell nobody anything
# again: the same calls replay in the restored database.  Nor do they lend
# anybody rights that somebody else had.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $source = new_cluster('source');

# The first role of a cluster: the next cluster's first role has its OID.
$source->safe_psql('postgres', <<'SQL');
CREATE ROLE till LOGIN;
CREATE ROLE desk LOGIN;
CREATE EXTENSION idem;
SELECT idem_allow('till', 'client', 'kinds');
SELECT idem_allow('desk', 'auditor');
CREATE SCHEMA kept;
SQL
make_every_kind($source);
my ($used, $fresh) = map { $source->safe_psql('postgres', "SELECT idem_issue_token('kinds', 'payment', '24 hours')") } (1, 2);
$source->safe_psql('postgres', "SELECT idem_create_payment('kinds', 'token', 5, 'CNY', token => '$used', payment_no => 'pay-token')");
verify_is_empty($source, 'before the dump');

my @tables = split /\n/, $source->safe_psql('postgres', <<'SQL');
SELECT c.relname FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
WHERE e.extname = 'idem' AND d.deptype = 'e' AND c.relkind = 'r' ORDER BY 1
SQL

# Row counts and a digest of all rows, table by table.  A notification that is
# repeated and an anomaly that recurs count a hit, which is all that a repetition
# may change.
sub contents
{
	my ($node, $database) = @_;
	return join "\n", map {
		"$_ " . $node->safe_psql($database,
			"SELECT count(*), md5(coalesce(string_agg(r, E'\\n' ORDER BY r COLLATE \"C\"), '')) FROM"
			  . " (SELECT CASE WHEN '$_' IN ('idem_anomaly', 'idem_notification') THEN (to_jsonb(t) - '{hits,version,last_hit_at}'::text[])::text ELSE t::text END FROM $_ t) AS rows (r)")
	} @tables;
}

my $before = contents($source, 'postgres');
my $answers = make_every_kind($source);
is(contents($source, 'postgres'), $before, 'the same calls again change nothing at the source');

my $directory = temporary_directory();
my @at_source = ('-h', $source->host, '-p', $source->port);

# restored(NAME, HOW): a fresh cluster with the dump in it.
sub check_restored
{
	my ($node, $how) = @_;
	is(contents($node, 'postgres'), $before, "$how: every row of every table is back, and no other");
	verify_is_empty($node, "after restore ($how)");
	is(make_every_kind($node), $answers, "$how: the same calls get the answers of a repetition");
	is(contents($node, 'postgres'), $before, "$how: and wrote nothing, history and outbox included");
	is( $node->safe_psql('postgres', "SELECT outcome FROM idem_create_payment('kinds', 'new', 5, 'CNY', 'key-new')"),
		'created', "$how: new payments are made");
	is( $node->safe_psql('postgres', "SELECT outcome, payment_no FROM idem_create_payment('kinds', 'token', 5, 'CNY', token => '$used')"),
		'replayed|pay-token', "$how: a token that was used leads to its payment");
	is( $node->safe_psql('postgres', "SELECT outcome FROM idem_consume_token('kinds', 'payment', '$fresh')"),
		'consumed', "$how: one that was not is honoured");
	is( $node->safe_psql('postgres',
			"SET ROLE till; SELECT outcome FROM idem_create_payment('kinds', 'new', 5, 'CNY', 'key-new')"),
		'replayed', "$how: a role has the rights that it had");
	my ($status, undef, $error) = $node->psql('postgres',
		"SET ROLE till; SELECT * FROM idem_create_payment('other', 'new', 5, 'CNY')");
	like($error, qr/tenant/, "$how: and no others");

	# what was paid since the dump is forgotten: its money may look superfluous
	is( $node->safe_psql('postgres', "SELECT outcome FROM idem_confirm_payment('kinds', 'pay-surplus', 'alipay', 'trade-surplus-3', 80, 'CNY')"),
		'surplus', "$how: superfluous money is recorded");
	is( $node->safe_psql('postgres', <<'SQL'), 'held|opened', "$how: and goes back by itself only once a human has looked");
SELECT r.outcome, a.status FROM idem_receipt c, idem_submit_refund(c.tenant_id, 'A' || c.receipt_no) r, idem_anomaly a
WHERE c.trade_no = 'trade-surplus-3' AND a.tenant_id = 'kinds' AND a.kind = 'auto_refund_held'
SQL
	$node->safe_psql('postgres', <<'SQL');
SELECT idem_resolve_anomaly(tenant_id, anomaly_no, 'looked', 'restored on purpose') FROM idem_anomaly WHERE kind = 'auto_refund_held';
SELECT idem_release_refunds(tenant_id, ARRAY['A' || receipt_no]) FROM idem_receipt WHERE trade_no = 'trade-surplus-3';
SELECT idem_confirm_payment('kinds', 'pay-surplus', 'alipay', 'trade-surplus-4', 80, 'CNY');
SQL
	is( $node->safe_psql('postgres', <<'SQL'), 'processing|processing', "$how: from then on it does, as before");
SELECT string_agg(r.outcome, '|') FROM idem_receipt c, idem_submit_refund(c.tenant_id, 'A' || c.receipt_no) r WHERE c.trade_no IN ('trade-surplus-3', 'trade-surplus-4')
SQL
}

# Plain, as one file.
{
	my $target = new_cluster('plain');
	$target->safe_psql('postgres', 'CREATE ROLE till LOGIN; CREATE ROLE desk LOGIN');
	my ($status, undef, $error) = run_program('pg_dump', @at_source, '-f', "$directory/plain.sql", 'postgres');
	is("$status$error", '0', 'pg_dump to a plain file says nothing');
	($status, undef, $error) = run_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$directory/plain.sql",
		'-d', $target->connstr('postgres'));
	is("$status$error", '0', 'the plain file restores without a word');
	check_restored($target, 'plain');

	# Once more over the same database: a dump with --clean has to drop the
	# extension, which is refused while it has rows.
	($status, undef, $error) =
	  run_program('pg_dump', @at_source, '--clean', '--if-exists', '-f', "$directory/clean.sql", 'postgres');
	is("$status$error", '0', 'pg_dump --clean says nothing');
	my @again = ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$directory/clean.sql", '-d', $target->connstr('postgres'));
	($status, undef, $error) = run_program(@again);
	like($error, qr/idem\.allow_drop/, 'restoring over live rows is refused');
	{
		local $ENV{PGOPTIONS} = '-c idem.allow_drop=on';
		($status, undef, $error) = run_program(@again);
		is("$status$error", '0', 'and works with idem.allow_drop');
	}
	is(contents($target, 'postgres'), $before, 'with the rows of the dump');
	$target->stop;
}

# Custom, restored by two processes, into a cluster where the first role is
# another one.
{
	my $target = new_cluster('custom');
	$target->safe_psql('postgres', 'CREATE ROLE stranger LOGIN; CREATE ROLE desk LOGIN; CREATE ROLE till LOGIN');
	my $oid_of = sub { $_[0]->safe_psql('postgres', "SELECT oid FROM pg_roles WHERE rolname = '$_[1]'") };
	is($oid_of->($target, 'stranger'), $oid_of->($source, 'till'), 'the stranger has the OID that till had');

	my ($status, undef, $error) = run_program('pg_dump', @at_source, '-Fc', '-f', "$directory/custom", 'postgres');
	is("$status$error", '0', 'pg_dump -Fc says nothing');
	($status, undef, $error) =
	  run_program('pg_restore', '-j', '2', '--exit-on-error', '-d', $target->connstr('postgres'), "$directory/custom");
	is("$status$error", '0', 'pg_restore -j 2 says nothing');
	check_restored($target, 'custom');

	(undef, undef, $error) = $target->psql('postgres',
		"SET ROLE stranger; SELECT * FROM idem_create_payment('kinds', 'stranger', 5, 'CNY')");
	like($error, qr/permission denied/, 'a role with the OID of another has none of its rights');
	$target->stop;
}

# A dropped role's rights wait for nobody.
{
	$source->safe_psql('postgres', 'DROP OWNED BY till; DROP ROLE till; CREATE ROLE till LOGIN; CREATE ROLE thief LOGIN');
	foreach my $role (qw(till thief))
	{
		my (undef, undef, $error) = $source->psql('postgres',
			"SET ROLE $role; SELECT * FROM idem_create_payment('kinds', 'stolen', 5, 'CNY')");
		like($error, qr/permission denied/, "after DROP ROLE till, a new role $role has no rights");
	}
}

$source->stop;
done_testing();
