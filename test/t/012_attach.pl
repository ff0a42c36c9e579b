# Tables that are attached to a state machine come out of a dump, in whatever
# order it is restored, and out of pg_upgrade, with their rows, and the guard
# still guards.  And the extension does not go from under them.

use strict;
use warnings;

use Cwd;
use IdemTest;
use Test::More;

my $directory = temporary_directory();
my $source = new_cluster('source');
$source->safe_psql('postgres', <<'SQL');
CREATE ROLE keeper;
CREATE SCHEMA idem;
CREATE EXTENSION idem SCHEMA idem;
CREATE SCHEMA shop AUTHORIZATION keeper;
GRANT USAGE ON SCHEMA idem TO keeper;
SELECT idem.idem_allow('keeper', 'operator');
SELECT idem.idem_allow('keeper', 'client');
SET ROLE keeper;
SET search_path = shop, idem;
CREATE FUNCTION may_close(old jsonb, new jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT coalesce((new ->> 'note') <> 'stuck', true) $$;
SELECT idem_define_machine('ticket', '{"initial": ["open"], "final": ["closed"], "active": ["open", "doing"],
	"moves": [{"event": "take", "from": "open", "to": "doing"}, {"event": "close", "from": "doing", "to": "closed", "guard": "shop.may_close"}]}');

CREATE TYPE status AS ENUM ('open', 'doing', 'closed');
CREATE TABLE "Ticket's" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "State" status DEFAULT 'open', version int DEFAULT 1, seat text, note text, loud text GENERATED ALWAYS AS (upper(note)) STORED);
SELECT idem_attach_machine('"Ticket''s"', 'State', 'ticket', '{seat}', 'version', '{seat}', outbox => true, forbid_delete => true, payload => '{id,loud}');
INSERT INTO "Ticket's" (seat, note) SELECT 'A' || n, CASE n WHEN 3 THEN 'stuck' ELSE 'n' || n END FROM generate_series(1, 300) n;
UPDATE "Ticket's" SET "State" = 'doing' WHERE id % 3 = 0;
UPDATE "Ticket's" SET "State" = 'closed' WHERE id % 6 = 0;

CREATE TABLE parted (region text, id int, status text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu');
CREATE TABLE parted_as (status text, id int NOT NULL, region text NOT NULL) PARTITION BY RANGE (id);
CREATE TABLE parted_as_1 PARTITION OF parted_as FOR VALUES FROM (0) TO (1000);
ALTER TABLE parted ATTACH PARTITION parted_as FOR VALUES IN ('as');
SELECT idem_attach_machine('parted', 'status', 'ticket', '{region,id}', forbid_delete => true);
INSERT INTO parted SELECT CASE n % 2 WHEN 0 THEN 'eu' ELSE 'as' END, n, 'open' FROM generate_series(1, 20) n;
UPDATE parted SET status = 'doing' WHERE id > 10;
UPDATE parted SET status = 'closed' WHERE id > 15;

CREATE TABLE parent (tenant text, id int, status text, PRIMARY KEY (tenant, id));
CREATE TABLE child (extra int) INHERITS (parent);
SELECT idem_attach_machine('parent', 'status', 'ticket', tenant_column => 'tenant', entity => 'family');
INSERT INTO parent VALUES ('acme', 1, 'open');
INSERT INTO child VALUES ('acme', 2, 'open');
UPDATE parent SET status = 'doing';
-- states are in text; a foreign key leads from and to what is attached
CREATE TABLE step (word text PRIMARY KEY);
INSERT INTO step VALUES ('open'), ('doing'), ('closed');
CREATE TABLE job (id int PRIMARY KEY, status text REFERENCES step, ticket bigint REFERENCES "Ticket's");
CREATE UNIQUE INDEX job_own ON job (ticket) WHERE status <> 'closed';
SELECT idem_attach_machine('job', 'status', 'ticket', '{ticket}');
INSERT INTO job VALUES (1, 'open', 6), (2, 'open', 7);
UPDATE job SET status = 'doing';
UPDATE job SET status = 'closed' WHERE id = 1;
SQL
verify_in_idem($source, 'postgres', 'before the dump');

sub verify_in_idem
{
	my ($node, $database, $when) = @_;
	return is($node->safe_psql($database, 'SELECT * FROM idem.idem_verify()'), '', "idem_verify() finds nothing broken $when");
}

# Rows, triggers, indexes, history: everything that there is of the tables.
my $everything = <<'SQL';
SET search_path = shop, idem;
SELECT * FROM "Ticket's" ORDER BY id;
SELECT tableoid::regclass, * FROM parted ORDER BY id;
SELECT tableoid::regclass, * FROM parent ORDER BY id;
SELECT * FROM job ORDER BY id;
SELECT tgrelid::regclass, tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgfoid = 'idem_guard'::regproc ORDER BY tgrelid::regclass::text, tgname;
SELECT indexdef FROM pg_indexes WHERE schemaname = 'shop' ORDER BY indexdef COLLATE "C";
SELECT * FROM idem_history ORDER BY entity, key, at, version;
SELECT to_jsonb(o) - 'xid' FROM idem_outbox o ORDER BY id;
SELECT * FROM idem_entity ORDER BY entity;
SELECT name, attached_to, guard, record FROM idem_machines ORDER BY name, attached_to::text;
SQL
my $before = $source->safe_psql('postgres', $everything);

sub error_of
{
	my ($node, $database, $sql) = @_;
	my (undef, undef, $error) = $node->psql($database, "SET ROLE keeper; SET search_path = shop, idem; $sql");
	return $error;
}

sub answer_of
{
	my ($node, $database, $sql) = @_;
	return $node->safe_psql($database, "SET ROLE keeper; SET search_path = shop, idem; $sql");
}

sub check_restored
{
	my ($node, $how, $database) = @_;
	$database ||= 'postgres';
	my $after = $node->safe_psql($database, $everything);
	unless (ok($after eq $before, "$how: rows, triggers, indexes, history and events are what they were"))
	{
		my @files = map { write_file("$directory/$_->[0]", "$_->[1]\n") } [ before => $before ], [ after => $after ];
		diag((run_program('diff', @files))[1]);
	}
	verify_in_idem($node, $database, "after $how");

	my %refused = (
		'a birth' => [ q{INSERT INTO "Ticket's" ("State") VALUES ('closed')}, qr/cannot be born/ ],
		'a move' => [ q{UPDATE "Ticket's" SET "State" = 'closed' WHERE id = 1}, qr/illegal move/ ],
		'a move that a guard forbids' => [ q{UPDATE "Ticket's" SET "State" = 'closed' WHERE id = 3}, qr/guard forbids/ ],
		'a move in a partition' => [ q{UPDATE parted SET status = 'open' WHERE id = 20}, qr/illegal move/ ],
		'a move in a partition by its own name' => [ q{UPDATE parted_as_1 SET status = 'open' WHERE id = 11}, qr/illegal move/ ],
		'a move to another partition' => [ q{UPDATE parted SET region = 'as' WHERE id = 20}, qr/cannot be changed/ ],
		'a move in a child' => [ q{UPDATE parent SET status = 'open' WHERE id = 2}, qr/illegal move/ ],
		'a second active row' => [ q{INSERT INTO "Ticket's" (seat) VALUES ('A1')}, qr/duplicate key/ ],
		'a second active row, by an index of their own' => [ q{INSERT INTO job VALUES (3, 'open', 7)}, qr/duplicate key/ ],
		'a frozen column' => [ q{UPDATE "Ticket's" SET seat = 'B' WHERE id = 1}, qr/cannot be changed/ ],
		'a version out of turn' => [ q{UPDATE "Ticket's" SET version = 7 WHERE id = 1}, qr/cannot go from/ ],
		'DELETE' => [ q{DELETE FROM "Ticket's"}, qr/cannot be deleted/ ],
		'DELETE in a partition' => [ q{DELETE FROM parted_eu}, qr/cannot be deleted/ ],
		'TRUNCATE' => [ q{TRUNCATE "Ticket's" CASCADE}, qr/cannot be truncated/ ],
		'TRUNCATE of a partition' => [ q{TRUNCATE parted_as_1}, qr/cannot be truncated/ ]);
	like(error_of($node, $database, $refused{$_}[0]), $refused{$_}[1], "$how: $_ is refused") foreach sort keys %refused;

	is(answer_of($node, $database, q{SELECT outcome FROM idem_attach_machine('"Ticket''s"', 'State', 'ticket', '{seat}', 'version', '{seat}', outbox => true, forbid_delete => true, payload => '{id,loud}')}),
		'duplicate', "$how: it is attached just so");
	is(answer_of($node, $database, q{SELECT outcome FROM idem_attach_machine('job', 'status', 'ticket', '{ticket}')}),
		'duplicate', "$how: and so is the one with an index of its own");
	is(answer_of($node, $database, q{SELECT * FROM idem_move('"Ticket''s"', '1', 'take', 1)}), 'moved|open|doing|2', "$how: rows move");
	is(answer_of($node, $database, q{SELECT * FROM idem_move('"Ticket''s"', '6', 'close')}), 'duplicate|doing|closed|3', "$how: what was moved was moved");
	is(answer_of($node, $database, q{SELECT from_state, to_state FROM idem_history_of('family', '{"tenant": "acme", "id": 2}')}), "|open\nopen|doing", "$how: history goes on");
	is(answer_of($node, $database, q{INSERT INTO parted VALUES ('eu', 100, 'open'); SELECT outcome FROM idem_move('parted', '{"region": "eu", "id": 100}', 'take')}), 'moved', "$how: new rows, too");
	verify_in_idem($node, $database, "after that ($how)");
	return;
}

my @at_source = ('-h', $source->host, '-p', $source->port);

sub runs_silently
{
	my ($title, @command) = @_;
	my ($status, undef, $error) = run_program(@command);
	return is("$status$error", '0', $title);
}

sub run_file
{
	my ($target, $database, $file, @options) = @_;
	return ('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', @options, '-f', $file, '-d', $target->connstr($database));
}

runs_silently('pg_dump to a plain file says nothing', 'pg_dump', @at_source, '-f', "$directory/plain.sql", 'postgres');
runs_silently('pg_dump -Fc says nothing', 'pg_dump', @at_source, '-Fc', '-f', "$directory/custom", 'postgres');

my $target = new_cluster('target');
$target->safe_psql('postgres', 'CREATE ROLE keeper');
sub new_database
{
	my ($name) = @_;
	$target->safe_psql('postgres', "CREATE DATABASE $name");
	return ('-d', $target->connstr($name));
}

new_database('plain');
runs_silently('the plain file restores without a word', run_file($target, 'plain', "$directory/plain.sql"));
check_restored($target, 'plain', 'plain');

runs_silently('pg_restore --exit-on-error says nothing',
	'pg_restore', '--exit-on-error', new_database('custom'), "$directory/custom");
check_restored($target, 'custom', 'custom');

runs_silently('pg_restore -j 2 --exit-on-error says nothing',
	'pg_restore', '-j', '2', '--exit-on-error', new_database('parallel'), "$directory/custom");
check_restored($target, 'parallel', 'parallel');

# The order in which the tables are restored is ours to choose, within a section.
my (undef, $list) = run_program('pg_restore', '-l', "$directory/custom");
my @post_data = grep { /^\d+; \d+ \d+ (?:TRIGGER|INDEX ATTACH|INDEX|CONSTRAINT|FK CONSTRAINT) / } split /\n/, $list;
cmp_ok(scalar(grep { / TRIGGER / } @post_data), '>', 8, 'triggers are restored on their own');
my @rank = ('CONSTRAINT', 'TRIGGER', 'INDEX', 'INDEX ATTACH', 'FK CONSTRAINT');
my %is_post_data = map { $_ => 1 } @post_data;
my @reordered = grep { !$is_post_data{$_} } split /\n/, $list;
foreach my $kind (@rank)
{
	push @reordered, reverse grep { /^\d+; \d+ \d+ $kind shop / } @post_data;
}
write_file("$directory/list", join "\n", @reordered, '');
runs_silently('triggers may come before indexes and foreign keys',
	'pg_restore', '-L', "$directory/list", '--exit-on-error', new_database('reordered'), "$directory/custom");
check_restored($target, 'reordered', 'reordered');

# Rows alone, into tables that are attached already: by who says so.  (Foreign
# keys would have an order of their own.)
foreach my $restoring ('off', 'on')
{
	my @database = new_database("rows_$restoring");
	runs_silently('the schema alone is restored', 'pg_restore', '--exit-on-error', '-s', @database, "$directory/custom");
	$target->safe_psql("rows_$restoring", 'ALTER TABLE shop.job DROP CONSTRAINT job_status_fkey, DROP CONSTRAINT job_ticket_fkey');
	my @rows = ('pg_restore', '--exit-on-error', '-a', @database, "$directory/custom");
	local $ENV{PGOPTIONS} = "-c idem.restoring=$restoring";
	if ($restoring eq 'off')
	{
		my (undef, undef, $error) = run_program(@rows);
		like($error, qr/cannot be born/, 'rows alone are refused where they have moved on');
		next;
	}
	runs_silently('with idem.restoring they are taken as they were', @rows);
	delete $ENV{PGOPTIONS};
	check_restored($target, 'rows', 'rows_on');
}

# The extension stays where a table is attached.
{
	my (undef, undef, $error) = $target->psql('plain', 'SET idem.allow_drop = on; DROP EXTENSION idem');
	like($error, qr/trigger zz_idem_guard on table shop\."Ticket's" depends on function idem\.idem_guard\(\)/,
		'DROP EXTENSION says what to detach');
	$target->safe_psql('plain', q{SET search_path = shop, idem; SELECT idem_detach_machine(t) FROM (VALUES ('"Ticket''s"'::regclass), ('parted'), ('parent'), ('job')) v (t)});
	is($target->safe_psql('plain', q{SELECT count(*) FROM pg_trigger WHERE tgfoid = 'idem.idem_guard'::regproc AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'shop'::regnamespace)}),
		'0', 'detached tables have no trigger left');
	is($target->safe_psql('plain', 'SET idem.allow_drop = on; DROP EXTENSION idem; SELECT count(*) > 0 FROM shop.parted'), 't', 'then it goes, and the tables stay');
}
$target->stop;

# pg_upgrade, to the release that we are at.
{
	my $new = PostgreSQL::Test::Cluster->new('new');
	$new->init(extra => [ '--encoding=UTF8', '--locale=C' ]);
	$source->stop;
	my (undef, $bin) = run_program('pg_config', '--bindir');
	chomp $bin;
	my $here = getcwd();
	chdir $directory or die "could not go to $directory: $!";
	my ($status, $said) = run_program('pg_upgrade', '-b', $bin, '-B', $bin, '-d', $source->data_dir, '-D', $new->data_dir,
		'-p', $source->port, '-P', $new->port, '-s', $source->host);
	chdir $here or die "could not go to $here: $!";
	is($status, 0, 'pg_upgrade is content') or diag($said);
	$new->start;
	check_restored($new, 'pg_upgrade');
	$new->stop;
}

done_testing();
