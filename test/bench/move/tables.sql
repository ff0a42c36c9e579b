-- Rows whose state moves, a table for each regime: no trigger, triggers that
-- do nothing (nothing.sql), the guard in three sizes, PL/pgSQL with a table of rules.
SELECT outcome FROM idem_define_machine('bench', '{"initial": ["pending"], "active": ["pending", "paid", "shipped"], "moves": [
	{"event": "next", "from": "pending", "to": "paid"}, {"event": "next", "from": "paid", "to": "shipped"},
	{"event": "next", "from": "shipped", "to": "refunded"}, {"event": "next", "from": "refunded", "to": "paid"}]}');
CREATE TABLE peer.move (from_state text, to_state text, PRIMARY KEY (from_state, to_state));
INSERT INTO peer.move SELECT from_state, to_state FROM idem_machine_move WHERE machine = 'bench';

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

CREATE FUNCTION peer.make_moved(regime text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE peer.%I (tenant_id text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL,'
		' version int NOT NULL DEFAULT 1, amount bigint, note text, PRIMARY KEY (tenant_id, id)) WITH (fillfactor = 50)', 'moved_' || regime);
	EXECUTE format('INSERT INTO peer.%I (tenant_id, id, status, amount, note)'
		' SELECT ''bench'', i::text, ''pending'', i, repeat(''x'', 40) FROM generate_series(1, 200000) i', 'moved_' || regime);
END $$;
SELECT peer.make_moved(regime) FROM unnest('{bare,before,after,attached,history,announced,plpgsql}'::text[]) regime;

SELECT outcome FROM idem_attach_machine('peer.moved_attached', 'status', 'bench', version_column => 'version', tenant_column => 'tenant_id', history => false);
SELECT outcome FROM idem_attach_machine('peer.moved_history', 'status', 'bench', version_column => 'version', tenant_column => 'tenant_id');
SELECT outcome FROM idem_attach_machine('peer.moved_announced', 'status', 'bench', version_column => 'version', tenant_column => 'tenant_id', outbox => true,
	payload => '{id,amount}');
CREATE TRIGGER guard BEFORE UPDATE ON peer.moved_plpgsql FOR EACH ROW EXECUTE FUNCTION peer.guard();
