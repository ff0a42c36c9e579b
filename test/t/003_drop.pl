# Nobody drops live payments by accident, and dropping on purpose leaves a
# session that works.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('drop');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE house SUPERUSER LOGIN;
CREATE SCHEMA till AUTHORIZATION house;
SET ROLE house;
CREATE EXTENSION idem SCHEMA till;
CREATE TABLE till.bystander (id int);
SQL

my @drops = ('DROP EXTENSION idem', 'DROP EXTENSION IF EXISTS idem CASCADE', 'DROP SCHEMA till CASCADE', 'DROP OWNED BY house CASCADE');

# outcome_of(SQL): SQLSTATE and message of the error, or ''.
sub outcome_of
{
	my ($sql) = @_;
	my (undef, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET client_min_messages = warning;\n$sql");
	return $error;
}

sub extension_is_there
{
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'idem'");
}

# Without a row of the user's there is nothing to lose.
foreach my $drop (@drops)
{
	is(outcome_of("BEGIN; $drop; ROLLBACK;"), '', "$drop is allowed while there are no rows");
}

$node->safe_psql('postgres', "SELECT till.idem_create_payment('t', 'o', 100, 'CNY', 'k')");

foreach my $drop (@drops)
{
	my $error = outcome_of("$drop;");
	like($error, qr/ID007/, "$drop is refused over live rows with ID007");
	like($error, qr/HINT:.*idem\.allow_drop/, '... and the hint says what to do');
	is(extension_is_there(), 1, '... and nothing is gone');
}

# Bystanders pass.
is(outcome_of('DROP TABLE till.bystander; CREATE TABLE till.bystander (id int);'), '', 'another table of the schema may go');
is(outcome_of('CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.t (id int); DROP SCHEMA elsewhere CASCADE;'),
	'', 'another schema may go');
is(outcome_of('CREATE ROLE guest; DROP OWNED BY guest; DROP ROLE guest;'), '', 'what others own may go');

foreach my $drop (@drops)
{
	is(outcome_of("BEGIN; SET LOCAL idem.allow_drop = on; $drop; ROLLBACK;"), '', "$drop passes with idem.allow_drop");
}
is(extension_is_there(), 1, 'and was rolled back');

# Drop and create in one session: the plans and rules kept for the old schema
# are not used for the new one.
my $session = open_session($node);
my $call = "SELECT outcome, order_id FROM %s.idem_create_payment('t', '%s', 100, 'CNY', 'k')";
is($session->ask(sprintf $call, 'till', 'o'), 'replayed|o', 'the session works in the first schema');
is($session->ask('SET idem.allow_drop = on; DROP EXTENSION idem;'), '', 'the extension is dropped');
is($session->ask('CREATE SCHEMA shop; CREATE EXTENSION idem SCHEMA shop;'), '', 'and made again in another schema');
is($session->ask(sprintf $call, 'shop', 'o2'), 'created|o2', 'the same session makes a payment there');
is($session->ask(sprintf $call, 'shop', 'o2'), 'replayed|o2', 'and finds it again');
is( $session->ask("SELECT outcome, status FROM shop.idem_confirm_payment('t', (SELECT payment_no FROM shop.idem_payment), 'alipay', 't1', 100, 'CNY')"),
	'paid|paid', 'and pays it');
is($session->ask('SELECT count(*) FROM shop.idem_history'), '2', 'with history');
is($session->ask('SELECT count(*) FROM shop.idem_verify()'), '0', 'and nothing broken');
is($session->ask('ALTER SCHEMA shop RENAME TO store'), '', 'the schema is renamed under it');
is($session->ask(sprintf $call, 'store', 'o2'), 'replayed|o2', 'and it still works');
$session->ask("SELECT store.idem_create_payment('t', 'o3', 100, 'CNY')");
is($session->ask('SELECT count(*) FROM store.idem_payment'), '2', 'writes included');
$session->close;

$node->stop;
done_testing();
