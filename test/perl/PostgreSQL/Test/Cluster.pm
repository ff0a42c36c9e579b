# PostgreSQL 13 and 14 have this class under its former name.  Their directory
# of Perl modules comes first in the search, so that from 15 on, and in the
# minor releases that have both names, the server's own class is found.

package PostgreSQL::Test::Cluster;

use strict;
use warnings;
use PostgresNode ();

sub new
{
	my ($class, $name, %options) = @_;
	return PostgresNode->get_new_node($name, %options);
}

1;
