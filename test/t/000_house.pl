# The rules of the house, as far as a program can see them.

use strict;
use warnings;

use IdemTest;
use Test::More;

sub stems
{
	my ($pattern) = @_;
	return sort map { m{([^/]+)\.\w+$} } glob $pattern;
}

sub same_names
{
	my ($title, $got, $expected) = @_;
	return is(join(' ', sort @$got), join(' ', sort @$expected), $title);
}

# ---- every test runs, and has an output ----------------------------------------

my @regress = split ' ', $ENV{IDEM_REGRESS} || '';
my @isolation = split ' ', $ENV{IDEM_ISOLATION} || '';
same_names('REGRESS names the scripts of test/sql', \@regress, [ stems('test/sql/*.sql') ]);
same_names('ISOLATION names the specs of test/specs', \@isolation, [ stems('test/specs/*.spec') ]);
same_names('each of them has an output in expected, and each output a test',
	[ grep { !/_\d$/ } stems('expected/*.out') ], [ @regress, @isolation ]);
same_names('a spec is named after its module and the race', [ grep { /_race$/ } @isolation ], \@isolation);
# pg_regress would take sql/NAME.sql for a test of that name
my %script = map { $_ => 1 } stems('sql/*.sql');
same_names('no test bears the name of an extension script', [ grep { $script{$_} } @regress ], []);

my %number;
$number{ (m{(\d+)_})[0] }++ foreach glob 'test/t/*.pl';
same_names('no two TAP tests share a number', [ grep { $number{$_} > 1 } keys %number ], []);

# ---- one version ---------------------------------------------------------------

my ($version) = read_file('idem.control') =~ /^default_version *= *'(.*)'/m;
my ($meta) = split /"meta-spec"/, read_file('META.json');
my @versions = $meta =~ /"version": "(.*?)"/g;
is("@versions", "$version $version", 'META.json has the version of the control file');
like(read_file('CHANGELOG.md'), qr/^## \Q$version\E\b/m, 'and so has CHANGELOG.md');

# ---- the documentation ---------------------------------------------------------

my %linked;
foreach my $page ('README.md', glob 'docs/*.md')
{
	my ($folder) = $page =~ m{^(.*/)?};
	my @links = map { s/#.*//r } grep { !/^(?:\w+:|#)/ } read_file($page) =~ /\]\(([^)\s]+)\)/g;
	my @paths = map { ($folder || '') . $_ } @links;
	same_names("$page links to what is there", [ grep { !-e } @paths ], []);
	$linked{$_} = 1 foreach $page eq 'docs/README.md' ? @paths : ();
}
same_names('docs/README.md links to every page', [ grep { !$linked{$_} && $_ ne 'docs/README.md' } glob 'docs/*.md' ], []);
my $pages = join '', map { read_file($_) } glob 'docs/*.md';

# ---- the sources -----------------------------------------------------------------

same_names('SQL_PARTS names the parts of sql/parts', [ split ' ', $ENV{IDEM_PARTS} || '' ], [ stems('sql/parts/*.sql') ]);

foreach my $file (glob 'src/*.c src/*.h')
{
	my $text = read_file($file);
	my @lines = split /\n/, $text;
	cmp_ok(scalar(@lines), '<=', 800, "$file has one subject");
	unlike($text, qr/PG_VERSION_NUM/, "$file knows no release") unless $file eq 'src/compat.h';
	like($text, qr{\A/\*-+\n \* \w+\.[ch]\n \*\t}, "$file begins with what it promises");

	my ($name, $begin, @long) = ('', 0);
	foreach my $n (0 .. $#lines)
	{
		($name, $begin) = ($1, $n) if $lines[$n] =~ /^(\w+)\(/;
		push @long, "$name (" . ($n - $begin + 1) . ')' if $lines[$n] =~ /^\}$/ && $name && $n - $begin >= 70;
		$name = '' if $lines[$n] =~ /^\}/;
	}
	is("@long", '', "$file has no function longer than 70 lines");
}

foreach my $file (glob 'sql/parts/*.sql')
{
	my $text = read_file($file);
	$text =~ s{/\*.*?\*/|--[^\n]*}{}gs;
	unlike($text, qr/\bOR REPLACE\b|\bIF NOT EXISTS\b|\bplpgsql\b|^DO\b|\bCREATE POLICY\b/im, "$file can be neither captured nor half done");
}

# ---- the library -----------------------------------------------------------------

my (undef, $symbols) = run_program('nm', '-D', '--defined-only', $ENV{IDEM_LIBRARY} || '');
my %exported = map { /^\S+ T (\w+)/ ? ($1 => 1) : () } split /\n/, $symbols;
my @stray = grep { !/^(_PG_init|Pg_magic_func|pg_finfo_\w+)$/ && !$exported{"pg_finfo_$_"} } sort keys %exported;
ok($exported{_PG_init}, 'the library is to be found');
is("@stray", '', 'and shows nothing but what SQL calls');

# ---- the database ------------------------------------------------------------------

my $node = new_cluster('house');
$node->safe_psql('postgres', 'CREATE EXTENSION idem');

my $members = <<'SQL';
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
WHERE e.extname = 'idem' AND d.deptype = 'e'
SQL

is($node->safe_psql('postgres', <<"SQL"), '', 'every table, view, function and row type has a comment');
SELECT object FROM ($members) m
WHERE obj_description(objid, classid::regclass::name) IS NULL
	AND ((classid = 'pg_class'::regclass AND (SELECT relkind IN ('r', 'v') FROM pg_class WHERE oid = objid))
		OR (classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_class c WHERE c.reltype = objid AND c.relkind = 'c'))
		OR (classid = 'pg_proc'::regclass AND (SELECT prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) FROM pg_proc WHERE oid = objid)))
ORDER BY 1
SQL

my @functions = split /\n/, $node->safe_psql('postgres', <<"SQL");
SELECT DISTINCT proname FROM ($members) m JOIN pg_proc p ON p.oid = objid
WHERE classid = 'pg_proc'::regclass AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
SQL
same_names('every function has its place in docs', [ grep { $pages !~ /\b$_\b/ } @functions ], []);

is($node->safe_psql('postgres', <<"SQL"), '', 'PUBLIC may execute nothing and read nothing');
SELECT object FROM ($members) m
WHERE (classid = 'pg_proc'::regclass AND has_function_privilege('public', objid, 'EXECUTE'))
	OR (classid = 'pg_class'::regclass AND (SELECT relkind IN ('r', 'v', 'S') FROM pg_class WHERE oid = objid)
		AND (has_table_privilege('public', objid, 'SELECT') OR has_table_privilege('public', objid, 'INSERT')
			OR has_table_privilege('public', objid, 'UPDATE') OR has_table_privilege('public', objid, 'DELETE')))
ORDER BY 1
SQL

# but idem_capability, which is a part of the program, and marks, which mean nothing elsewhere
is($node->safe_psql('postgres', <<"SQL"), '', 'every table and sequence is dumped with the database');
SELECT object FROM ($members) m
WHERE classid = 'pg_class'::regclass AND (SELECT relkind IN ('r', 'S') FROM pg_class WHERE oid = objid)
	AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'idem' AND objid = ANY (extconfig))
	AND object <> 'table idem_capability' AND object NOT LIKE 'table idem\_outbox\_mark\__'
ORDER BY 1
SQL

is($node->safe_psql('postgres', <<"SQL"), '', 'no function is SECURITY DEFINER, has a SET clause or is PL/pgSQL');
SELECT object FROM ($members) m JOIN pg_proc p ON p.oid = objid JOIN pg_language l ON l.oid = prolang
WHERE classid = 'pg_proc'::regclass AND (prosecdef OR proconfig IS NOT NULL OR lanname NOT IN ('c', 'sql'))
SQL

# but payments, whose number is also looked for alone, and used tokens, which are swept by their expiry
is($node->safe_psql('postgres', <<"SQL"), '', 'every table of a tenant\'s has the tenant first in its key');
SELECT object FROM ($members) m
JOIN pg_attribute a ON a.attrelid = objid AND a.attname = 'tenant_id'
JOIN pg_index i ON i.indrelid = objid AND i.indisprimary
WHERE classid = 'pg_class'::regclass AND i.indkey[0] <> a.attnum AND object NOT IN ('table idem_access', 'table idem_parked_event', 'table idem_dead_event',
		'table idem_payment', 'table idem_token_used')
SQL

$node->stop;
done_testing();
