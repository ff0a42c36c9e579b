/*
 * machine: state machines as rows, the trigger that enforces them, and the
 * history it writes.
 *
 * Rules are data so that an operator can read what is allowed; they are
 * enforced from a backend-local cache, so that reading them costs nothing.
 */

CREATE TABLE @extschema@.idem_machine (
	name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
	builtin boolean NOT NULL DEFAULT false,
	PRIMARY KEY (name)
);
COMMENT ON TABLE @extschema@.idem_machine IS
'State machines by name. Built-in ones belong to the extension and are closed (ID007).';

CREATE TABLE @extschema@.idem_machine_state (
	machine text COLLATE "C" NOT NULL,
	state text COLLATE "C" NOT NULL CHECK (octet_length(state) BETWEEN 1 AND 255),
	initial boolean NOT NULL DEFAULT false,
	final boolean NOT NULL DEFAULT false,
	active boolean NOT NULL DEFAULT false,
	PRIMARY KEY (machine, state)
);
COMMENT ON TABLE @extschema@.idem_machine_state IS
'The states of each machine. initial: a row may be born in it; final: only facts lead out of it; active: it holds the slot or the reserve.';

CREATE TABLE @extschema@.idem_machine_move (
	machine text COLLATE "C" NOT NULL,
	from_state text COLLATE "C" NOT NULL,
	to_state text COLLATE "C" NOT NULL,
	event text COLLATE "C" NOT NULL CHECK (octet_length(event) BETWEEN 1 AND 255),
	fact boolean NOT NULL DEFAULT false,
	PRIMARY KEY (machine, from_state, to_state)
);
COMMENT ON TABLE @extschema@.idem_machine_move IS
'The legal moves of each machine. fact: something that already happened outside and is recorded whatever the state says.';

INSERT INTO @extschema@.idem_machine (name, builtin) VALUES
	('order', true), ('payment', true), ('refund', true), ('dispute', true), ('anomaly', true),
	('entitlement', true);

INSERT INTO @extschema@.idem_machine_state (machine, state, initial, final, active) VALUES
	('order', 'pending', true, false, true),
	('order', 'paid', false, false, true),
	('order', 'shipped', false, false, true),
	('order', 'completed', false, false, false),
	('order', 'cancelled', false, true, false),
	('order', 'expired', false, true, false),
	('order', 'refunded', false, true, false),
	('payment', 'pending', true, false, true),
	('payment', 'closing', false, false, true),
	('payment', 'review', false, false, true),
	('payment', 'paid', false, true, false),
	('payment', 'paid_late', false, false, false),
	('payment', 'failed', false, true, false),
	('payment', 'closed', false, true, false),
	('refund', 'requested', true, false, true),
	('refund', 'processing', false, false, true),
	('refund', 'succeeded', false, true, true),
	('refund', 'failed', false, false, false),
	('refund', 'closed', false, true, false),
	('refund', 'abnormal', false, false, true),
	('refund', 'cancelled', false, true, false),
	('refund', 'reversed', false, true, false),
	('dispute', 'opened', true, false, true),
	('dispute', 'won', false, true, false),
	('dispute', 'lost', false, true, true),
	('anomaly', 'opened', true, false, true),
	('anomaly', 'resolved', false, true, false),
	('entitlement', 'granted', true, false, true),
	('entitlement', 'partly_revoked', false, false, true),
	('entitlement', 'revoked', false, true, false);

INSERT INTO @extschema@.idem_machine_move (machine, from_state, to_state, event, fact) VALUES
	('order', 'pending', 'paid', 'pay', false),
	('order', 'paid', 'shipped', 'ship', false),
	('order', 'shipped', 'completed', 'complete', false),
	('order', 'paid', 'completed', 'complete', false),
	('order', 'pending', 'cancelled', 'cancel', false),
	('order', 'pending', 'expired', 'expire', false),
	('order', 'paid', 'cancelled', 'cancel', false),
	('order', 'paid', 'refunded', 'refund', false),
	('order', 'shipped', 'refunded', 'refund', false),
	('order', 'completed', 'refunded', 'refund', false),
	('order', 'refunded', 'paid', 'reverse_refund', true),
	('order', 'refunded', 'shipped', 'reverse_refund', true),
	('order', 'refunded', 'completed', 'reverse_refund', true),
	('payment', 'pending', 'paid', 'pay', false),
	('payment', 'pending', 'failed', 'fail', false),
	('payment', 'pending', 'closed', 'close', false),
	('payment', 'pending', 'closing', 'begin_close', false),
	('payment', 'pending', 'review', 'mismatch', false),
	('payment', 'closing', 'paid', 'pay', false),
	('payment', 'closing', 'failed', 'fail', false),
	('payment', 'closing', 'closed', 'close', false),
	('payment', 'closing', 'pending', 'reopen', false),
	('payment', 'closing', 'review', 'mismatch', false),
	('payment', 'review', 'paid', 'pay', false),
	('payment', 'review', 'paid_late', 'pay_late', false),
	('payment', 'pending', 'paid_late', 'pay_late', true),
	('payment', 'closing', 'paid_late', 'pay_late', true),
	('payment', 'failed', 'paid_late', 'pay_late', true),
	('payment', 'closed', 'paid_late', 'pay_late', true),
	('payment', 'paid_late', 'paid', 'pay', false),
	('refund', 'requested', 'processing', 'submit', false),
	('refund', 'requested', 'cancelled', 'cancel', false),
	('refund', 'requested', 'succeeded', 'succeed', false),
	('refund', 'requested', 'failed', 'fail', false),
	('refund', 'requested', 'closed', 'close', false),
	('refund', 'requested', 'abnormal', 'stall', false),
	('refund', 'processing', 'succeeded', 'succeed', false),
	('refund', 'processing', 'failed', 'fail', false),
	('refund', 'processing', 'closed', 'close', false),
	('refund', 'processing', 'abnormal', 'stall', false),
	('refund', 'failed', 'processing', 'retry', false),
	('refund', 'abnormal', 'processing', 'retry', false),
	('refund', 'abnormal', 'succeeded', 'succeed', false),
	('refund', 'abnormal', 'failed', 'fail', false),
	('refund', 'abnormal', 'closed', 'close', false),
	('refund', 'cancelled', 'succeeded', 'succeed', true),
	('refund', 'failed', 'succeeded', 'succeed', true),
	('refund', 'closed', 'succeeded', 'succeed', true),
	('refund', 'succeeded', 'reversed', 'reverse', true),
	('dispute', 'opened', 'won', 'win', false),
	('dispute', 'opened', 'lost', 'lose', false),
	('dispute', 'won', 'lost', 'lose', true),
	('dispute', 'lost', 'won', 'win', true),
	('anomaly', 'opened', 'resolved', 'resolve', false),
	('entitlement', 'granted', 'partly_revoked', 'revoke', false),
	('entitlement', 'granted', 'revoked', 'revoke', false),
	('entitlement', 'partly_revoked', 'revoked', 'revoke', false);

CREATE TABLE @extschema@.idem_history (
	tenant_id text COLLATE "C" NOT NULL,
	entity text COLLATE "C" NOT NULL,
	key text COLLATE "C" NOT NULL,
	version integer,
	from_state text COLLATE "C",
	to_state text COLLATE "C" NOT NULL,
	event text COLLATE "C" NOT NULL,
	actor text,
	session_role text NOT NULL,
	reason text,
	event_id uuid,
	at timestamptz NOT NULL
);
CREATE INDEX idem_history_key ON @extschema@.idem_history (tenant_id, entity, key);
COMMENT ON TABLE @extschema@.idem_history IS
'Every move of every guarded row, append-only. from_state is NULL at birth; version is the row''s after the move; event_id is the move''s row in idem_outbox; actor is idem.actor, session_role the login role.';

CREATE FUNCTION @extschema@.idem_guard_rules() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_guard_rules';
COMMENT ON FUNCTION @extschema@.idem_guard_rules() IS
'Trigger on the tables of rules: keeps built-in machines closed and tells every session to read the rules again. Errors: ID007.';

CREATE FUNCTION @extschema@.idem_guard() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_guard';
COMMENT ON FUNCTION @extschema@.idem_guard() IS
'Trigger that guards and records the moves of a table''s rows. BEFORE UPDATE for each row: frozen and growing columns, legal moves, version + 1 (an UPDATE that changes nothing is stored as it is); BEFORE DELETE for each row and BEFORE TRUNCATE: refused; AFTER INSERT OR UPDATE for each row: checks what was stored, writes idem_history and idem_outbox. The name of the BEFORE trigger must sort last. Arguments are name=value: machine, state, entity, tenant, key*, version, frozen*, once*, grows*, birth, history, outbox, aggregate, aggregate_id, payload*, append_only, own (* may stand more than once). Errors: ID003 illegal move or birth, ID004 the version does not follow, ID006 no such machine, ID007 frozen, shrunk or forbidden, or a built-in machine on a table of somebody else.';

REVOKE ALL ON FUNCTION @extschema@.idem_guard_rules(), @extschema@.idem_guard() FROM PUBLIC;

/* After the seeds: from here on they are closed. */
CREATE TRIGGER zz_idem_rules AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_machine
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard_rules();
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_machine
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard_rules();
CREATE TRIGGER zz_idem_rules AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_machine_state
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard_rules();
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_machine_state
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard_rules();
CREATE TRIGGER zz_idem_rules AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_machine_move
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard_rules();
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_machine_move
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard_rules();

ALTER TABLE @extschema@.idem_machine ENABLE ALWAYS TRIGGER zz_idem_rules;
ALTER TABLE @extschema@.idem_machine ENABLE ALWAYS TRIGGER zz_idem_truncate;
ALTER TABLE @extschema@.idem_machine_state ENABLE ALWAYS TRIGGER zz_idem_rules;
ALTER TABLE @extschema@.idem_machine_state ENABLE ALWAYS TRIGGER zz_idem_truncate;
ALTER TABLE @extschema@.idem_machine_move ENABLE ALWAYS TRIGGER zz_idem_rules;
ALTER TABLE @extschema@.idem_machine_move ENABLE ALWAYS TRIGGER zz_idem_truncate;
