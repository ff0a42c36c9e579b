--
-- attach: tables of anybody's on a state machine: what can be attached, by
-- which key, with which options; what is refused; detaching.
--
-- All of it is rolled back.
--
\set ON_ERROR_ROLLBACK on
\set SHOW_CONTEXT never
BEGIN;
CREATE SCHEMA shop;
-- Scenes are set with the server's own types and operators, whatever the path has.
SELECT current_setting('search_path') AS path \gset
SELECT outcome FROM idem_define_machine('ticket', '{"initial": ["open"], "final": ["closed"], "active": ["open", "doing"],
	"moves": [{"event": "take", "from": "open", "to": "doing"}, {"event": "close", "from": "doing", "to": "closed"}]}');

--
-- A table with everything
--
SET LOCAL search_path = pg_catalog;
CREATE TABLE shop.ticket (id int PRIMARY KEY, seat text, status text NOT NULL DEFAULT 'open', version int NOT NULL DEFAULT 1, price int, note text);
SET LOCAL search_path = :path;
INSERT INTO shop.ticket VALUES (1, 'A1'), (2, 'A2');
SELECT * FROM idem_attach_machine('shop.ticket', 'status', 'ticket', active_key => '{seat}', version_column => 'version', frozen => '{price}',
	outbox => true, forbid_delete => true, payload => '{id,seat,price}');
-- that is all that it leaves behind
SELECT tgname, tgtype, tgenabled, regexp_replace(encode(tgargs, 'escape'), 'since=.*?\\000', '') AS arguments FROM pg_trigger WHERE tgrelid = 'shop.ticket'::regclass ORDER BY tgname;
SELECT replace(replace(pg_get_indexdef('shop.ticket_idem_active'::regclass), 'OPERATOR(pg_catalog.=)', '='), 'pg_catalog.', '') AS index;
-- rows that were there have no history yet; what moves from now on has
INSERT INTO shop.ticket (id, seat, price) VALUES (3, 'A3', 5);
UPDATE shop.ticket SET status = 'doing' WHERE id IN (1, 3);
UPDATE shop.ticket SET note = 'by the window' WHERE id = 3;
SELECT id, status, version FROM shop.ticket ORDER BY id;
SELECT tenant_id, entity, key, version, from_state, to_state, event, event_id IS NOT NULL AS announced FROM idem_history WHERE entity = 'ticket' ORDER BY key, version;
SELECT tenant_id, aggregatetype, aggregateid, type, payload - 'at' AS payload FROM idem_outbox WHERE aggregatetype = 'ticket' ORDER BY created_at;
-- and what the guard refuses
INSERT INTO shop.ticket VALUES (4, 'A4', 'closed');
INSERT INTO shop.ticket VALUES (4, 'A1');
UPDATE shop.ticket SET status = 'closed' WHERE id = 2;
UPDATE shop.ticket SET status = 'lost' WHERE id = 2;
UPDATE shop.ticket SET status = NULL WHERE id = 2;
UPDATE shop.ticket SET price = 6 WHERE id = 3;
UPDATE shop.ticket SET id = 7 WHERE id = 3;
UPDATE shop.ticket SET version = 9 WHERE id = 3;
UPDATE shop.ticket SET version = version + 1, note = 'read at 3' WHERE id = 3 AND version = 3;
SELECT version FROM shop.ticket WHERE id = 3;
DELETE FROM shop.ticket WHERE id = 1;
TRUNCATE shop.ticket;

-- Once more is no error; otherwise is.
SELECT * FROM idem_attach_machine('shop.ticket', 'status', 'ticket', active_key => '{seat}', version_column => 'version', frozen => '{price}',
	outbox => true, forbid_delete => true, payload => '{id,seat,price}');
CREATE FUNCTION pg_temp.again(state_column name DEFAULT 'status', machine text DEFAULT 'ticket', active_key text[] DEFAULT '{seat}', version_column name DEFAULT 'version',
	frozen text[] DEFAULT '{price}', history boolean DEFAULT true, outbox boolean DEFAULT true, forbid_delete boolean DEFAULT true, payload text[] DEFAULT '{id,seat,price}',
	tenant_column name DEFAULT NULL, entity text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	RETURN (idem_attach_machine('shop.ticket', state_column, machine, active_key, version_column, frozen, history, outbox, forbid_delete, payload, tenant_column, entity)).outcome;
EXCEPTION WHEN SQLSTATE 'ID001' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN SQLERRM || ': ' || detail;
END $$;
SELECT outcome FROM idem_define_machine('other', '{"initial": ["open"], "active": ["open", "doing"], "moves": [{"event": "take", "from": "open", "to": "doing"}]}');
SELECT pg_temp.again();
SELECT pg_temp.again(entity => 'ticket');
SELECT pg_temp.again(machine => 'other', history => false);
SELECT pg_temp.again(state_column => 'note');
SELECT pg_temp.again(active_key => '{seat,price}');
SELECT pg_temp.again(active_key => NULL);
SELECT pg_temp.again(version_column => NULL);
SELECT pg_temp.again(frozen => '{price,note}');
SELECT pg_temp.again(history => false);
SELECT pg_temp.again(outbox => false, payload => NULL);
SELECT pg_temp.again(forbid_delete => false);
SELECT pg_temp.again(payload => '{id}');
SELECT pg_temp.again(tenant_column => 'note');
SELECT pg_temp.again(entity => 'seat');

--
-- Detaching
--
SELECT * FROM idem_detach_machine('shop.ticket');
SELECT * FROM idem_detach_machine('shop.ticket');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.ticket'::regclass;
SELECT to_regclass('shop.ticket_idem_active');
UPDATE shop.ticket SET status = 'lost' WHERE id = 2;
DELETE FROM shop.ticket WHERE id = 3;

--
-- Rows that are there: those in other states are named
--
INSERT INTO shop.ticket (id, seat, status) SELECT n, 'C' || n, CASE n % 4 WHEN 0 THEN 'open' ELSE 'state ' || n % 4 END FROM generate_series(10, 20) n;
ALTER TABLE shop.ticket ALTER status DROP NOT NULL;
UPDATE shop.ticket SET status = NULL WHERE id = 1;
SELECT outcome FROM idem_attach_machine('shop.ticket', 'status', 'ticket');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.ticket'::regclass;
UPDATE shop.ticket SET status = CASE WHEN id < 15 THEN 'open' ELSE 'closed' END;
-- keys with several active rows are named
UPDATE shop.ticket SET seat = 'B' || id % 3;
SELECT outcome FROM idem_attach_machine('shop.ticket', 'status', 'ticket', '{seat}');
SELECT outcome FROM idem_attach_machine('shop.ticket', 'status', 'ticket', '{seat,price}');
SELECT * FROM idem_detach_machine('shop.ticket');
-- an index that does the same is taken, however it is put, and stays when the table is detached
UPDATE shop.ticket SET seat = 'D' || id;
SET LOCAL search_path = pg_catalog;
CREATE UNIQUE INDEX my_own ON shop.ticket (seat) INCLUDE (note) WHERE NOT (status = 'closed') AND status IS NOT NULL;
SET LOCAL search_path = :path;
SELECT * FROM idem_attach_machine('shop.ticket', 'status', 'ticket', '{seat}');
SELECT * FROM idem_detach_machine('shop.ticket');
DROP INDEX shop.my_own;
-- these do not
SET LOCAL search_path = pg_catalog;
CREATE UNIQUE INDEX all_rows ON shop.ticket (seat);
CREATE UNIQUE INDEX one_state ON shop.ticket (seat) WHERE status = 'open';
CREATE UNIQUE INDEX more_columns ON shop.ticket (seat, note) WHERE status IN ('open', 'doing');
CREATE UNIQUE INDEX more_conditions ON shop.ticket (seat) WHERE status IN ('open', 'doing') AND price > 0;
CREATE INDEX not_unique ON shop.ticket (seat) WHERE status IN ('open', 'doing');
SET LOCAL search_path = :path;
SELECT * FROM idem_attach_machine('shop.ticket', 'status', 'ticket', '{seat}');
SELECT * FROM idem_detach_machine('shop.ticket');
DROP TABLE shop.ticket;

--
-- States of other types
--
SET LOCAL search_path = pg_catalog;
CREATE TYPE shop.status AS ENUM ('doing', 'open', 'closed');
CREATE DOMAIN shop.step AS varchar(6) CHECK (VALUE <> '');
CREATE TABLE shop.by_enum (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status shop.status DEFAULT 'open', words text GENERATED ALWAYS AS ('<' || id || '>') STORED);
CREATE TABLE shop.by_domain (id uuid PRIMARY KEY, status shop.step);
CREATE TABLE shop.by_char (id char(4) PRIMARY KEY, status char(10));
CREATE TABLE shop.by_name (id name PRIMARY KEY, status name);
CREATE TABLE shop.by_number (id int PRIMARY KEY, status smallint, version int GENERATED BY DEFAULT AS IDENTITY, twice int GENERATED ALWAYS AS (status * 2) STORED);
SET LOCAL search_path = :path;
SELECT outcome FROM idem_define_machine('number', '{"initial": ["0"], "moves": [{"event": "add", "from": "0", "to": "1"}, {"event": "subtract", "from": "1", "to": "0"}]}');
SELECT * FROM idem_attach_machine('shop.by_enum', 'status', 'ticket', '{status}', outbox => true, payload => '{words}');
SELECT * FROM idem_attach_machine('shop.by_domain', 'status', 'ticket', '{id}');
SELECT * FROM idem_attach_machine('shop.by_char', 'status', 'ticket', '{id}');
SELECT * FROM idem_attach_machine('shop.by_name', 'status', 'ticket', '{id}');
SELECT * FROM idem_attach_machine('shop.by_number', 'status', 'number');
INSERT INTO shop.by_enum DEFAULT VALUES;
INSERT INTO shop.by_domain VALUES ('00000000-0000-0000-0000-000000000001', 'open');
INSERT INTO shop.by_char VALUES ('a', 'open');
INSERT INTO shop.by_name VALUES ('a', 'open');
INSERT INTO shop.by_number VALUES (1, 0);
INSERT INTO shop.by_number VALUES (2, 1);
UPDATE shop.by_enum SET status = 'closed';
UPDATE shop.by_enum SET status = 'doing';
UPDATE shop.by_domain SET status = 'closed';
UPDATE shop.by_domain SET status = 'doing';
UPDATE shop.by_char SET status = 'closed';
UPDATE shop.by_char SET status = 'doing';
UPDATE shop.by_name SET status = 'closed';
UPDATE shop.by_name SET status = 'doing';
UPDATE shop.by_number SET status = 1;
UPDATE shop.by_number SET status = 0;
UPDATE shop.by_number SET status = 7;
SELECT entity, key, from_state, to_state, event FROM idem_history WHERE entity LIKE 'by%' ORDER BY entity, at;
SELECT type, payload -> 'words' AS words FROM idem_outbox WHERE aggregatetype = 'by_enum' ORDER BY created_at;
-- once more, by indexes that PostgreSQL made of our words
SELECT outcome FROM idem_attach_machine('shop.by_enum', 'status', 'ticket', '{status}', outbox => true, payload => '{words}');
SELECT outcome FROM idem_attach_machine('shop.by_char', 'status', 'ticket', '{id}');
-- a machine with states that the column cannot hold
CREATE TABLE shop.too_narrow (id int PRIMARY KEY, status varchar(5));
SELECT idem_attach_machine('shop.too_narrow', 'status', 'ticket');
SELECT idem_attach_machine('shop.by_number', 'id', 'ticket');
ALTER TYPE shop.status RENAME VALUE 'closed' TO 'shut';
CREATE TABLE shop.too_few (id int PRIMARY KEY, status shop.status);
SELECT idem_attach_machine('shop.too_few', 'status', 'ticket');

--
-- Keys and names
--
CREATE TABLE shop."Two ""Words""" ("Key=1" text COLLATE "C", "Key 2" numeric, "State's" text, "Ver sion" int, PRIMARY KEY ("Key=1", "Key 2"));
SELECT * FROM idem_attach_machine('shop."Two ""Words"""', 'State''s', 'ticket', '{Key=1}', 'Ver sion', outbox => true);
INSERT INTO shop."Two ""Words""" VALUES ('it''s', 1.50, 'open', 1);
UPDATE shop."Two ""Words""" SET "State's" = 'doing';
UPDATE shop."Two ""Words""" SET "Key 2" = 2;
SELECT entity, key, from_state, to_state FROM idem_history WHERE entity LIKE 'Two%' ORDER BY at;
SELECT aggregateid, payload - 'at' AS payload FROM idem_outbox WHERE type = 'Two "Words".doing';
-- a tenant; the replica identity before any other unique index; the first unique index that is never NULL
CREATE TABLE shop.by_tenant (shop_id text, no int, status text, PRIMARY KEY (shop_id, no));
CREATE TABLE shop.by_identity (a int NOT NULL UNIQUE, b int NOT NULL, status text);
CREATE UNIQUE INDEX by_identity_b ON shop.by_identity (b);
ALTER TABLE shop.by_identity REPLICA IDENTITY USING INDEX by_identity_b;
CREATE TABLE shop.by_unique (a int UNIQUE, b int NOT NULL, status text);
SET LOCAL search_path = pg_catalog;
CREATE UNIQUE INDEX by_unique_part ON shop.by_unique (b) WHERE b > 0;
SET LOCAL search_path = :path;
SELECT outcome FROM idem_attach_machine('shop.by_unique', 'status', 'ticket');
ALTER TABLE shop.by_unique ADD UNIQUE (b) DEFERRABLE;
SELECT outcome FROM idem_attach_machine('shop.by_unique', 'status', 'ticket');
ALTER TABLE shop.by_unique ADD UNIQUE (b);
SELECT outcome FROM idem_attach_machine('shop.by_tenant', 'status', 'ticket', tenant_column => 'shop_id');
SELECT outcome FROM idem_attach_machine('shop.by_identity', 'status', 'ticket');
SELECT outcome FROM idem_attach_machine('shop.by_unique', 'status', 'ticket');
INSERT INTO shop.by_tenant VALUES ('acme', 1, 'open');
INSERT INTO shop.by_identity VALUES (1, 2, 'open');
INSERT INTO shop.by_unique VALUES (1, 2, 'open');
SELECT tenant_id, entity, key FROM idem_history WHERE entity IN ('by_tenant', 'by_identity', 'by_unique') ORDER BY entity;
UPDATE shop.by_tenant SET shop_id = 'ajax';
-- the name of a built-in entity, or of one that is taken, gets its schema; two schemas
CREATE TABLE shop.order (id int PRIMARY KEY, status text);
CREATE TABLE shop.receipt (id int PRIMARY KEY, status text);
CREATE SCHEMA "Shop 2";
CREATE TABLE "Shop 2".by_tenant (id int PRIMARY KEY, status text);
SELECT * FROM idem_attach_machine('shop.order', 'status', 'ticket');
SELECT * FROM idem_attach_machine('shop.receipt', 'status', 'ticket');
SELECT * FROM idem_attach_machine('"Shop 2".by_tenant', 'status', 'ticket');
SELECT idem_detach_machine('shop.receipt');
SELECT * FROM idem_attach_machine('shop.receipt', 'status', 'ticket', entity => 'slip');
SELECT idem_detach_machine('"Shop 2".by_tenant');
SELECT * FROM idem_attach_machine('"Shop 2".by_tenant', 'status', 'ticket', entity => 'slip');
SELECT * FROM idem_attach_machine('"Shop 2".by_tenant', 'status', 'ticket', entity => 'payment');
SELECT * FROM idem_attach_machine('"Shop 2".by_tenant', 'status', 'ticket', entity => 'lease');
-- a table that is renamed is what it was
ALTER TABLE shop.by_tenant RENAME TO by_client;
SELECT * FROM idem_attach_machine('shop.by_client', 'status', 'ticket', tenant_column => 'shop_id');

--
-- Partitions
--
CREATE TABLE shop.parted (id int, region text, status text, version int, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE shop.parted_eu PARTITION OF shop.parted FOR VALUES IN ('eu');
CREATE TABLE shop.parted_as (version int, status text, region text NOT NULL, id int NOT NULL) PARTITION BY RANGE (id);
CREATE TABLE shop.parted_as_1 PARTITION OF shop.parted_as FOR VALUES FROM (0) TO (100);
ALTER TABLE shop.parted ATTACH PARTITION shop.parted_as FOR VALUES IN ('as');
SELECT * FROM idem_attach_machine('shop.parted', 'status', 'ticket', '{region,id}', 'version', forbid_delete => true);
INSERT INTO shop.parted VALUES (1, 'eu', 'open', 1), (1, 'as', 'open', 1);
UPDATE shop.parted SET status = 'closed' WHERE region = 'eu';
UPDATE shop.parted SET status = 'doing';
UPDATE shop.parted_as_1 SET status = 'open';
SELECT tableoid::regclass::text, region, id, status, version FROM shop.parted ORDER BY region;
SELECT entity, key, from_state, to_state FROM idem_history WHERE entity = 'parted' ORDER BY key, at;
-- a row stays in its partition
UPDATE shop.parted SET region = 'as', id = 2 WHERE region = 'eu';
UPDATE shop.parted SET id = 200 WHERE region = 'as';
DELETE FROM shop.parted WHERE region = 'eu';
DELETE FROM shop.parted_as_1;
TRUNCATE shop.parted;
TRUNCATE shop.parted_as_1;
-- a partition that comes later is guarded; only its TRUNCATE is not before the table is attached anew
CREATE TABLE shop.parted_us PARTITION OF shop.parted FOR VALUES IN ('us');
INSERT INTO shop.parted VALUES (1, 'us', 'open', 1), (2, 'us', 'open', 1);
INSERT INTO shop.parted VALUES (1, 'us', 'open', 1);
UPDATE shop.parted_us SET status = 'closed';
SELECT outcome FROM idem_attach_machine('shop.parted', 'status', 'ticket', '{region,id}', 'version', forbid_delete => true);
SELECT outcome FROM idem_attach_machine('shop.parted', 'status', 'ticket', '{region,id}', 'version', forbid_delete => true);
TRUNCATE shop.parted_us;
SELECT outcome FROM idem_attach_machine('shop.parted_us', 'status', 'ticket');
SELECT outcome FROM idem_detach_machine('shop.parted');
SELECT count(*) FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'shop'::regnamespace AND relname LIKE 'parted%');
SELECT count(*) FROM pg_class WHERE relnamespace = 'shop'::regnamespace AND relname LIKE '%idem_active' AND relname LIKE 'parted%';
-- an index over partitions needs their key in it
CREATE TABLE shop.split (id int PRIMARY KEY, status text, who int) PARTITION BY HASH (id);
SELECT outcome FROM idem_attach_machine('shop.split', 'status', 'ticket', '{who}');
-- misfits are named where they are
INSERT INTO shop.parted VALUES (9, 'eu', 'open', 1);
UPDATE shop.parted SET status = 'lost' WHERE region <> 'us';
SELECT outcome FROM idem_attach_machine('shop.parted', 'status', 'ticket');

--
-- Inheritance
--
CREATE TABLE shop.parent (id int PRIMARY KEY, status text);
CREATE TABLE shop.child (extra int) INHERITS (shop.parent);
SELECT outcome FROM idem_attach_machine('shop.parent', 'status', 'ticket', '{id}');
SELECT outcome FROM idem_attach_machine('shop.parent', 'status', 'ticket');
INSERT INTO shop.child VALUES (1, 'open');
INSERT INTO shop.child VALUES (1, 'closed');
UPDATE shop.parent SET status = 'closed';
UPDATE shop.parent SET status = 'doing';
SELECT entity, key, from_state, to_state FROM idem_history WHERE entity = 'parent' ORDER BY at;
-- a child that comes later is not guarded before the parent is attached anew, which looks at its rows
CREATE TABLE shop.child2 () INHERITS (shop.parent);
INSERT INTO shop.child2 VALUES (2, 'closed'), (3, 'lost');
SELECT outcome FROM idem_attach_machine('shop.parent', 'status', 'ticket');
DELETE FROM shop.child2 WHERE status = 'lost';
SELECT outcome FROM idem_attach_machine('shop.parent', 'status', 'ticket');
UPDATE shop.parent SET status = 'open' WHERE id = 2;
SELECT outcome FROM idem_detach_machine('shop.parent');
UPDATE shop.parent SET status = 'open' WHERE id = 2;

--
-- What is refused
--
SET LOCAL search_path = pg_catalog;
CREATE TABLE shop.plain (id int PRIMARY KEY, status text, version int, big bigint, doc json, made text GENERATED ALWAYS AS (status || '!') STORED, no int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE shop.keyless (id int, status text);
CREATE TABLE shop.made_key (id int, made int GENERATED ALWAYS AS (id + 1) STORED PRIMARY KEY, status text);
CREATE VIEW shop.plain_view AS SELECT * FROM shop.plain;
CREATE SEQUENCE shop.numbers;
SET LOCAL search_path = :path;
SELECT idem_attach_machine(NULL, 'status', 'ticket');
SELECT idem_attach_machine('shop.plain', NULL, 'ticket');
SELECT idem_attach_machine('shop.plain', 'status', NULL);
SELECT idem_attach_machine('shop.plain', 'status', '');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', entity => '');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', frozen => '{version,NULL}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', frozen => '{version,version}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', payload => '{version}');
SELECT idem_attach_machine('shop.plain', 'status', 'nothing');
SELECT idem_attach_machine(0, 'status', 'ticket');
SELECT idem_attach_machine('shop.plain_view', 'status', 'ticket');
SELECT idem_attach_machine('shop.numbers', 'status', 'ticket');
SELECT idem_attach_machine('pg_catalog.pg_class', 'relname', 'ticket');
SELECT idem_attach_machine('idem_payment'::regclass, 'status', 'ticket');
SELECT idem_attach_machine('shop.keyless', 'status', 'ticket');
SELECT idem_attach_machine('shop.made_key', 'status', 'ticket');
SELECT idem_attach_machine('shop.plain', 'nothing', 'ticket');
SELECT idem_attach_machine('shop.plain', 'ctid', 'ticket');
SELECT idem_attach_machine('shop.plain', 'doc', 'ticket');
SELECT idem_attach_machine('shop.plain', 'made', 'ticket');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', frozen => '{status}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', frozen => '{made}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', frozen => '{nothing}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', active_key => '{nothing}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', outbox => true, payload => '{nothing}');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', tenant_column => 'made');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', version_column => 'big');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', version_column => 'no');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', version_column => 'id');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', version_column => 'status');
SELECT idem_attach_machine('shop.plain', 'status', 'ticket', version_column => 'nothing');
SELECT idem_attach_machine('shop.plain', 'status', 'number', '{big}');
SELECT idem_detach_machine(NULL);
SELECT idem_detach_machine(0);
SELECT idem_detach_machine('shop.plain_view');
SELECT idem_detach_machine('idem_payment'::regclass);
-- somebody else's trigger stands in the way
CREATE FUNCTION shop.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER zz_idem_record AFTER INSERT ON shop.plain FOR EACH ROW EXECUTE FUNCTION shop.nothing();
SELECT idem_attach_machine('shop.plain', 'status', 'ticket');
DROP TRIGGER zz_idem_record ON shop.plain;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.plain'::regclass;

--
-- Whose table it is
--
CREATE ROLE regress_idem_maker;
CREATE ROLE regress_idem_other;
GRANT USAGE, CREATE ON SCHEMA shop TO regress_idem_maker, regress_idem_other;
SET LOCAL ROLE regress_idem_maker;
CREATE TABLE shop.mine (id int PRIMARY KEY, status text);
SELECT idem_attach_machine('shop.mine', 'status', 'ticket');
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_maker', 'operator', 'nobody');
SELECT outcome FROM idem_allow('regress_idem_other', 'operator', 'nobody');
SET LOCAL ROLE regress_idem_other;
SELECT idem_attach_machine('shop.mine', 'status', 'ticket');
SELECT idem_detach_machine('shop.mine');
SET LOCAL ROLE regress_idem_maker;
SELECT outcome FROM idem_attach_machine('shop.plain', 'status', 'ticket');
SELECT outcome FROM idem_attach_machine('shop.mine', 'status', 'payment');
SELECT outcome FROM idem_attach_machine('shop.mine', 'status', 'ticket', '{id}');
INSERT INTO shop.mine VALUES (1, 'open');
UPDATE shop.mine SET status = 'closed';
-- he owns the table, but not the guard: no trigger with it is his to make
CREATE TRIGGER forged AFTER INSERT ON shop.mine FOR EACH ROW EXECUTE FUNCTION idem_guard('machine=ticket', 'state=status', 'key=id', 'entity=order');
-- nor a child of the table without its owner
CREATE TABLE shop.mine2 () INHERITS (shop.mine);
RESET ROLE;
ALTER TABLE shop.mine2 OWNER TO regress_idem_other;
SET LOCAL ROLE regress_idem_maker;
SELECT outcome FROM idem_detach_machine('shop.mine');
DROP TRIGGER zz_idem_guard ON shop.mine;
RESET ROLE;
ALTER TABLE shop.mine2 NO INHERIT shop.mine;
SET LOCAL ROLE regress_idem_maker;
SELECT outcome FROM idem_attach_machine('shop.mine', 'status', 'ticket', '{id}');
SELECT outcome FROM idem_detach_machine('shop.mine');
RESET ROLE;
-- the extension's owner, if he is no superuser, needs a right on the table
CREATE ROLE regress_idem_house;
SAVEPOINT owner;
ALTER FUNCTION idem_attach_machine OWNER TO regress_idem_house;
GRANT EXECUTE ON FUNCTION idem_attach_machine TO regress_idem_maker;
SET LOCAL ROLE regress_idem_maker;
SELECT outcome FROM idem_attach_machine('shop.mine', 'status', 'ticket');
ROLLBACK TO owner;
-- the history of the table that it was is not for whoever takes its name
CREATE SCHEMA market AUTHORIZATION regress_idem_other;
SET LOCAL ROLE regress_idem_other;
CREATE TABLE market.mine (id int PRIMARY KEY, status text);
SELECT outcome FROM idem_attach_machine('market.mine', 'status', 'ticket', entity => 'mine');
SELECT outcome, entity FROM idem_attach_machine('market.mine', 'status', 'ticket');
SELECT count(*) FROM idem_history_of('market.mine', '1');
SET LOCAL ROLE regress_idem_maker;
SELECT outcome, entity FROM idem_attach_machine('shop.mine', 'status', 'ticket');
SELECT from_state, to_state FROM idem_history_of('shop.mine', '1');
RESET ROLE;
SELECT entity, owner FROM idem_entity WHERE owner LIKE 'regress%' ORDER BY entity;
\set VERBOSITY sqlstate
UPDATE idem_entity SET entity = 'free' WHERE entity = 'mine';
DELETE FROM idem_entity;
TRUNCATE idem_entity;
\set VERBOSITY default
DROP TABLE shop.mine, market.mine;

--
-- The extension does not go while tables stand on it.
--
DROP TABLE shop.by_enum, shop.by_domain, shop.by_char, shop.by_name, shop.by_number, shop."Two ""Words""", shop.by_identity, shop.by_unique, shop.order, shop.receipt;
SET LOCAL idem.allow_drop = on;
DO $$
DECLARE
	detail text;
BEGIN
	DROP EXTENSION idem;
EXCEPTION WHEN dependent_objects_still_exist THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RAISE NOTICE E'%: %', SQLERRM, (SELECT string_agg(regexp_replace(line, 'function .*', 'the guard'), E'\n' ORDER BY line) FROM regexp_split_to_table(detail, E'\n') line WHERE line LIKE '%shop.%');
END $$;
ROLLBACK;
\set ON_ERROR_ROLLBACK off
