# The regress suite once more, in other circumstances: the same scripts, the
# same expected output, but another schema, search_path and role.
#
# The scripts name the extension's objects without a schema, and what is to be
# shown is that nothing inside the extension needs them on the search_path.  So
# the scripts are rewritten: each name that the catalog knows as the
# extension's gets its schema.  The output is compared with those schemas
# taken out again, and without regard to the widths of columns.

package IdemSuite;

use strict;
use warnings;

use Exporter 'import';
use IdemTest;
use Test::More;

our @EXPORT = qw(prepare_home run_suite_from);

# prepare_home(NODE): a template database with idem in a schema that is on
# nobody's path.  Everybody may look into it, as they may into public.
sub prepare_home
{
	my ($node) = @_;
	$node->safe_psql('postgres', 'CREATE DATABASE home');
	$node->safe_psql('home', 'CREATE SCHEMA idem; CREATE EXTENSION idem SCHEMA idem; GRANT USAGE ON SCHEMA idem TO PUBLIC');
	return;
}

# The names of tables, views, functions and row types, longest first.
sub names_of_extension
{
	my ($node) = @_;
	return split /\n/, $node->safe_psql('home', <<'SQL');
SELECT DISTINCT name FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
	CROSS JOIN LATERAL (
		SELECT relname FROM pg_class WHERE oid = d.objid AND d.classid = 'pg_class'::regclass
		UNION ALL SELECT proname FROM pg_proc WHERE oid = d.objid AND d.classid = 'pg_proc'::regclass
		UNION ALL SELECT typname FROM pg_type WHERE oid = d.objid AND d.classid = 'pg_type'::regclass) AS n (name)
WHERE e.extname = 'idem' AND d.deptype = 'e' AND name LIKE 'idem%' ORDER BY name DESC
SQL
}

# qualify(SCRIPT, NAMES): names outside of quotes; within them those that are
# names by what stands before or after.  Comments and quoted identifiers stay.
sub qualify
{
	my ($script, @names) = @_;
	my $name = '(?:' . join('|', @names) . ')';
	my $alone = qr/(?<![\w."])(?<!TRIGGER )(?<!RENAME TO )($name)\b/;
	my $quoted = qr/'(?:[^']|'')*'/;

	$script =~ s{(--[^\n]*|/\*.*?\*/|"(?:[^"]|"")*")|($quoted)|$alone(?!\s*=>)}{
		defined $1 ? $1 : defined $3 ? "idem.$3" : qualify_literal($2, $`, $', $alone)
	}gse;
	$script =~ s/^(CREATE EXTENSION idem);/$1 SCHEMA idem;/mg;
	$script =~ s/\b((?:DROP|ALTER|REINDEX) INDEX\s+)(?=idem_)/$1idem./g;
	# which of the tables of that name
	$script =~ s/\brelname = ('idem_\w+')/relid = $1::regclass/g;
	$script =~ s/\brelid = '(?=idem_)/relid = 'idem./g;
	return $script;
}

# qualify_literal(LITERAL, BEFORE, AFTER, ALONE): the name of a relation or a
# function where it is used as one; a signature or a statement where it is one.
sub qualify_literal
{
	my ($literal, $before, $after, $alone) = @_;
	my $is_name = $after =~ /^\s*::\s*reg/
	  || $before =~ /\b(?:setval|nextval|currval|to_reg\w+|pg_\w*size|has_\w+_privilege)\([^()]*$/;

	if ($is_name)
	{
		$literal =~ s/(?<![\w."])(?=idem_)/idem./g;
		return $literal;
	}
	$literal =~ s/$alone(?=\s*\()/idem.$1/g;
	$literal =~ s/\b((?:FROM|INTO|UPDATE|JOIN|TABLE|ONLY|ON|TRUNCATE)\s+)$alone/$1idem.$2/g;
	return $literal;
}

# statements_of(SCRIPT): its lines, a statement each, or several that share a
# line, or a command of psql's; with the comments before it, and what COPY reads
# after it.
my $SPACE = qr{\A(?:\s+|--[^\n]*\n|/\*.*?\*/)*}s;
my $TOKEN = qr{--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$.*?\$\g{-1}\$|\\[^\n]*|\w+|[ \t]+|.}s;

sub statements_of
{
	my ($script) = @_;
	my @statements = ('');
	my $ended = 0;

	while ($script =~ /\G($TOKEN)/gc)
	{
		my $token = $1;
		$ended = $token =~ /^\\/ || $token eq ';' if $token !~ m{^(?:\s|--|/\*)};
		$statements[-1] .= $token;
		next unless $ended && $token eq "\n";
		$statements[-1] .= $1 if $statements[-1] =~ /\bFROM stdin;\n\z/ && $script =~ /\G(.*?^\\\.\n)/gcms;
		push @statements, '';
		$ended = 0;
	}
	return @statements;
}

# share_out(SCRIPT, API, CALLER, WRITER): the script for a session of WRITER, a
# superuser, who does what takes one: writing to our tables, making roles and
# triggers, settings, calling what is the owner's alone.  All else is CALLER's,
# and whatever calls a function of the API, a name in API.  A role that the
# script sets itself stays set.
#
# A switch is a marked line before the statement, since no expected output has
# it.  In a transaction that has failed it fails, as the statement after it does.
my $SWITCH = qr/^SET ROLE \w+; -- switch\n(?:(?:ERROR|LOCATION): .*\n)*/m;
my $TRANSACTION = qr/\A(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b/;
my $WRITES = qr/\A(?:INSERT|UPDATE|DELETE|TRUNCATE|MERGE|COPY|CREATE|ALTER|DROP|GRANT|REVOKE|DO)\b
	|\A(?:SET|RESET)\ (?:LOCAL\ )?(?:ROLE\b|session_replication_role\b|idem\.)
	|\AWITH\ [^;]*\b(?:INSERT|UPDATE|DELETE)\b|\bsetval\(|\bidem\.idem_\w+\(|\\gexec\b/x;

sub share_out
{
	my ($script, $api, $caller, $writer) = @_;
	my $shared = '';
	my $role_is_set = 0;

	foreach (statements_of($script))
	{
		my ($space) = /($SPACE)/;
		my $statement = substr $_, length $space;
		my $who = $statement !~ /\bidem\.$api\(/ && $statement =~ $WRITES ? $writer : $caller;
		my $stays = $role_is_set || $statement =~ /^\\/ || $statement =~ $TRANSACTION || $statement eq '';

		$shared .= $space . ($stays ? '' : "SET ROLE $who; -- switch\n") . $statement;
		$role_is_set = 1 if $statement =~ /^SET (?:LOCAL )?ROLE\b/;
		$role_is_set = 0 if $statement =~ /^(?:RESET ROLE|ROLLBACK);/;
	}
	return $shared;
}

sub normal
{
	my ($text) = @_;
	$text =~ s/$SWITCH//g;
	$text =~ s/\b(?:idem|public)\.(?=idem_)//g;
	$text =~ s/^(CREATE EXTENSION idem) SCHEMA idem;/$1;/mg;
	$text =~ s/\b(must be owner of schema) (?:idem|public)\b/$1 .../g;
	$text =~ s/\brelid = ('idem_\w+')::regclass/relname = $1/g;
	$text =~ s/-{2,}/-/g;
	$text =~ s/[ \t]+/ /g;
	$text =~ s/ $//mg;
	$text =~ s/\s*\z/\n/;
	return $text;
}

# run_suite_from(NODE, OPTIONS): every script in a database of its own.
#   path      the search_path
#   without   the names of scripts to leave out, as keys
#   role      sub: script name -> login role (none: the superuser), and the role
#             that calls the API, where the first is to write only (see share_out)
#   before    statements that the session runs first, unseen
#   after     the same, last; what they print is a failure
sub run_suite_from
{
	my ($node, %option) = @_;
	my @names = names_of_extension($node);
	my $api = join '|', split /\n/, $node->safe_psql('home', 'SELECT DISTINCT function_name FROM idem.idem_capability');
	my @scripts = split ' ', $ENV{IDEM_REGRESS} || '';

	@scripts = map { m{([^/]+)\.sql$} } glob 'test/sql/*.sql' unless @scripts;
	ok(@scripts > 0, 'there are scripts');
	foreach my $script (grep { !$option{without}{$_} } @scripts)
	{
		my $text = read_file("test/sql/$script.sql");
		my ($role, $caller) = $option{role} ? $option{role}->($script) : ();
		$text = qualify($text, @names);
		$text = share_out($text, qr/(?:$api)/, $caller, $role) if $caller;
		$node->safe_psql('postgres', 'CREATE DATABASE suite TEMPLATE home');
		my $output = run_script($node, \%option, $role, $text);
		compare($script . ($caller ? " as $caller, with $role" : $role ? " as $role" : ''), $script, $output);
		$node->safe_psql('postgres', 'DROP DATABASE suite');
	}
	return;
}

# As pg_regress would run it.
sub run_script
{
	my ($node, $option, $role, $script) = @_;
	local $ENV{PGOPTIONS} = "-c search_path=$option->{path} -c intervalstyle=postgres_verbose";
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	local $ENV{PGTZ} = 'PST8PDT';
	local $ENV{PGDATESTYLE} = 'Postgres, MDY';
	my $output = '';
	my $before = $option->{before} || '';
	my $after = $option->{after} || '';
	$script = "\\set ECHO none\n$before\n\\set ECHO all\n$script\n\\set ECHO none\n$after\n";
	my @as = $role ? ('-U', $role) : ();
	IPC::Run::run([ 'psql', '-X', '-a', '-q', '-h', $node->host, '-p', $node->port, @as, 'suite' ],
		'<', \$script, '>', \$output, '2>&1');
	$output =~ s/^\\set ECHO none\n//;
	$output =~ s/\n\\set ECHO none\n//;
	return $output;
}

# One test a script; where it fails, a diff.
sub compare
{
	my ($title, $script, $output) = @_;
	my @expected = grep { -f } "expected/$script.out", glob "expected/${script}_[0-9].out";
	my $ours = normal($output);
	foreach my $file (@expected)
	{
		my $theirs = normal(read_file($file));
		return pass($title) if $ours eq $theirs;
	}
	fail($title);
	my $directory = temporary_directory();
	write_file("$directory/expected", @expected ? normal(read_file($expected[0])) : '');
	write_file("$directory/result", $ours);
	my (undef, $diff) = run_program('diff', '-U3', "$directory/expected", "$directory/result");
	diag($diff);
	return;
}

1;
