# What surrounds the extension changes nothing that it answers.
#
# Not the caller's search_path: the regress suite passes with the extension in a
# schema that is not on it.  ("scene" is where scripts make tables and functions
# of their own.)  Not the database's encoding: keys made of parts and
# fingerprints of requests are digests of the same bytes everywhere.

use strict;
use warnings;

use IdemTest;
use IdemSuite;
use Test::More;

my $node = new_cluster('surroundings');
prepare_home($node);
$node->safe_psql('home', 'CREATE SCHEMA scene; GRANT USAGE ON SCHEMA scene TO PUBLIC');

run_suite_from($node, path => 'scene');

# ---- encodings ------------------------------------------------------------------

# Each has the characters that its encoding can hold; the client speaks UTF-8.
foreach my $encoding (qw(UTF8 LATIN1 EUC_CN SQL_ASCII))
{
	my $database = lc $encoding;
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($database, 'CREATE EXTENSION idem');
}

sub key_in
{
	my ($encoding, $part) = @_;
	return $node->safe_psql(lc $encoding, "SET client_encoding = 'UTF8'; SELECT idem_key('a', '$part', '')");
}

my $accent = "caf\xc3\xa9";
my $characters = "\xe6\x94\xaf\xe4\xbb\x98";
is(key_in('LATIN1', $accent), key_in('UTF8', $accent), 'LATIN1 makes the same key');
is(key_in('EUC_CN', $characters), key_in('UTF8', $characters), 'so does EUC_CN');
is(key_in('SQL_ASCII', $accent), key_in('UTF8', $accent), 'SQL_ASCII takes the bytes as they come');
isnt(key_in('UTF8', $accent), key_in('UTF8', $characters), 'other parts, another key');

my $fingerprint = <<'SQL';
SET client_encoding = 'UTF8';
SELECT count(*) FROM idem_begin_request('acme', 'latin', 'k', '{"caf\u00e9": "\u00e9t\u00e9", "caf": 1, "zz": 2}');
SELECT encode(fingerprint, 'hex') FROM idem_request WHERE scope = 'latin';
SQL
is($node->safe_psql('latin1', $fingerprint), $node->safe_psql('utf8', $fingerprint), 'and the same fingerprint of a request');

$node->stop;
done_testing();
