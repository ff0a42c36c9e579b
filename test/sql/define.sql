--
-- define: the rules of a machine of one's own: where they make no sense, what
-- becomes of the rows that live by them, what they look like.
--
-- All of it is rolled back: versions are kept for good.
--
\set ON_ERROR_ROLLBACK on
\set SHOW_CONTEXT never
BEGIN;
SELECT * FROM idem_define_machine('errand', '{"initial": ["new"], "final": ["done"], "active": ["new", "running"],
	"moves": [{"event": "start", "from": "new", "to": "running"}, {"event": "finish", "from": "running", "to": "done"}]}');
SELECT name, builtin, defined_by = current_user AS mine, version FROM idem_machine WHERE name = 'errand';
SELECT state, initial, final, active FROM idem_machine_state WHERE machine = 'errand' ORDER BY state;
SELECT from_state, to_state, event, fact, guard FROM idem_machine_move WHERE machine = 'errand' ORDER BY from_state;

-- The same rules in other words change nothing; other rules are another version.
SELECT * FROM idem_define_machine('errand', '{"moves": [{"from": "running", "event": "finish", "to": "done", "fact": false, "guard": null},
	{"event": "start", "from": "new", "to": "running"}], "states": ["done", "running", "new"], "active": ["running", "new"], "final": ["done"], "initial": ["new"]}');
SELECT * FROM idem_define_machine('errand', '{"initial": ["new"], "final": ["done"], "active": ["new", "running"],
	"moves": [{"event": "start", "from": "new", "to": "running"}, {"event": "finish", "from": "running", "to": "done"}, {"event": "repeat", "from": "done", "to": "running", "fact": true}]}');
SELECT name, version, jsonb_array_length(definition -> 'moves') AS moves, defined_by = current_user AS mine FROM idem_machine_version WHERE name = 'errand' ORDER BY version;

-- What was in force is not rewritten.
\set VERBOSITY sqlstate
UPDATE idem_machine_version SET version = 7 WHERE name = 'errand';
DELETE FROM idem_machine_version WHERE name = 'errand';
TRUNCATE idem_machine_version;
\set VERBOSITY default

--
-- Definitions that make no sense
--
SELECT idem_define_machine(NULL, '{}');
SELECT idem_define_machine('', '{}');
SELECT idem_define_machine(repeat('x', 256), '{}');
SELECT idem_define_machine('bad', NULL);
SELECT idem_define_machine('payment', '{"initial": ["free"], "moves": []}');
SELECT idem_define_machine('bad', '"new"');
SELECT idem_define_machine('bad', '[]');
SELECT idem_define_machine('bad', '{"initial": ["new"]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": null}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "finale": ["done"], "moves": []}');
SELECT idem_define_machine('bad', '{"initial": "new", "moves": []}');
SELECT idem_define_machine('bad', '{"initial": {"new": true}, "moves": []}');
SELECT idem_define_machine('bad', '{"initial": [1], "moves": []}');
SELECT idem_define_machine('bad', '{"initial": ["new", null], "moves": []}');
SELECT idem_define_machine('bad', '{"initial": ["new", ""], "moves": []}');
SELECT idem_define_machine('bad', jsonb_build_object('initial', jsonb_build_array(repeat('状', 86)), 'moves', '[]'::jsonb));
SELECT idem_define_machine('bad', '{"initial": ["new", "new"], "moves": []}');
-- no initial state
SELECT idem_define_machine('bad', '{"moves": [{"event": "start", "from": "new", "to": "running"}]}');
SELECT idem_define_machine('bad', '{"initial": [], "moves": []}');
-- moves
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": {"start": "running"}}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": ["start"]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [["start", "new", "running"]]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "start", "from": "new"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"evnt": "start", "from": "new", "to": "running"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": 1, "from": "new", "to": "running"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "start", "from": ["new"], "to": "running"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "start", "from": "new", "to": "running", "fact": "yes"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "", "from": "new", "to": "running"}]}');
SELECT idem_define_machine('bad', jsonb_build_object('initial', '["new"]'::jsonb, 'moves', jsonb_build_array(jsonb_build_object('event', 'start', 'from', 'new', 'to', repeat('x', 256)))));
-- unknown states: nothing leads there
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "start", "from": "new", "to": "running"}, {"event": "finish", "from": "runing", "to": "done"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "final": ["don"], "moves": [{"event": "finish", "from": "new", "to": "done"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "active": ["old"], "moves": [{"event": "finish", "from": "new", "to": "done"}]}');
SELECT idem_define_machine('bad', '{"states": ["new", "done"], "initial": ["news"], "moves": [{"event": "finish", "from": "new", "to": "done"}]}');
SELECT idem_define_machine('bad', '{"states": ["new", "done"], "initial": ["new"], "moves": [{"event": "finish", "from": "new", "to": "dun"}]}');
-- unreachable states
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "a", "from": "ping", "to": "pong"}, {"event": "b", "from": "pong", "to": "ping"}]}');
SELECT idem_define_machine('bad', '{"states": ["new", "done", "lost"], "initial": ["new"], "moves": [{"event": "finish", "from": "new", "to": "done"}]}');
-- an event that leads to two states, two events that lead to one
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "finish", "from": "new", "to": "done"}, {"event": "finish", "from": "new", "to": "failed"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "finish", "from": "new", "to": "done"}, {"event": "cancel", "from": "new", "to": "done"}]}');
SELECT idem_define_machine('bad', '{"initial": ["new"], "moves": [{"event": "touch", "from": "new", "to": "new"}]}');
-- out of a final state
SELECT idem_define_machine('bad', '{"initial": ["new"], "final": ["done"], "moves": [{"event": "finish", "from": "new", "to": "done"}, {"event": "undo", "from": "done", "to": "new"}]}');
-- too much
SELECT idem_define_machine('bad', jsonb_build_object('moves', '[]'::jsonb, 'initial', (SELECT jsonb_agg('s' || n) FROM generate_series(1, 257) n)));
SELECT idem_define_machine('bad', jsonb_build_object('initial', '["s0"]'::jsonb, 'moves',
	(SELECT jsonb_agg(jsonb_build_object('event', 'next', 'from', 's' || n - 1, 'to', 's' || n)) FROM generate_series(1, 256) n)));
SELECT idem_define_machine('bad', jsonb_build_object('initial', '["s0"]'::jsonb, 'moves',
	(SELECT jsonb_agg(jsonb_build_object('event', 'e' || b, 'from', 's' || a, 'to', 's' || b)) FROM generate_series(0, 32) a, generate_series(0, 32) b WHERE a <> b)));
SELECT count(*) FROM idem_machine WHERE name = 'bad';
-- ... but this is not
SELECT * FROM idem_define_machine(repeat('m', 255), jsonb_build_object('initial', '["s0"]'::jsonb, 'moves',
	(SELECT jsonb_agg(jsonb_build_object('event', 'next', 'from', 's' || n - 1, 'to', 's' || n)) FROM generate_series(1, 255) n)));
SELECT * FROM idem_define_machine('one', '{"initial": ["only"], "final": ["only"], "moves": []}');

--
-- Guards: functions that the definer may call
--
CREATE ROLE regress_idem_definer;
CREATE SCHEMA "regress idem Rules";
CREATE SCHEMA regress_idem_rules;
GRANT USAGE ON SCHEMA regress_idem_rules TO regress_idem_definer;
CREATE FUNCTION regress_idem_rules.may(pg_catalog.jsonb, pg_catalog.jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION "regress idem Rules"."May"(pg_catalog.jsonb, pg_catalog.jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION regress_idem_rules.may_text(pg_catalog.jsonb, pg_catalog.jsonb) RETURNS pg_catalog.text LANGUAGE sql AS 'SELECT ''yes''';
CREATE FUNCTION regress_idem_rules.may_one(pg_catalog.jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION regress_idem_rules.may_many(pg_catalog.jsonb, pg_catalog.jsonb) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION pg_temp.guarded_by(guard text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('initial', '["new"]'::jsonb, 'moves', jsonb_build_array(jsonb_build_object('event', 'finish', 'from', 'new', 'to', 'done', 'guard', guard)))
$$;
SELECT * FROM idem_define_machine('guarded', pg_temp.guarded_by('Regress_idem_rules.May'));
SELECT guard FROM idem_machine_move WHERE machine = 'guarded';
SELECT * FROM idem_define_machine('guarded', pg_temp.guarded_by('"regress idem Rules"."May"'));
SELECT guard FROM idem_machine_move WHERE machine = 'guarded';
SELECT idem_machine_diagram('guarded');
SELECT idem_define_machine('bad', pg_temp.guarded_by('may'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('a.b.c'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('"a'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('regress_idem_rules.nothing'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('regress_idem_nowhere.may'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('regress_idem_rules.may_text'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('regress_idem_rules.may_one'));
SELECT idem_define_machine('bad', pg_temp.guarded_by('regress_idem_rules.may_many'));
CREATE FUNCTION pg_temp.may(pg_catalog.jsonb, pg_catalog.jsonb) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT idem_define_machine('bad', pg_temp.guarded_by('pg_temp.may'));
DO $$ BEGIN PERFORM idem_define_machine('bad', pg_temp.guarded_by(pg_my_temp_schema()::regnamespace || '.may'));
EXCEPTION WHEN invalid_parameter_value THEN RAISE NOTICE '%', SQLERRM; END $$;
SELECT idem_define_machine('bad', jsonb_set(pg_temp.guarded_by('x'), '{moves,0,guard}', 'true'));

-- The definer needs EXECUTE and the schema; guards run as the last one who defined.
SELECT outcome FROM idem_allow('regress_idem_definer', 'operator');
REVOKE EXECUTE ON FUNCTION regress_idem_rules.may FROM PUBLIC;
SELECT pg_temp.guarded_by('regress_idem_rules.may') AS by_may, pg_temp.guarded_by('"regress idem Rules"."May"') AS by_other \gset
SET LOCAL ROLE regress_idem_definer;
SELECT idem_define_machine('theirs', :'by_may');
SELECT idem_define_machine('theirs', :'by_other');
RESET ROLE;
GRANT EXECUTE ON FUNCTION regress_idem_rules.may TO regress_idem_definer;
SET LOCAL ROLE regress_idem_definer;
SELECT * FROM idem_define_machine('theirs', :'by_may');
RESET ROLE;
SELECT defined_by FROM idem_machine WHERE name = 'theirs';
SELECT * FROM idem_define_machine('theirs', :'by_may');
SELECT defined_by = current_user AS mine FROM idem_machine WHERE name = 'theirs';
SELECT * FROM idem_define_machine('theirs', :'by_may');
-- without guards it does not matter who says it again
SELECT * FROM idem_define_machine('one', '{"initial": ["only"], "final": ["only"], "moves": []}');
SET LOCAL ROLE regress_idem_definer;
SELECT * FROM idem_define_machine('one', '{"initial": ["only"], "final": ["only"], "moves": []}');
RESET ROLE;

--
-- Rows that live by the rules
--
CREATE FUNCTION pg_temp.errand(VARIADIC states text[]) RETURNS jsonb LANGUAGE sql AS $$
	-- one after the other, the first one initial
	SELECT jsonb_build_object('initial', to_jsonb(states[1:1]), 'moves',
		coalesce(jsonb_agg(jsonb_build_object('event', 'to_' || states[n + 1], 'from', states[n], 'to', states[n + 1])), '[]'))
	FROM generate_series(1, cardinality(states) - 1) n
$$;
SELECT * FROM idem_define_machine('errand', pg_temp.errand('new', 'running', 'waiting', 'done'));
CREATE TABLE "Errand" (tenant text, "Id" int, state varchar(10), version int DEFAULT 1, PRIMARY KEY (tenant, "Id"));
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON "Errand" FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'tenant=tenant', 'key=Id', 'version=version');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON "Errand" FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'tenant=tenant', 'key=Id', 'version=version');
INSERT INTO "Errand" SELECT 'acme', n, 'new' FROM generate_series(1, 9) n;
UPDATE "Errand" SET state = 'running' WHERE "Id" > 2;
UPDATE "Errand" SET state = 'waiting' WHERE "Id" > 8;

-- New rules hold at once, also after a rollback to a savepoint.
SAVEPOINT rules;
SELECT * FROM idem_define_machine('errand', pg_temp.errand('new', 'running', 'waiting', 'failed'));
UPDATE "Errand" SET state = 'done' WHERE "Id" = 9;
UPDATE "Errand" SET state = 'failed' WHERE "Id" = 9;
ROLLBACK TO rules;
UPDATE "Errand" SET state = 'failed' WHERE "Id" = 9;
UPDATE "Errand" SET state = 'done' WHERE "Id" = 9;

-- A state that nobody is in can go, another one stays until its rows have left.
SELECT * FROM idem_define_machine('errand', pg_temp.errand('new', 'running', 'done'));
SELECT * FROM idem_define_machine('errand', pg_temp.errand('new', 'done'));
SELECT * FROM idem_define_machine('errand', pg_temp.errand('other', 'new', 'running'));
UPDATE "Errand" SET state = 'done' WHERE state = 'running';
SELECT * FROM idem_define_machine('errand', pg_temp.errand('new', 'done'));
UPDATE "Errand" SET state = 'running' WHERE "Id" = 1;
SELECT * FROM idem_define_machine('errand', pg_temp.errand('other', 'new', 'done'));
INSERT INTO "Errand" VALUES ('acme', 10, 'new');

-- Partitions, an enum, a row without a state; more tables than are named.
CREATE TYPE mood AS ENUM ('new', 'done', 'odd');
CREATE TABLE many (part int, id int, state mood, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
SELECT format('CREATE TABLE many_%s PARTITION OF many FOR VALUES IN (%s)', n, n) FROM generate_series(1, 9) n \gexec
INSERT INTO many SELECT part, id, 'odd' FROM generate_series(1, 9) part, generate_series(1, 2) id;
INSERT INTO many VALUES (1, 3, NULL), (2, 3, 'done');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON many FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'key=part', 'key=id', 'history=off');
SELECT * FROM idem_define_machine('errand', pg_temp.errand('other', 'done'));
UPDATE "Errand" SET state = 'done' WHERE state = 'new';
SELECT idem_define_machine('errand', pg_temp.errand('other', 'done'));
SELECT outcome, attached FROM idem_define_machine('errand', pg_temp.errand('other', 'done', 'odd'));
DELETE FROM many WHERE state IS NULL;
SELECT outcome, attached FROM idem_define_machine('errand', pg_temp.errand('other', 'done', 'odd'));
DROP TABLE many;
SELECT outcome, attached FROM idem_define_machine('errand', pg_temp.errand('done'));

-- An index on active states knows them by name.
CREATE TABLE slot (id int PRIMARY KEY, state text);
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON slot FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=errand', 'state=state', 'key=id', 'active_key=id');
SELECT idem_define_machine('errand', '{"initial": ["done"], "active": ["done"], "moves": []}');
SELECT idem_define_machine('errand', '{"initial": ["done"], "active": ["more"], "moves": [{"event": "more", "from": "done", "to": "more"}]}');
SELECT outcome FROM idem_define_machine('errand', '{"initial": ["done"], "moves": [{"event": "more", "from": "done", "to": "more"}]}');
DROP TABLE slot;

-- A table that was guarded before there was a machine
CREATE TABLE early (id int PRIMARY KEY, state text);
INSERT INTO early VALUES (1, 'anything');
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON early FOR EACH ROW
	EXECUTE FUNCTION idem_guard('machine=late', 'state=state', 'key=id');
SELECT idem_define_machine('late', pg_temp.errand('new', 'done'));
SELECT * FROM idem_define_machine('late', pg_temp.errand('anything', 'done'));
DROP TABLE early;

-- Each move is judged by the rules of its time.
SELECT key, from_state, to_state, machine, machine_version FROM idem_history WHERE machine = 'errand' AND key IN ('1', '9', '10') ORDER BY key::int, version;
SELECT * FROM idem_verify();
SAVEPOINT fault;
INSERT INTO idem_history (tenant_id, entity, key, from_state, to_state, event, session_role, at, machine, machine_version)
SELECT 'acme', 'Errand', 'bad', f, t, e, 'x', now(), 'errand', v FROM (VALUES
	(NULL, 'new', 'create', 3), (NULL, 'done', 'create', 3), ('new', 'running', 'to_running', 3), ('new', 'running', 'to_running', 5), ('new', 'running', 'run', 3)) AS h (f, t, e, v);
SELECT * FROM idem_verify();
ROLLBACK TO fault;
UPDATE idem_machine_move SET event = 'less' WHERE machine = 'errand';
SELECT * FROM idem_verify();
ROLLBACK TO fault;
UPDATE idem_machine_move SET guard = 'public.may' WHERE machine = 'errand';
SELECT * FROM idem_verify();
ROLLBACK TO fault;
INSERT INTO idem_machine_move VALUES ('one', 'only', 'only', 'more');
SELECT * FROM idem_verify();
ROLLBACK TO fault;
UPDATE idem_machine_state SET active = true WHERE machine IN ('errand', 'one');
SELECT * FROM idem_verify();
ROLLBACK TO fault;
UPDATE idem_machine SET version = 1 WHERE name = 'errand';
SELECT * FROM idem_verify();
ROLLBACK TO fault;

-- Rules that were written by hand have no versions until they are defined.
INSERT INTO idem_machine VALUES ('manual');
INSERT INTO idem_machine_state VALUES ('manual', 'new', true);
SELECT * FROM idem_verify();
SELECT * FROM idem_define_machine('manual', '{"initial": ["new"], "final": null, "moves": []}');
SELECT * FROM idem_define_machine('manual', '{"initial": ["new"], "moves": []}');
SELECT * FROM idem_verify();

-- A version never comes again, even if the machine does.
DELETE FROM idem_machine_state WHERE machine = 'manual';
DELETE FROM idem_machine WHERE name = 'manual';
SELECT * FROM idem_define_machine('manual', '{"initial": ["new"], "moves": []}');

--
-- What is attached where, for operators and auditors of all tenants
--
CREATE FUNCTION pg_temp.attached() RETURNS TABLE (name text, attached_to regclass, state_column name, guard text, record text) LANGUAGE sql AS $$
	SELECT name, attached_to, state_column, guard, record FROM idem_machines WHERE name IN ('errand', 'one', 'refund')
$$;
SELECT * FROM pg_temp.attached();
ALTER TABLE "Errand" DISABLE TRIGGER zz_idem_guard;
ALTER TABLE "Errand" ENABLE ALWAYS TRIGGER zz_idem_record;
SELECT * FROM pg_temp.attached();
ALTER TABLE "Errand" RENAME TO chore;
ALTER TABLE chore ENABLE REPLICA TRIGGER zz_idem_guard;
DROP TRIGGER zz_idem_record ON chore;
SELECT * FROM pg_temp.attached();
SELECT version > 1 AS redefined, builtin, defined_by = current_user AS mine FROM idem_machines WHERE name IN ('errand', 'payment') ORDER BY name;

CREATE ROLE regress_idem_shop;
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', 'acme');
SET LOCAL ROLE regress_idem_shop;
SELECT idem_machine_diagram('one');
SELECT count(*) FROM idem_machines;
SELECT count(*) FROM idem_list_machines();
SELECT idem_define_machine('one', '{"initial": ["new"], "moves": []}');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'acme');
SET LOCAL ROLE regress_idem_shop;
SELECT count(*) FROM idem_machines;
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor');
SELECT outcome FROM idem_allow('regress_idem_shop', 'operator', 'acme');
SET LOCAL ROLE regress_idem_shop;
SELECT count(*) > 4 AS all FROM idem_machines;
SELECT idem_define_machine('one', '{"initial": ["new"], "moves": []}');
RESET ROLE;
-- the view goes with the last capability that shows it
SELECT outcome FROM idem_disallow('regress_idem_shop', 'auditor');
SELECT outcome FROM idem_disallow('regress_idem_shop', 'auditor', 'acme');
SELECT has_table_privilege('regress_idem_shop', 'idem_machines', 'SELECT');
SELECT outcome FROM idem_disallow('regress_idem_shop', 'operator', 'acme');
SELECT has_table_privilege('regress_idem_shop', 'idem_machines', 'SELECT');

--
-- Diagrams
--
SELECT idem_machine_diagram('nothing');
SELECT idem_machine_diagram(NULL);
SELECT idem_machine_diagram('order');
SELECT outcome FROM idem_define_machine('四步', '{"initial": ["待支付"], "final": ["已完成"], "active": ["待支付"], "moves": [
	{"event": "支付", "from": "待支付", "to": "已支付"}, {"event": "发货", "from": "已支付", "to": "已发货"}, {"event": "完成", "from": "已发货", "to": "已完成"}]}');
SELECT idem_machine_diagram('四步');
SELECT outcome FROM idem_define_machine('odd', E'{"initial": ["state", "end", "S3"], "active": ["a\\"b;#c"], "moves": [
	{"event": "x: y --> z", "from": "state", "to": "a\\"b;#c"}, {"event": "<b>%%{init}", "from": "a\\"b;#c", "to": "line\\nbreak\\\\n"},
	{"event": "y", "from": "end", "to": "-1"}, {"event": "z", "from": "-1", "to": "constructor"}, {"event": " ", "from": "constructor", "to": " "}]}');
SELECT idem_machine_diagram('odd');
-- the same rules, whatever lies where
DELETE FROM idem_machine_move WHERE machine = 'errand' OR machine = '四步';
INSERT INTO idem_machine_move VALUES ('四步', '已发货', '已完成', '完成'), ('四步', '已支付', '已发货', '发货'), ('四步', '待支付', '已支付', '支付');
SELECT idem_machine_diagram('四步') = E'stateDiagram-v2\n    state "待支付" as S1\n    state "已支付" as S2\n    state "已发货" as S3\n    state "已完成" as S4\n    [*] --> S1\n    S1 --> S2 : 支付\n    S2 --> S3 : 发货\n    S3 --> S4 : 完成\n    S4 --> [*]\n    classDef active stroke-width:4px\n    class S1 active' AS same;
ROLLBACK;
\set ON_ERROR_ROLLBACK off
