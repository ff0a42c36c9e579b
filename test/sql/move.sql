--
-- move: moves by event, each outcome in each state; guards; rights; history.
--
-- All of it is rolled back.
--
\set ON_ERROR_ROLLBACK on
\set SHOW_CONTEXT never
BEGIN;
CREATE SCHEMA shop;
-- Scenes are set with the server's own types and operators, whatever the path has.
SELECT current_setting('search_path') AS path \gset
SET LOCAL search_path = pg_catalog;
CREATE FUNCTION shop.may_pay(old jsonb, new jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'asked as %: from % to %, % columns, of the new row %', CASE current_user WHEN session_user THEN 'the session''s user' ELSE current_user END,
		old ->> 'status', new ->> 'status', (SELECT count(*) FROM jsonb_object_keys(old)), (SELECT count(*) FROM jsonb_object_keys(new));
	RETURN (new ->> 'amount')::int > 0;
END $$;
CREATE TABLE shop.bill (id int PRIMARY KEY, status text NOT NULL DEFAULT 'draft', version int NOT NULL DEFAULT 1, amount int, twice int GENERATED ALWAYS AS (amount * 2) STORED);
SET LOCAL search_path = :path;
-- "next" leads to "open", and on from there; "void" leads to one state from two
SELECT outcome FROM idem_define_machine('bill', '{"initial": ["draft", "planned"], "final": ["void"], "moves": [
	{"event": "next", "from": "draft", "to": "open"}, {"event": "next", "from": "open", "to": "sent"},
	{"event": "void", "from": "draft", "to": "void"}, {"event": "void", "from": "open", "to": "void"},
	{"event": "pay", "from": "sent", "to": "paid", "guard": "shop.may_pay"}, {"event": "reopen", "from": "void", "to": "open", "fact": true}]}');
SELECT outcome FROM idem_attach_machine('shop.bill', 'status', 'bill', version_column => 'version', outbox => true);
INSERT INTO shop.bill (id, amount) SELECT n, 10 FROM generate_series(1, 6) n;

--
-- Outcomes
--
-- not found
SELECT * FROM idem_move('shop.bill', '{"id": 7}', 'next');
SELECT * FROM idem_move('shop.bill', '{"id": 7}', 'next', 1);
-- illegal: no such move from here, no such event at all
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'pay');
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'pay', 1);
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'pay', 9);
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'nonsense');
-- stale
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 9);
-- moved, and again: with the version that was read it cannot be taken for the next step
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 1, 'customer asked');
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 1);
UPDATE shop.bill SET amount = 11 WHERE id = 1;
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 1);
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 2);
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 3);
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next');
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'next', 7);
-- void, from one of two states
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'void');
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'void');
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'void');
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'next');
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'reopen', 1);
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'reopen', 2);
SELECT * FROM idem_move('shop.bill', '{"id": 2}', 'reopen', 2);
-- a guard; it sees both rows, the new one without what is not computed yet
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'pay');
SELECT * FROM idem_move('shop.bill', '{"id": 1}', 'pay');
UPDATE shop.bill SET amount = 0 WHERE id = 3;
UPDATE shop.bill SET status = 'open' WHERE id = 3;
UPDATE shop.bill SET status = 'sent' WHERE id = 3;
SELECT * FROM idem_move('shop.bill', '{"id": 3}', 'pay');
SELECT * FROM idem_move('shop.bill', '{"id": 3}', 'pay', 4);
SELECT * FROM idem_move('shop.bill', '{"id": 3}', 'pay', 3);
UPDATE shop.bill SET status = 'paid' WHERE id = 3;
UPDATE shop.bill SET amount = NULL WHERE id = 3;
UPDATE shop.bill SET status = 'paid' WHERE id = 3;
UPDATE shop.bill SET status = 'paid', amount = 1 WHERE id = 3;
SELECT id, status, version FROM shop.bill ORDER BY id;

-- History: whoever moved it, by whatever way
SET LOCAL idem.actor = 'ann';
SELECT * FROM idem_move('shop.bill', '{"id": 4}', 'next', reason => 'due');
RESET idem.actor;
UPDATE shop.bill SET status = 'sent' WHERE id = 4;
SELECT version, from_state, to_state, event, actor, session_role = session_user AS ours, reason FROM idem_history_of('shop.bill', '{"id": 4}');
SELECT version, to_state, reason FROM idem_history_of('bill', '{"id": 1}');
SELECT count(*) FROM idem_history_of('shop.bill', '{"id": 77}');
SELECT type, payload -> 'event' AS event FROM idem_outbox WHERE aggregatetype = 'bill' AND aggregateid = '4' ORDER BY created_at;

-- A trigger of somebody else's that keeps the row, changes it, or fails
CREATE FUNCTION shop.meddle() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
	CASE current_setting('shop.meddle', true)
		WHEN 'keep' THEN RETURN NULL;
		WHEN 'void' THEN NEW.status := 'void';
		WHEN 'pay' THEN NEW.status := 'paid';
		WHEN 'fail' THEN RAISE EXCEPTION 'no';
		WHEN 'other' THEN UPDATE shop.bill SET status = 'paid' WHERE id = 6;
		ELSE NULL;
	END CASE;
	RETURN NEW;
END $$;
CREATE TRIGGER meddle BEFORE UPDATE ON shop.bill FOR EACH ROW WHEN (NEW.id OPERATOR(pg_catalog.=) 5) EXECUTE FUNCTION shop.meddle();
SET LOCAL shop.meddle = 'keep';
SELECT * FROM idem_move('shop.bill', '5', 'next');
SET LOCAL shop.meddle = 'fail';
SELECT * FROM idem_move('shop.bill', '5', 'next');
SET LOCAL shop.meddle = 'pay';
SELECT * FROM idem_move('shop.bill', '5', 'next');
-- what is refused further down is no outcome of this move
SET LOCAL shop.meddle = 'other';
SELECT * FROM idem_move('shop.bill', '5', 'next');
SET LOCAL shop.meddle = 'void';
SELECT * FROM idem_move('shop.bill', '5', 'next');
SELECT from_state, to_state, event FROM idem_history_of('shop.bill', '5');

-- a move that makes another one, of a table that has just changed
CREATE TABLE shop.follower (id int PRIMARY KEY, status pg_catalog.text);
SELECT outcome FROM idem_attach_machine('shop.follower', 'status', 'bill');
INSERT INTO shop.follower SELECT n, 'draft' FROM generate_series(1, 6) n;
CREATE FUNCTION shop.follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'follower %', (SELECT outcome FROM idem_move('shop.follower', '6', 'next', reason => 'follows'));
	RETURN NULL;
END $$;
CREATE TRIGGER follow AFTER UPDATE ON shop.bill FOR EACH ROW EXECUTE FUNCTION shop.follow();
SELECT * FROM idem_move('shop.follower', '5', 'void');
ALTER TABLE shop.follower ADD added int;
SELECT outcome FROM idem_move('shop.bill', '6', 'next', reason => 'leads');
SELECT outcome FROM idem_move('shop.bill', '6', 'next');
SELECT to_state, reason FROM idem_history_of('shop.follower', '6');
SELECT to_state, reason FROM idem_history_of('shop.bill', '6');
DROP TRIGGER follow ON shop.bill;

--
-- Keys
--
CREATE TYPE shop.colour AS ENUM ('red', 'green');
CREATE DOMAIN shop.code AS varchar(4);
CREATE TABLE shop.part ("a b" shop.code, "C" shop.colour, d bool, e numeric, status text, PRIMARY KEY ("a b", "C", d, e));
SELECT outcome FROM idem_attach_machine('shop.part', 'status', 'bill');
INSERT INTO shop.part VALUES ('x"y', 'green', true, 1.5, 'draft');
SELECT * FROM idem_move('shop.part', '{"a b": "x\"y", "C": "green", "d": true, "e": 1.5}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x\"y", "C": "green", "d": "t", "e": "1.500"}', 'next');
SELECT from_state, to_state FROM idem_history_of('shop.part', '{"e": 1.5, "d": true, "C": "green", "a b": "x\"y"}');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "red", "d": false, "e": 1.5}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "blue", "d": false, "e": 1.5}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "red", "d": false}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "red", "d": false, "e": null}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "red", "d": false, "f": 1}', 'next');
SELECT * FROM idem_move('shop.part', '{"a b": "x", "C": "red", "d": false, "e": 1, "f": 1}', 'next');
SELECT * FROM idem_move('shop.part', '7', 'next');
SELECT * FROM idem_move('shop.bill', '[7]', 'next');
SELECT * FROM idem_move('shop.bill', 'null', 'next');
SELECT * FROM idem_move('shop.bill', '{"id": "seven"}', 'next');
CREATE TABLE shop.rented (tenant text, no int, status text, PRIMARY KEY (tenant, no));
SELECT outcome FROM idem_attach_machine('shop.rented', 'status', 'bill', tenant_column => 'tenant');
INSERT INTO shop.rented VALUES ('acme', 1, 'draft'), ('ajax', 1, 'draft');
SELECT * FROM idem_move('shop.rented', '{"tenant": "acme", "no": 1}', 'next');
SELECT * FROM idem_move('shop.rented', '{"no": 1}', 'next');
SELECT tenant, status FROM shop.rented ORDER BY tenant;
SELECT from_state, to_state FROM idem_history_of('shop.rented', '{"tenant": "acme", "no": 1}');
DELETE FROM shop.rented;
-- the history of what is gone stays
SELECT from_state, to_state FROM idem_history_of('shop.rented', '{"tenant": "acme", "no": 1}');
CREATE TABLE shop.parent (id int PRIMARY KEY, status text);
CREATE TABLE shop.child () INHERITS (shop.parent);
SELECT outcome FROM idem_attach_machine('shop.parent', 'status', 'bill');
INSERT INTO shop.parent VALUES (1, 'draft'), (2, 'draft');
INSERT INTO shop.child VALUES (1, 'draft'), (3, 'draft');
SELECT * FROM idem_move('shop.parent', '3', 'next');
SELECT * FROM idem_move('shop.parent', '1', 'next');
SELECT * FROM idem_move('shop.child', '1', 'next');
-- states of other types
SET LOCAL search_path = pg_catalog;
CREATE TYPE shop.bill_status AS ENUM ('draft', 'planned', 'open', 'sent', 'void', 'paid');
CREATE TABLE shop.by_enum (id char(3) PRIMARY KEY, status shop.bill_status);
CREATE TABLE shop.by_domain (id shop.colour PRIMARY KEY, status shop.code);
CREATE TABLE shop.by_char (id timestamptz PRIMARY KEY, status char(9), version int);
CREATE TABLE shop.by_number (id uuid PRIMARY KEY, status bigint);
SET LOCAL search_path = :path;
SELECT outcome FROM idem_define_machine('code', '{"initial": ["new"], "moves": [{"event": "end", "from": "new", "to": "done"}]}');
SELECT outcome FROM idem_define_machine('number', '{"initial": ["-1"], "moves": [{"event": "end", "from": "-1", "to": "12345678901"}]}');
SELECT outcome FROM idem_attach_machine('shop.by_enum', 'status', 'bill');
SELECT outcome FROM idem_attach_machine('shop.by_domain', 'status', 'code');
SELECT outcome FROM idem_attach_machine('shop.by_char', 'status', 'bill', version_column => 'version');
SELECT outcome FROM idem_attach_machine('shop.by_number', 'status', 'number');
INSERT INTO shop.by_enum VALUES ('a', 'draft');
INSERT INTO shop.by_domain VALUES ('red', 'new');
INSERT INTO shop.by_char VALUES ('2030-01-01 00:00+00', 'draft');
INSERT INTO shop.by_number VALUES ('00000000-0000-0000-0000-00000000000A', -1);
SELECT * FROM idem_move('shop.by_enum', '"a"', 'next');
SELECT * FROM idem_move('shop.by_enum', '{"id": "a  "}', 'void');
SELECT * FROM idem_move('shop.by_domain', '"red"', 'end');
SELECT * FROM idem_move('shop.by_domain', '"red"', 'end');
SELECT * FROM idem_move('shop.by_char', '"2030-01-01T01:00:00+01:00"', 'next', 0);
SET LOCAL TimeZone = 'Asia/Tokyo';
SET LOCAL DateStyle = 'SQL, DMY';
SELECT * FROM idem_move('shop.by_char', '"2030-01-01T01:00:00+01:00"', 'void', 1);
RESET TimeZone;
RESET DateStyle;
SELECT * FROM idem_move('shop.by_number', '"00000000-0000-0000-0000-00000000000a"', 'end');
SELECT * FROM idem_move('shop.by_number', '"00000000-0000-0000-0000-00000000000a"', 'end');
SELECT from_state, to_state FROM idem_history_of('shop.by_enum', '"a"');
SELECT from_state, to_state FROM idem_history_of('shop.by_char', '"2030-01-01T01:00:00+01:00"');
SELECT from_state, to_state FROM idem_history_of('shop.by_number', '"00000000-0000-0000-0000-00000000000a"');
-- a row has one name, whatever the session's style
CREATE TABLE shop.styled (d date, i interval, f float8, b bytea, a date[], status text, PRIMARY KEY (d, i, f, b, a));
SELECT outcome FROM idem_attach_machine('shop.styled', 'status', 'bill');
INSERT INTO shop.styled VALUES ('2030-02-01', '1 day 2 hours', 0.1, 'a\\b', '{2030-03-01}', 'draft');
SET LOCAL DateStyle = 'SQL, DMY';
SET LOCAL IntervalStyle = 'iso_8601';
SET LOCAL extra_float_digits = 0;
SET LOCAL bytea_output = 'escape';
UPDATE shop.styled SET status = 'open';
SELECT * FROM idem_move('shop.styled', '{"d": "2030-02-01", "i": "P1DT2H", "f": 0.1, "b": "\\x615c62", "a": "{2030-03-01}"}', 'void');
RESET DateStyle;
RESET IntervalStyle;
RESET extra_float_digits;
RESET bytea_output;
SELECT key, from_state, to_state FROM idem_history WHERE entity = 'styled' ORDER BY at;
-- a table that changes its shape, and one that is no longer attached
ALTER TABLE shop.part RENAME TO piece;
ALTER TABLE shop.piece ALTER status TYPE varchar(20);
SELECT * FROM idem_move('shop.piece', '{"a b": "x\"y", "C": "green", "d": "t", "e": "1.500"}', 'next');
SELECT idem_detach_machine('shop.piece');

--
-- Nonsense
--
SELECT idem_move('shop.piece', '{"a b": "x\"y", "C": "green", "d": "t", "e": "1.500"}', 'next');
SELECT idem_history_of('shop.piece', '{}');
SELECT idem_history_of('shop.nothing', '{}');
SELECT idem_history_of('nothing at all', '{}');
SELECT idem_history_of('', '{}');
SELECT idem_history_of('receipt', '{}');
SELECT idem_history_of('idem_outbox', '{}');
SELECT idem_history_of('shop.bill', NULL);
SELECT idem_history_of(NULL, '1');
SELECT idem_move(NULL, '1', 'next');
SELECT idem_move('shop.bill', NULL, 'next');
SELECT idem_move('shop.bill', '1', NULL);
SELECT idem_move('shop.bill', '1', '');
SELECT idem_move('shop.rented', '{"tenant": "acme", "no": 1}', 'next', 1);
SELECT idem_move('idem_order'::regclass, '{"tenant_id": "move", "order_id": "o"}', 'pay');
SELECT idem_move('pg_class', '1', 'next');

--
-- Rights: the caller's own
--
CREATE ROLE regress_idem_mover;
CREATE ROLE regress_idem_reader;
GRANT USAGE ON SCHEMA shop TO regress_idem_mover, regress_idem_reader;
CREATE TABLE shop.paper (id int PRIMARY KEY, status text DEFAULT 'draft', owner name, secret text);
SELECT outcome FROM idem_attach_machine('shop.paper', 'status', 'bill');
INSERT INTO shop.paper VALUES (1, 'draft', 'regress_idem_mover'), (2, 'draft', 'regress_idem_reader');
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '1', 'next');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_mover', 'client', 'nobody');
SELECT outcome FROM idem_allow('regress_idem_reader', 'auditor', 'nobody');
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '1', 'next');
SELECT to_state FROM idem_history_of('shop.paper', '1');
-- some columns will do
RESET ROLE;
GRANT SELECT (id, status) ON shop.paper TO regress_idem_mover, regress_idem_reader;
SET LOCAL ROLE regress_idem_mover;
SELECT to_state FROM idem_history_of('shop.paper', '1');
SELECT * FROM idem_move('shop.paper', '1', 'pay');
SELECT * FROM idem_move('shop.paper', '1', 'next');
RESET ROLE;
GRANT UPDATE (secret) ON shop.paper TO regress_idem_mover;
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '1', 'next');
RESET ROLE;
GRANT UPDATE (status) ON shop.paper TO regress_idem_mover;
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '1', 'next');
-- row security: what is hidden is not there, what may not be changed neither
RESET ROLE;
ALTER TABLE shop.paper ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON shop.paper TO regress_idem_mover, regress_idem_reader;
CREATE POLICY mine ON shop.paper USING (owner OPERATOR(pg_catalog.=) current_user);
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '1', 'void');
SELECT * FROM idem_move('shop.paper', '2', 'next');
SELECT to_state FROM idem_history_of('shop.paper', '1');
SELECT to_state FROM idem_history_of('shop.paper', '2');
RESET ROLE;
CREATE POLICY readable ON shop.paper FOR SELECT USING (true);
SET LOCAL ROLE regress_idem_mover;
SELECT * FROM idem_move('shop.paper', '2', 'pay');
SELECT * FROM idem_move('shop.paper', '2', 'next');
SELECT to_state FROM idem_history_of('shop.paper', '2');
-- histories of the extension's own rows
RESET ROLE;
SELECT outcome FROM idem_create_order('move', 'o1', 100, 'CNY');
SELECT version, from_state, to_state, event FROM idem_history_of('order', '{"tenant_id": "move", "order_id": "o1"}');
SELECT version, from_state, to_state, event FROM idem_history_of('idem_order', '{"tenant_id": "move", "order_id": "o1"}');
SET LOCAL ROLE regress_idem_mover;
SELECT to_state FROM idem_history_of('order', '{"tenant_id": "move", "order_id": "o1"}');
SET LOCAL ROLE regress_idem_reader;
SELECT to_state FROM idem_history_of('order', '{"tenant_id": "move", "order_id": "o1"}');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_reader', 'auditor', 'move');
SET LOCAL ROLE regress_idem_reader;
SELECT to_state FROM idem_history_of('order', '{"tenant_id": "move", "order_id": "o1"}');
RESET ROLE;

-- Guards run as who defined the machine, if he may still call them.
CREATE ROLE regress_idem_definer;
GRANT USAGE ON SCHEMA shop TO regress_idem_definer;
SELECT outcome FROM idem_allow('regress_idem_definer', 'operator');
REVOKE EXECUTE ON FUNCTION shop.may_pay FROM PUBLIC;
SET LOCAL ROLE regress_idem_definer;
SELECT outcome FROM idem_define_machine('guarded', '{"initial": ["sent"], "moves": [{"event": "pay", "from": "sent", "to": "paid", "guard": "shop.may_pay"}]}');
RESET ROLE;
GRANT EXECUTE ON FUNCTION shop.may_pay TO regress_idem_definer;
SET LOCAL ROLE regress_idem_definer;
SELECT outcome FROM idem_define_machine('guarded', '{"initial": ["sent"], "moves": [{"event": "pay", "from": "sent", "to": "paid", "guard": "shop.may_pay"}]}');
RESET ROLE;
CREATE TABLE shop.note (id int PRIMARY KEY, status text, amount int);
SELECT outcome FROM idem_attach_machine('shop.note', 'status', 'guarded');
INSERT INTO shop.note VALUES (1, 'sent', 10), (2, 'sent', 10);
UPDATE shop.note SET status = 'paid' WHERE id = 1;
REVOKE EXECUTE ON FUNCTION shop.may_pay FROM regress_idem_definer;
UPDATE shop.note SET status = 'paid' WHERE id = 2;
SELECT outcome FROM idem_move('shop.note', '2', 'pay');
GRANT EXECUTE ON FUNCTION shop.may_pay TO regress_idem_definer;
-- a role made to leave something behind does not get far
CREATE OR REPLACE FUNCTION shop.may_pay(old pg_catalog.jsonb, new pg_catalog.jsonb) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN SET LOCAL ROLE NONE; RETURN true; END $$;
UPDATE shop.note SET status = 'paid' WHERE id = 2;
CREATE OR REPLACE FUNCTION shop.may_pay(old pg_catalog.jsonb, new pg_catalog.jsonb) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE bait (); RETURN true; END $$;
UPDATE shop.note SET status = 'paid' WHERE id = 2;
DROP FUNCTION shop.may_pay;
UPDATE shop.note SET status = 'paid' WHERE id = 2;
CREATE FUNCTION shop.may_pay(old pg_catalog.jsonb, new pg_catalog.jsonb) RETURNS int LANGUAGE sql AS 'SELECT 1';
UPDATE shop.note SET status = 'paid' WHERE id = 2;
DROP OWNED BY regress_idem_definer;
DROP ROLE regress_idem_definer;
UPDATE shop.note SET status = 'paid' WHERE id = 2;

--
-- Loading rows into a table that is attached
--
INSERT INTO shop.bill (id, status) VALUES (20, 'sent');
SET LOCAL idem.restoring = on;
INSERT INTO shop.bill (id, status) VALUES (20, 'sent');
INSERT INTO shop.bill (id, status) VALUES (21, 'nonsense');
UPDATE shop.bill SET status = 'draft' WHERE id = 20;
RESET idem.restoring;
SELECT count(*) FROM idem_history_of('shop.bill', '20');
SET LOCAL ROLE regress_idem_mover;
SET LOCAL idem.restoring = on;
RESET ROLE;
ROLLBACK;

--
-- A snapshot that is older than the row
--
BEGIN;
SELECT outcome FROM idem_define_machine('bill', '{"initial": ["draft"], "moves": [{"event": "next", "from": "draft", "to": "open"}]}');
CREATE TEMP TABLE own_bill (id int PRIMARY KEY, status text);
SELECT outcome FROM idem_attach_machine('own_bill', 'status', 'bill');
INSERT INTO own_bill VALUES (1, 'draft');
SET LOCAL transaction_read_only = on;
SELECT outcome FROM idem_move('own_bill', '2', 'next');
ROLLBACK;
\set ON_ERROR_ROLLBACK off
