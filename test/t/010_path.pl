# Nothing inside depends on the caller's search_path: the regress suite passes
# with the extension in a schema that is not on it.  ("scene" is where scripts
# make tables and functions of their own.)

use strict;
use warnings;

use IdemTest;
use IdemSuite;
use Test::More;

my $node = new_cluster('path');
prepare_home($node);
$node->safe_psql('home', 'CREATE SCHEMA scene; GRANT USAGE ON SCHEMA scene TO PUBLIC');

run_suite_from($node, path => 'scene');

$node->stop;
done_testing();
