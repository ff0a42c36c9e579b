--
-- bypass: every way around a trigger, on a table that is attached.  Each is
-- refused, or guarded like any other UPDATE, or found by idem_verify().
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
SET LOCAL search_path = pg_catalog;
CREATE TABLE shop.status (word text PRIMARY KEY);
INSERT INTO shop.status VALUES ('open'), ('doing'), ('closed');
CREATE TABLE shop.buyer (id int PRIMARY KEY);
INSERT INTO shop.buyer VALUES (1), (2);
CREATE TABLE shop.ticket (id int PRIMARY KEY, status text NOT NULL DEFAULT 'open', version int NOT NULL DEFAULT 1, price int DEFAULT 10, note text);
SET LOCAL search_path = :path;
SELECT outcome FROM idem_attach_machine('shop.ticket', 'status', 'ticket', '{note}', 'version', '{price}', forbid_delete => true);
INSERT INTO shop.ticket (id) SELECT n FROM generate_series(1, 9) n;
CREATE VIEW shop.story AS SELECT key, version, from_state, to_state FROM idem_history WHERE entity = 'ticket' AND from_state IS NOT NULL;
CREATE VIEW shop.findings AS SELECT invariant, entity, key, detail FROM idem_verify();

--
-- Other triggers
--
CREATE FUNCTION shop.meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW := jsonb_populate_record(NEW, NEW.note::jsonb);
	RETURN NEW;
END $$;
SAVEPOINT here;
-- before the guard: what it makes of the row is judged
CREATE TRIGGER aaa BEFORE UPDATE ON shop.ticket FOR EACH ROW EXECUTE FUNCTION shop.meddle();
UPDATE shop.ticket SET note = '{"status": "closed"}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"price": 11}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"version": 11}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"status": "doing"}' WHERE id = 1;
SELECT * FROM shop.story;
ROLLBACK TO here;
-- after it, by whatever name: likewise
CREATE TRIGGER zz_idem_guard2 BEFORE UPDATE ON shop.ticket FOR EACH ROW EXECUTE FUNCTION shop.meddle();
UPDATE shop.ticket SET note = '{"status": "closed"}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"price": 11}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"id": 11}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"version": 11}' WHERE id = 1;
UPDATE shop.ticket SET note = '{"status": "doing"}' WHERE id = 1;
SELECT * FROM shop.story;
ROLLBACK TO here;
-- on some columns only, on a condition, as a constraint
CREATE TRIGGER zzz BEFORE UPDATE OF note ON shop.ticket FOR EACH ROW WHEN (NEW.note IS NOT NULL) EXECUTE FUNCTION shop.meddle();
UPDATE shop.ticket SET note = '{"status": "closed"}' WHERE id = 1;
ROLLBACK TO here;
-- before an INSERT: the birth is judged as it was stored
CREATE TRIGGER zzz BEFORE INSERT ON shop.ticket FOR EACH ROW EXECUTE FUNCTION shop.meddle();
INSERT INTO shop.ticket (id, note) VALUES (20, '{"status": "closed"}');
ROLLBACK TO here;
-- an UPDATE from within a trigger is one
CREATE FUNCTION shop.repeat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE shop.ticket SET status = 'open' WHERE id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER zzz AFTER UPDATE ON shop.ticket FOR EACH ROW WHEN (NEW.status = 'doing') EXECUTE FUNCTION shop.repeat();
UPDATE shop.ticket SET status = 'doing' WHERE id = 1;
ROLLBACK TO here;

--
-- Other statements
--
INSERT INTO shop.ticket (id, status) VALUES (1, 'closed') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status;
INSERT INTO shop.ticket (id, status) VALUES (20, 'closed') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status;
INSERT INTO shop.ticket (id, status) VALUES (1, 'doing') ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status;
INSERT INTO shop.ticket (id, status) VALUES (1, 'closed') ON CONFLICT DO NOTHING;
SELECT * FROM shop.story;
DO $$
DECLARE
	wanted text;
BEGIN
	FOREACH wanted IN ARRAY '{closed,doing}'::text[] LOOP
		BEGIN
			IF current_setting('server_version_num')::int >= 150000 THEN
				EXECUTE format('MERGE INTO shop.ticket t USING (VALUES (2, %1$L), (21, %1$L)) AS s (id, status) ON t.id = s.id'
					' WHEN MATCHED THEN UPDATE SET status = s.status WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)', wanted);
			ELSE
				INSERT INTO shop.ticket (id) VALUES (21);
				UPDATE shop.ticket SET status = wanted WHERE id = 2;
			END IF;
		EXCEPTION WHEN SQLSTATE 'ID003' THEN
			RAISE NOTICE '%', SQLERRM;
		END;
	END LOOP;
END $$;
COPY shop.ticket (id, status) FROM stdin;
22	closed
\.
COPY shop.ticket (id) FROM stdin;
22
\.
WITH moved AS (UPDATE shop.ticket SET status = 'closed' WHERE id = 3 RETURNING 1) SELECT count(*) FROM moved;
DECLARE cursor CURSOR FOR SELECT * FROM shop.ticket WHERE id = 3 FOR UPDATE;
FETCH cursor;
UPDATE shop.ticket SET status = 'closed' WHERE CURRENT OF cursor;
CLOSE cursor;
UPDATE shop.ticket t SET status = s.word FROM shop.status s WHERE t.id = 3 AND s.word = 'closed';
SELECT * FROM shop.story ORDER BY key;
-- views
CREATE VIEW shop.ticket_view AS SELECT id, status FROM shop.ticket;
UPDATE shop.ticket_view SET status = 'closed' WHERE id = 3;
INSERT INTO shop.ticket_view VALUES (23, 'closed');
CREATE VIEW shop.ticket_words AS SELECT id, upper(status) AS status FROM shop.ticket;
CREATE FUNCTION shop.instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE shop.ticket SET status = lower(NEW.status) WHERE id = NEW.id; RETURN NEW; END $$;
CREATE TRIGGER instead INSTEAD OF UPDATE ON shop.ticket_words FOR EACH ROW EXECUTE FUNCTION shop.instead();
UPDATE shop.ticket_words SET status = 'CLOSED' WHERE id = 3;
CREATE RULE forward AS ON UPDATE TO shop.buyer DO INSTEAD UPDATE shop.ticket SET status = 'closed' WHERE id = NEW.id;
UPDATE shop.buyer SET id = 3 WHERE id = 1;
DROP RULE forward ON shop.buyer;
-- no DELETE and no TRUNCATE, by whatever way
DELETE FROM shop.ticket_view WHERE id = 3;
TRUNCATE shop.ticket CASCADE;
CREATE TABLE shop.before (id int PRIMARY KEY);
INSERT INTO shop.before SELECT n FROM generate_series(1, 30) n;
ALTER TABLE shop.ticket ADD FOREIGN KEY (id) REFERENCES shop.before ON DELETE CASCADE;
DELETE FROM shop.before WHERE id = 3;
TRUNCATE shop.before CASCADE;

--
-- Foreign keys
--
ROLLBACK TO here;
ALTER TABLE shop.ticket ADD FOREIGN KEY (status) REFERENCES shop.status ON DELETE SET DEFAULT ON UPDATE CASCADE;
UPDATE shop.ticket SET status = 'doing' WHERE id = 1;
DELETE FROM shop.status WHERE word = 'doing';
UPDATE shop.status SET word = 'done' WHERE word = 'doing';
UPDATE shop.status SET word = 'free' WHERE word = 'open';
ROLLBACK TO here;
ALTER TABLE shop.ticket ALTER status DROP NOT NULL;
ALTER TABLE shop.ticket ADD FOREIGN KEY (status) REFERENCES shop.status ON DELETE SET NULL;
DELETE FROM shop.status WHERE word = 'open';
ALTER TABLE shop.ticket ADD buyer int REFERENCES shop.buyer ON UPDATE CASCADE ON DELETE SET NULL;
-- one that touches no state is counted
UPDATE shop.ticket SET buyer = 1 WHERE id = 2;
UPDATE shop.buyer SET id = 7 WHERE id = 1;
DELETE FROM shop.buyer WHERE id = 7;
SELECT id, status, buyer, version FROM shop.ticket WHERE id = 2;
ROLLBACK TO here;

--
-- Partitions: a row that moves fires no AFTER UPDATE trigger
--
CREATE TABLE shop.parted (id int, region text, status text, note text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE shop.parted_a PARTITION OF shop.parted FOR VALUES IN ('a');
CREATE TABLE shop.parted_b PARTITION OF shop.parted FOR VALUES IN ('b');
SELECT outcome FROM idem_attach_machine('shop.parted', 'status', 'ticket');
INSERT INTO shop.parted VALUES (1, 'a', 'open'), (2, 'a', 'open');
SAVEPOINT parted;
UPDATE shop.parted SET region = 'b', status = 'closed' WHERE id = 1;
UPDATE shop.parted SET region = 'b' WHERE id = 1;
UPDATE shop.parted_a SET region = 'b' WHERE id = 1;
INSERT INTO shop.parted VALUES (1, 'a', 'open') ON CONFLICT (id, region) DO UPDATE SET region = 'b';
INSERT INTO shop.parted_b VALUES (1, 'b', 'closed');
-- a later trigger could choose another partition: there is none
CREATE TRIGGER zzz BEFORE UPDATE ON shop.parted FOR EACH ROW EXECUTE FUNCTION shop.meddle();
UPDATE shop.parted SET note = '{"region": "b", "status": "closed"}' WHERE id = 1;
UPDATE shop.parted SET note = 'harmless' WHERE id = 1;
SELECT * FROM shop.findings;
ROLLBACK TO parted;
-- what comes in as a partition is not looked at, but found
CREATE TABLE shop.parted_c (LIKE shop.parted INCLUDING ALL);
INSERT INTO shop.parted_c VALUES (3, 'c', 'lost'), (4, 'c', 'closed');
ALTER TABLE shop.parted ATTACH PARTITION shop.parted_c FOR VALUES IN ('c');
UPDATE shop.parted SET status = 'open' WHERE id = 3;
UPDATE shop.parted SET status = 'open' WHERE id = 4;
SELECT * FROM shop.findings;
ROLLBACK TO parted;
-- a child that nobody attached
CREATE TABLE shop.heir () INHERITS (shop.ticket);
SELECT * FROM shop.findings;
ROLLBACK TO here;

--
-- What a table's owner can do, and a superuser: found
--
SELECT * FROM shop.findings;
ALTER TABLE shop.ticket DISABLE TRIGGER zz_idem_guard;
-- the other trigger still sees what is stored
UPDATE shop.ticket SET status = 'closed' WHERE id = 1;
UPDATE shop.ticket SET price = 1 WHERE id = 1;
SELECT * FROM shop.findings;
ALTER TABLE shop.ticket ENABLE REPLICA TRIGGER zz_idem_guard;
SELECT * FROM shop.findings;
ALTER TABLE shop.ticket DISABLE TRIGGER USER;
UPDATE shop.ticket SET status = 'closed' WHERE id = 1;
UPDATE shop.ticket SET status = 'doing' WHERE id = 2;
DELETE FROM shop.ticket WHERE id = 3;
SELECT * FROM shop.findings;
ALTER TABLE shop.ticket ENABLE TRIGGER USER;
SELECT * FROM shop.findings;
ROLLBACK TO here;
DROP TRIGGER zz_idem_record ON shop.ticket;
SELECT * FROM shop.findings;
ROLLBACK TO here;
ALTER TRIGGER zz_idem_guard ON shop.ticket RENAME TO aa_idem_guard;
DROP TRIGGER zz_idem_truncate ON shop.ticket;
DROP INDEX shop.ticket_idem_active;
SELECT * FROM shop.findings;
ROLLBACK TO here;
ALTER TABLE shop.ticket RENAME COLUMN status TO state;
UPDATE shop.ticket SET note = 'x' WHERE id = 1;
SELECT * FROM shop.findings;
ROLLBACK TO here;
-- a rewrite fires no trigger
ALTER TABLE shop.ticket ALTER status TYPE text USING CASE id WHEN 1 THEN 'closed' WHEN 2 THEN 'gone' ELSE status END;
SELECT * FROM shop.findings;
ROLLBACK TO here;
ALTER TABLE shop.ticket ALTER status DROP DEFAULT, ALTER status DROP NOT NULL;
ALTER TABLE shop.ticket DROP COLUMN status, ADD COLUMN status text DEFAULT 'closed';
SELECT count(*), min(key), max(key), min(detail), max(detail) FROM shop.findings GROUP BY invariant;
ROLLBACK TO here;
-- as a replica
SET LOCAL session_replication_role = replica;
UPDATE shop.ticket SET status = 'closed' WHERE id = 1;
RESET session_replication_role;
SELECT * FROM shop.findings;
ROLLBACK TO here;
-- which only a superuser can be
CREATE ROLE regress_idem_bypass;
SET LOCAL ROLE regress_idem_bypass;
SET LOCAL session_replication_role = replica;
SET LOCAL idem.restoring = on;
RESET ROLE;
-- without versions
CREATE TABLE shop.plain (id int PRIMARY KEY, status text);
SELECT outcome FROM idem_attach_machine('shop.plain', 'status', 'ticket');
INSERT INTO shop.plain VALUES (1, 'open'), (2, 'open');
UPDATE shop.plain SET status = 'doing' WHERE id = 1;
SET LOCAL session_replication_role = replica;
UPDATE shop.plain SET status = 'closed' WHERE id = 2;
INSERT INTO shop.plain VALUES (3, 'closed');
RESET session_replication_role;
SELECT * FROM shop.findings;
ROLLBACK TO here;
-- a row that was deleted and is born again begins anew
CREATE TABLE shop.reborn (id int PRIMARY KEY, status text, version int);
SELECT outcome FROM idem_attach_machine('shop.reborn', 'status', 'ticket', version_column => 'version');
INSERT INTO shop.reborn VALUES (1, 'open', 1);
UPDATE shop.reborn SET status = 'doing';
UPDATE shop.reborn SET status = 'closed';
DELETE FROM shop.reborn;
INSERT INTO shop.reborn VALUES (1, 'open', 1);
SELECT version, from_state, to_state FROM idem_history_of('shop.reborn', '1');
SELECT * FROM shop.findings;
-- and what a table does while it is detached is its own affair
SELECT outcome FROM idem_detach_machine('shop.reborn');
UPDATE shop.reborn SET status = 'closed';
SELECT outcome FROM idem_attach_machine('shop.reborn', 'status', 'ticket', version_column => 'version');
SELECT * FROM shop.findings;
ROLLBACK;
\set ON_ERROR_ROLLBACK off
