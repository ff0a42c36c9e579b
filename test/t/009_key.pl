# A key made of parts is the same whatever the database's encoding.

use strict;
use warnings;

use IdemTest;
use Test::More;

my $node = new_cluster('key');
my %digest;

# Each has the characters that its encoding can hold; the client speaks UTF-8.
foreach my $encoding (qw(UTF8 LATIN1 EUC_CN SQL_ASCII))
{
	my $database = lc $encoding;
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($database, 'CREATE EXTENSION idem');
	$digest{$encoding} = sub { $node->safe_psql($database, "SET client_encoding = 'UTF8'; SELECT idem_key('a', '$_[0]', '')") };
}

my $accent = "caf\xc3\xa9";
my $characters = "\xe6\x94\xaf\xe4\xbb\x98";
is($digest{LATIN1}->($accent), $digest{UTF8}->($accent), 'LATIN1');
is($digest{EUC_CN}->($characters), $digest{UTF8}->($characters), 'EUC_CN');
is($digest{SQL_ASCII}->($accent), $digest{UTF8}->($accent), 'SQL_ASCII takes the bytes as they come');
isnt($digest{UTF8}->($accent), $digest{UTF8}->($characters), 'other parts, another key');

$node->stop;
done_testing();
