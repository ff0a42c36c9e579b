# Nothing that a caller plants is called: the regress suite passes as a role
# that has nothing but what idem_allow gave it, and that has planted a twin of
# every operator and function of the server first on its search_path, types
# with the names of the server's, and tables and types with the names of ours,
# there and in pg_temp.
#
# The twins do what the server's do, since the scripts' own statements call
# them too.  They raise where they find themselves called from inside: as the
# extension's owner, or by a statement that C code runs.

use strict;
use warnings;

use IdemTest;
use IdemSuite;
use Test::More;

my $node = new_cluster('trap');
prepare_home($node);
my $owner = $node->safe_psql('postgres', 'SELECT current_user');

# Scripts that do what takes a superuser: load rows as a restore does, make
# roles, triggers and indexes, change settings.  mighty does that for mallory,
# who makes every call of the API.  (A new script that fails for want of rights
# belongs here.)
my %helped = map { $_ => 1 } qw(errors machine define outbox direct direct_change key order payment_life receipt lease verify stuck brake dispute notification subscription inbox);

# In these a superuser is the subject: who gives rights to roles, who drops the
# extension (its owner), who owns the tables that are attached.  The calls between are
# made by roles that the scripts make.
my %alone = (access => 'mighty', drop_guard => $owner, map { $_ => 'mighty' } qw(attach move bypass));

# catalog calls nothing of the extension: it asks the server's own catalogs, over
# which the twins, being PL/pgSQL, take minutes.  hook has the caller's own functions
# called from inside, where the twins spring, as they should anywhere else.
my %without = (catalog => 1, hook => 1);

$node->safe_psql('home', <<"SQL");
CREATE ROLE mallory LOGIN;
CREATE ROLE mighty LOGIN SUPERUSER IN ROLE "$owner";
CREATE SCHEMA trap AUTHORIZATION mallory;
GRANT USAGE, CREATE ON SCHEMA trap TO PUBLIC;
-- what mighty makes for mallory's scenes
ALTER DEFAULT PRIVILEGES FOR ROLE mighty GRANT ALL ON TABLES TO mallory;
ALTER DEFAULT PRIVILEGES FOR ROLE mighty GRANT ALL ON SEQUENCES TO mallory;
ALTER DEFAULT PRIVILEGES FOR ROLE mighty GRANT ALL ON SCHEMAS TO mallory;
ALTER DEFAULT PRIVILEGES FOR ROLE mighty GRANT ALL ON FUNCTIONS TO mallory;
SQL

$node->safe_psql('home', <<'SQL');
SET ROLE mallory;

-- Where am I called from?  A statement of PL/pgSQL names its function in the
-- next line; one that C code runs does not.
CREATE FUNCTION trap.spring() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
	stack text;
BEGIN
	GET DIAGNOSTICS stack = PG_CONTEXT;
	IF stack ~ '(^|\n)SQL statement "[^\n]*"(\n(?!PL/pgSQL function)|$)'
		OR (current_user <> session_user AND current_user = (SELECT rolname FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner WHERE extname = 'idem'))
	THEN
		RAISE EXCEPTION 'TRAPPED as %', current_user USING DETAIL = stack;
	END IF;
END $$;

DO $plant$
DECLARE
	types oid[] := '{bool,int2,int4,int8,text,varchar,bpchar,name,bytea,timestamptz,timestamp,date,interval,uuid,jsonb,json,numeric,float8,oid,regclass,"char",text[],int4[],int8[]}'::regtype[]::oid[];
	twin record;
	n int := 0;
BEGIN
	FOR twin IN
		SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result
		FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft = ANY (types) AND oprright = ANY (types) AND oprresult = ANY (types)
	LOOP
		n := n + 1;
		EXECUTE format('CREATE FUNCTION trap.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql STRICT AS '
			'$f$ BEGIN PERFORM trap.spring(); RETURN $1 OPERATOR(pg_catalog.%s) $2; END $f$',
			n, twin.l, twin.r, twin.result, twin.oprname);
		EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.operator_%s)',
			twin.oprname, twin.l, twin.r, n);
	END LOOP;

	FOR twin IN
		SELECT proname, pg_get_function_identity_arguments(p.oid) AS arguments, prorettype::regtype AS result, pronargs, proisstrict,
			(SELECT string_agg('$' || i, ', ' ORDER BY i) FROM generate_series(1, pronargs) i) AS passed,
			(SELECT string_agg(a::regtype::text, ', ' ORDER BY i) FROM unnest(proargtypes) WITH ORDINALITY AS a (a, i)) AS types
		FROM pg_proc p
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset AND provariadic = 0
			AND proargtypes::oid[] <@ types AND prorettype = ANY (types) AND proargmodes IS NULL
			AND NOT EXISTS (SELECT FROM pg_type t WHERE t.typinput = p.oid OR t.typoutput = p.oid OR t.typsend = p.oid OR t.typreceive = p.oid)
	LOOP
		EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql %s AS '
			'$f$ BEGIN PERFORM trap.spring(); RETURN pg_catalog.%I(%s); END $f$',
			twin.proname, twin.types, twin.result, CASE WHEN twin.proisstrict THEN 'STRICT' ELSE '' END, twin.proname, twin.passed);
	END LOOP;
END $plant$;

-- Tables and types of ours.
DO $plant$
DECLARE
	ours text;
BEGIN
	FOR ours IN SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('CREATE TABLE trap.%I (trapped text)', ours);
	END LOOP;
	FOR ours IN SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'c' LOOP
		EXECUTE format('CREATE TYPE trap.%I AS (trapped text)', ours);
	END LOOP;
END $plant$;

-- Types of the server's, which check, and casts.
CREATE FUNCTION trap.passes(anyelement) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.spring(); RETURN true; END $$;
DO $plant$
DECLARE
	theirs text;
BEGIN
	FOREACH theirs IN ARRAY '{text,jsonb,timestamptz,uuid,interval,regclass,name,oid}'::text[] LOOP
		EXECUTE format('CREATE DOMAIN trap.%I AS pg_catalog.%I CHECK (trap.passes(VALUE))', theirs, theirs);
	END LOOP;
END $plant$;
CREATE TYPE trap.tid AS (trapped int);
CREATE FUNCTION trap.cast_tid(text) RETURNS trap.tid LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.spring(); RETURN NULL; END $$;
CREATE CAST (pg_catalog.text AS trap.tid) WITH FUNCTION trap.cast_tid AS IMPLICIT;
SQL

$node->safe_psql('home', <<'SQL');
-- to set her scenes with: rows that have expired, say
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem TO mallory;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA idem TO mallory;
SELECT idem.idem_allow('mallory', capability)
FROM unnest('{client,channel,cashier,fulfil,relay,operator,auditor}'::text[]) AS capability;
SQL

cmp_ok($node->safe_psql('home', "SELECT count(*) FROM pg_operator WHERE oprnamespace = 'trap'::regnamespace"), '>', 200, 'operators are planted');
cmp_ok($node->safe_psql('home', "SELECT count(*) FROM pg_proc WHERE pronamespace = 'trap'::regnamespace"), '>', 1000, 'functions are planted');

# The traps catch what they are for: a statement run by C code on the caller's
# path, and one run as the owner.
sub error_of_mallory
{
	my ($sql) = @_;
	local $ENV{PGOPTIONS} = '-c search_path=trap,pg_catalog';
	my (undef, undef, $error) = run_program('psql', '-X', '-h', $node->host, '-p', $node->port, '-U', 'mallory', '-c', $sql, 'home');
	return $error;
}
$node->safe_psql('home', <<'SQL');
CREATE FUNCTION idem.careless() RETURNS bool LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN RETURN 'a'::text = 'b'; END $$;
SQL
is(error_of_mallory("SELECT 'a'::text = 'b', now() > '2000-01-01'"), '', 'a caller\'s own statement calls the twins');
like(error_of_mallory("SELECT query_to_xml('SELECT WHERE ''a''::text = ''b''', true, false, '')"),
	qr/TRAPPED/, 'a statement of C code on the caller\'s path would be caught');
like(error_of_mallory('SELECT idem.careless()'), qr/TRAPPED as $owner/, 'one that runs as the owner too');
$node->safe_psql('home', 'DROP FUNCTION idem.careless()');

my $temporary = $node->safe_psql('home', <<'SQL');
SELECT string_agg(format(CASE relkind WHEN 'r' THEN 'CREATE TEMP TABLE %I (%s);' ELSE 'CREATE TYPE pg_temp.%I AS (trapped int);' END, relname,
	-- no domains of ours, or they would depend on the extension
	(SELECT string_agg(format('%I %s', attname, CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END::regtype), ', ' ORDER BY attnum)
		FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)), E'\n')
FROM pg_class c WHERE relnamespace = 'idem'::regnamespace AND relkind IN ('r', 'c')
SQL
my $untouched = $node->safe_psql('home', <<'SQL');
SELECT string_agg(format('SELECT ''trapped in pg_temp.%I'' FROM pg_temp.%1$I LIMIT 1;', relname), E'\n')
FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'r'
SQL

run_suite_from(
	$node,
	path => 'trap,pg_catalog',
	without => \%without,
	role => sub { $helped{ $_[0] } ? ('mighty', 'mallory') : $alone{ $_[0] } || 'mallory' },
	before => $temporary,
	after => "\\pset tuples_only on\n$untouched");

$node->stop;
done_testing();
