# The documentation shows each built-in machine as it is: the diagrams are
# what idem_machine_diagram returns.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('diagram');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

my $page = read_file('docs/machine.md');
my @shown = $page =~ /^<!-- diagram: (\w+) -->$/mg;
is(join("\n", sort @shown), $node->safe_psql('postgres', 'SELECT name FROM idem_machine WHERE builtin ORDER BY name'),
	'docs/machine.md shows every built-in machine, once');

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
my ($status, $drawn, $error) = run_program('test/run/diagrams', 'docs/machine.md');
is("$status$error", '0', 'the diagrams can be drawn');
is($drawn, $page, 'and are those of the page (else: test/run/diagrams docs/machine.md)');

$node->stop;
done_testing();
