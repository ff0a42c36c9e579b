# The extension and a naive twin, written from the contract, are asked the same
# questions in one long random walk, and answer the same.
#
# IDEM_SEED chooses the walk, IDEM_STEPS its length.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $seed = $ENV{IDEM_SEED} || 1;
my $steps = $ENV{IDEM_STEPS} || 20_000;
my $story = 250;

# The brake is told of elsewhere: here nothing is ever held.
my $node = new_cluster('model', 'idem.auto_refund_hourly = 1000000');
$node->safe_psql('postgres', join("\n", 'CREATE EXTENSION idem;', map { read_file("test/t/$_.sql") } qw(model ledger model_walk)));

# setseed wants a number from -1 to 1
note("IDEM_SEED=$seed IDEM_STEPS=$steps");
my ($status, $out, $err) = run_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'),
	'-c', "SELECT setseed(($seed % 100000) / 100000.0)", '-c', "CALL model.walk(1, $steps, $story)");
is($status, 0, "$steps steps: the same answers, rows, moves and events (IDEM_SEED=$seed)")
  or diag("IDEM_SEED=$seed IDEM_STEPS=$steps\n$err");
verify_is_empty($node, 'after the walk');

note($node->safe_psql('postgres',
	"SELECT call, coalesce(ours->>'sqlstate', ours->0->>'outcome', ''), count(*) FROM model.steps GROUP BY 1, 2 ORDER BY 1, 2"));

$node->stop;
done_testing();
