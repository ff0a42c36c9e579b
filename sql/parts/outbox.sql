/*
 * outbox: the append-only log of what happened, in the column names that
 * Debezium's Event Router expects.
 *
 * The log is a ring of slices.  Events go into the current one; a slice that
 * everybody has read, and whose events are old enough, is emptied by TRUNCATE,
 * which no open transaction holds back.
 */

CREATE SEQUENCE @extschema@.idem_outbox_seq;
COMMENT ON SEQUENCE @extschema@.idem_outbox_seq IS
'Numbers events in the order in which they were written. Never cached: who has locked a thing after another writes a greater number.';

CREATE TABLE @extschema@.idem_outbox (
	id uuid NOT NULL,
	tenant_id text COLLATE "C" NOT NULL,
	aggregatetype varchar(255) COLLATE "C" NOT NULL,
	aggregateid varchar(255) COLLATE "C" NOT NULL,
	type varchar(255) COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL,
	seq bigint NOT NULL,
	xid xid8 NOT NULL,
	slot smallint NOT NULL,
	slice smallint NOT NULL DEFAULT 0
) PARTITION BY LIST (slice);
CREATE INDEX idem_outbox_read ON @extschema@.idem_outbox (slot, xid, seq);
COMMENT ON TABLE @extschema@.idem_outbox IS
'One event per real move, and what idem_publish was given, written in the transaction that moved. INSERT only. type is entity.state; aggregateid is the order for everything that belongs to one order, so that one order''s story stays in order. seq, xid (of the writing transaction) and slot (a hash of the key, 0 to 63) are for readers; slice is where in the ring the event lies.';

CREATE TABLE @extschema@.idem_outbox_0 PARTITION OF @extschema@.idem_outbox FOR VALUES IN (0);
CREATE TABLE @extschema@.idem_outbox_1 PARTITION OF @extschema@.idem_outbox FOR VALUES IN (1);
CREATE TABLE @extschema@.idem_outbox_2 PARTITION OF @extschema@.idem_outbox FOR VALUES IN (2);
CREATE TABLE @extschema@.idem_outbox_3 PARTITION OF @extschema@.idem_outbox FOR VALUES IN (3);
COMMENT ON TABLE @extschema@.idem_outbox_0 IS 'A slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_1 IS 'A slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_2 IS 'A slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_3 IS 'A slice of idem_outbox.';

/*
 * What the log looked like at some moment, once in a while: where a reader who
 * is far behind may stop reading.
 */
CREATE TABLE @extschema@.idem_outbox_mark (
	seq bigint NOT NULL,
	seen pg_snapshot NOT NULL,
	at timestamptz NOT NULL,
	cluster bigint NOT NULL,
	slice smallint NOT NULL
) PARTITION BY LIST (slice);
CREATE INDEX idem_outbox_mark_seq ON @extschema@.idem_outbox_mark (seq);
COMMENT ON TABLE @extschema@.idem_outbox_mark IS
'Marks in the log, one in 128 events: the snapshot taken when the event numbered seq was written. They only bound how much a reader takes in at once, and mean nothing on another cluster. Emptied together with the slice.';

CREATE TABLE @extschema@.idem_outbox_mark_0 PARTITION OF @extschema@.idem_outbox_mark FOR VALUES IN (0);
CREATE TABLE @extschema@.idem_outbox_mark_1 PARTITION OF @extschema@.idem_outbox_mark FOR VALUES IN (1);
CREATE TABLE @extschema@.idem_outbox_mark_2 PARTITION OF @extschema@.idem_outbox_mark FOR VALUES IN (2);
CREATE TABLE @extschema@.idem_outbox_mark_3 PARTITION OF @extschema@.idem_outbox_mark FOR VALUES IN (3);
COMMENT ON TABLE @extschema@.idem_outbox_mark_0 IS 'Marks in a slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_mark_1 IS 'Marks in a slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_mark_2 IS 'Marks in a slice of idem_outbox.';
COMMENT ON TABLE @extschema@.idem_outbox_mark_3 IS 'Marks in a slice of idem_outbox.';

CREATE TABLE @extschema@.idem_outbox_ring (
	ring text COLLATE "C" NOT NULL,
	place smallint NOT NULL,
	since timestamptz NOT NULL,
	PRIMARY KEY (ring, place)
);
COMMENT ON TABLE @extschema@.idem_outbox_ring IS
'Where the rings of tables stand: since when what slice of idem_outbox (ring log) takes the events, and what side of idem_position (ring position) the positions. The latest is the current one; no row: 0.';

CREATE FUNCTION @extschema@.idem_outbox_stamp() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_outbox_stamp';
COMMENT ON FUNCTION @extschema@.idem_outbox_stamp() IS
'Trigger on the slices of idem_outbox: gives a row the transaction that stores it here, whatever it was stored by elsewhere (a restore, a logical copy), and the number and the slot that it lacks.';

CREATE TRIGGER idem_outbox_stamp BEFORE INSERT ON @extschema@.idem_outbox_0
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_outbox_stamp();
CREATE TRIGGER idem_outbox_stamp BEFORE INSERT ON @extschema@.idem_outbox_1
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_outbox_stamp();
CREATE TRIGGER idem_outbox_stamp BEFORE INSERT ON @extschema@.idem_outbox_2
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_outbox_stamp();
CREATE TRIGGER idem_outbox_stamp BEFORE INSERT ON @extschema@.idem_outbox_3
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_outbox_stamp();
ALTER TABLE @extschema@.idem_outbox_0 ENABLE ALWAYS TRIGGER idem_outbox_stamp;
ALTER TABLE @extschema@.idem_outbox_1 ENABLE ALWAYS TRIGGER idem_outbox_stamp;
ALTER TABLE @extschema@.idem_outbox_2 ENABLE ALWAYS TRIGGER idem_outbox_stamp;
ALTER TABLE @extschema@.idem_outbox_3 ENABLE ALWAYS TRIGGER idem_outbox_stamp;

CREATE FUNCTION @extschema@.idem_outbox_turned() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'idem_access_changed';
COMMENT ON FUNCTION @extschema@.idem_outbox_turned() IS
'Trigger on idem_outbox_ring: tells every session to read it again.';
CREATE TRIGGER idem_outbox_turned AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_outbox_ring
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_outbox_turned();
CREATE TRIGGER idem_outbox_emptied AFTER TRUNCATE ON @extschema@.idem_outbox_ring
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_outbox_turned();
ALTER TABLE @extschema@.idem_outbox_ring ENABLE ALWAYS TRIGGER idem_outbox_turned;
ALTER TABLE @extschema@.idem_outbox_ring ENABLE ALWAYS TRIGGER idem_outbox_emptied;

CREATE FUNCTION @extschema@.idem_publish(
	tenant_id text,
	aggregatetype text,
	aggregateid text,
	type text,
	payload jsonb,
	headers jsonb DEFAULT NULL)
	RETURNS uuid
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_publish';
COMMENT ON FUNCTION @extschema@.idem_publish(text, text, text, text, jsonb, jsonb) IS
'Writes an event of the application''s own into idem_outbox, in the caller''s transaction, and returns its id. Events of one key (tenant_id, aggregatetype, aggregateid) reach every subscription in the order in which they were written by transactions that took turns (who locks the thing''s row first writes first). aggregatetype, aggregateid and type: 1 to 255 characters. It never answers twice for one event: publish in the transaction of the change that it tells of.
Errors: ID007 (type is one of a built-in entity, such as payment.paid), ID008, 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_outbox_stamp(),
	@extschema@.idem_outbox_turned(),
	@extschema@.idem_publish(text, text, text, text, jsonb, jsonb)
	FROM PUBLIC;
