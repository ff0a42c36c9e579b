-- Rows whose state moves, under four regimes: no trigger, a trigger in C that
-- only compares, the guard, a trigger in PL/pgSQL with a table of rules.
CREATE TABLE peer.move (from_state text, to_state text, PRIMARY KEY (from_state, to_state));
INSERT INTO peer.move SELECT from_state, to_state FROM idem_machine_move WHERE machine = 'order';

CREATE FUNCTION peer.guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.tenant_id <> OLD.tenant_id OR NEW.id <> OLD.id THEN
		RAISE EXCEPTION 'frozen';
	END IF;
	IF NEW.status <> OLD.status THEN
		PERFORM FROM peer.move WHERE from_state = OLD.status AND to_state = NEW.status;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'illegal move from % to %', OLD.status, NEW.status;
		END IF;
	END IF;
	NEW.version := OLD.version + 1;
	RETURN NEW;
END $$;

CREATE TABLE peer.moved (
	tenant_id text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,
	version int NOT NULL DEFAULT 1, amount bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (fillfactor = 50);
CREATE TABLE peer.moved_bare (LIKE peer.moved INCLUDING ALL) WITH (fillfactor = 50);
CREATE TABLE peer.moved_compared (LIKE peer.moved INCLUDING ALL) WITH (fillfactor = 50);
CREATE TABLE peer.moved_guarded (LIKE peer.moved INCLUDING ALL) WITH (fillfactor = 50);
CREATE TABLE peer.moved_plpgsql (LIKE peer.moved INCLUDING ALL) WITH (fillfactor = 50);
CREATE TRIGGER compare BEFORE UPDATE ON peer.moved_compared FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER zz_guard BEFORE UPDATE ON peer.moved_guarded FOR EACH ROW EXECUTE FUNCTION idem_guard(
	'own=on', 'machine=order', 'entity=moved', 'state=status', 'tenant=tenant_id', 'key=id', 'version=version',
	'frozen=tenant_id', 'frozen=id');
CREATE TRIGGER guard BEFORE UPDATE ON peer.moved_plpgsql FOR EACH ROW EXECUTE FUNCTION peer.guard();
INSERT INTO peer.moved (tenant_id, id, status, amount, note)
SELECT 'bench', i::text, 'pending', i, repeat('x', 40) FROM generate_series(1, 200000) i;
INSERT INTO peer.moved_bare SELECT * FROM peer.moved;
INSERT INTO peer.moved_compared SELECT * FROM peer.moved;
INSERT INTO peer.moved_guarded SELECT * FROM peer.moved;
INSERT INTO peer.moved_plpgsql SELECT * FROM peer.moved;
