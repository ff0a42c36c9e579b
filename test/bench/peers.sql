-- What idem is measured against: the same tables without idem, with the same
-- columns, checks and indexes, and the statements that people write by hand.

CREATE SCHEMA peer;
CREATE TABLE peer.payment (LIKE idem_payment INCLUDING ALL);
CREATE TABLE peer.history (LIKE idem_history INCLUDING ALL);
CREATE TABLE peer.outbox (LIKE idem_outbox INCLUDING ALL);
CREATE SEQUENCE peer.payment_no CACHE 32;

-- The event that idem writes for a payment's birth.
CREATE FUNCTION peer.event(p peer.payment) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object('v', 1, 'tenant_id', p.tenant_id, 'order_id', p.order_id, 'purchase_no', p.purchase_no,
	'payment_no', p.payment_no, 'from', NULL, 'to', p.status, 'event', 'create', 'amount', p.amount, 'currency', p.currency,
	'version', p.version, 'at', p.created_at)
$$;

-- The usual function: look for the key, look for an active payment, insert.
CREATE FUNCTION peer.create_payment(a_tenant_id text, a_order_id text, a_amount bigint, a_currency text, a_request_key text,
	OUT outcome text, OUT payment_no text)
LANGUAGE plpgsql AS $$
DECLARE
	p peer.payment;
	event uuid := gen_random_uuid();
BEGIN
	SELECT k.payment_no INTO payment_no FROM peer.payment k WHERE k.tenant_id = a_tenant_id AND k.request_key = a_request_key;
	IF FOUND THEN
		outcome := 'replayed';
		RETURN;
	END IF;
	SELECT a.payment_no INTO payment_no FROM peer.payment a
	WHERE a.tenant_id = a_tenant_id AND a.order_id = a_order_id AND a.status IN ('pending', 'closing', 'review');
	IF FOUND THEN
		outcome := 'existing';
		RETURN;
	END IF;
	INSERT INTO peer.payment AS new (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, request_key, created_at, expires_at)
	VALUES (a_tenant_id, nextval('peer.payment_no')::text, a_order_id, 1, a_amount, a_currency, 'pending', a_request_key,
		clock_timestamp(), clock_timestamp() + interval '30 minutes')
	ON CONFLICT DO NOTHING RETURNING new.* INTO p;
	IF NOT FOUND THEN
		outcome := 'existing';
		RETURN;
	END IF;
	INSERT INTO peer.outbox (id, tenant_id, aggregatetype, aggregateid, type, payload, created_at)
	VALUES (event, p.tenant_id, 'order', p.order_id, 'payment.pending', peer.event(p), p.created_at);
	INSERT INTO peer.history (tenant_id, entity, key, version, to_state, event, session_role, event_id, at)
	VALUES (p.tenant_id, 'payment', p.payment_no, p.version, p.status, 'create', session_user, event, p.created_at);
	outcome := 'created';
	payment_no := p.payment_no;
END $$;

-- A million payments, here and there, for the reads.
INSERT INTO peer.payment (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, request_key, created_at, expires_at)
SELECT 'read', (10 ^ 15 + i)::bigint, 'read-' || i, 1, 9900, 'CNY', 'pending', 'read-' || i, now(), now() + interval '1 day'
FROM generate_series(1, :payments) i;
INSERT INTO idem_payment SELECT * FROM peer.payment;

-- Batches of 1,000 requests, made beforehand; each call takes one, for a tenant
-- of its own.
CREATE TABLE peer.batch AS
SELECT b AS id, (SELECT jsonb_agg(jsonb_build_object('order_id', format('b-%s-%s', b, i), 'amount', 9900, 'currency', 'CNY',
	'request_key', format('b-%s-%s', b, i))) FROM generate_series(1, 1000) i) AS requests
FROM generate_series(1, 20) b;
ALTER TABLE peer.batch ADD PRIMARY KEY (id);

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

VACUUM ANALYZE;
CHECKPOINT;
