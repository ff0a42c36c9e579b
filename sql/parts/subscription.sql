/*
 * subscription: who reads the log, and how far each has come.
 *
 * A subscription's keys are spread over slots.  Where it stands in a slot is
 * its newest row in idem_position: positions are appended, never updated, and
 * old ones go by TRUNCATE, so that an open transaction elsewhere bloats
 * nothing.  Only events that failed lie in tables whose rows are updated.
 */

CREATE DOMAIN @extschema@.idem_slots AS integer CHECK (VALUE BETWEEN 1 AND 64);
COMMENT ON DOMAIN @extschema@.idem_slots IS
'Into how many parts a subscription divides the keys, 1 to 64: so many workers can be at it at once.';

CREATE TABLE @extschema@.idem_subscription (
	subscription @extschema@.idem_key_text NOT NULL,
	types text[],
	slots @extschema@.idem_slots NOT NULL,
	start text NOT NULL,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (subscription)
);
COMMENT ON TABLE @extschema@.idem_subscription IS
'Who reads the events: a name, the types it wants (NULL: all), and into how many slots its keys are divided. A slice of the log stays until all of them have read it.';

CREATE SEQUENCE @extschema@.idem_batch_seq;
COMMENT ON SEQUENCE @extschema@.idem_batch_seq IS
'Numbers the batches that idem_fetch_events hands out.';

CREATE TABLE @extschema@.idem_position (
	subscription text COLLATE "C" NOT NULL,
	slot integer NOT NULL,
	gen bigint NOT NULL,
	side smallint NOT NULL,
	cluster bigint NOT NULL,
	lo pg_snapshot NOT NULL,
	lo_seq bigint NOT NULL,
	hi pg_snapshot,
	hi_seq bigint,
	next pg_snapshot,
	next_seq bigint,
	pos bigint NOT NULL,
	upto bigint,
	batch bigint,
	parts integer,
	worker text COLLATE "C",
	lease_until timestamptz,
	deliveries integer NOT NULL,
	cap integer,
	acked bigint,
	at timestamptz NOT NULL,
	PRIMARY KEY (subscription, slot, gen, side)
) PARTITION BY LIST (side);
COMMENT ON TABLE @extschema@.idem_position IS
'How far a subscription has come in a slot: the row with the greatest gen. Done is what the snapshot lo sees, and what hi sees up to the number pos; handed out in batch, to worker until lease_until, is what follows, up to upto; or, if there is next, all of it and what next sees beyond hi, up to upto. deliveries counts how often that was handed out; cap bounds it while an event that kills its workers is looked for. acked is the batch before. On another cluster than cluster the snapshots mean nothing, and all is delivered again.';
CREATE TABLE @extschema@.idem_position_0 PARTITION OF @extschema@.idem_position FOR VALUES IN (0);
CREATE TABLE @extschema@.idem_position_1 PARTITION OF @extschema@.idem_position FOR VALUES IN (1);
COMMENT ON TABLE @extschema@.idem_position_0 IS 'One side of idem_position.';
COMMENT ON TABLE @extschema@.idem_position_1 IS 'The other side of idem_position.';

CREATE TABLE @extschema@.idem_parked_event (
	subscription text COLLATE "C" NOT NULL,
	seq bigint NOT NULL,
	slot integer NOT NULL,
	id uuid NOT NULL,
	tenant_id text COLLATE "C" NOT NULL,
	aggregatetype varchar(255) COLLATE "C" NOT NULL,
	aggregateid varchar(255) COLLATE "C" NOT NULL,
	type varchar(255) COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL,
	attempts integer NOT NULL,
	next_at timestamptz,
	batch bigint,
	error text,
	parked_at timestamptz NOT NULL,
	PRIMARY KEY (subscription, seq)
);
CREATE INDEX idem_parked_event_key ON @extschema@.idem_parked_event (subscription, slot, tenant_id, aggregatetype, aggregateid, seq);
CREATE INDEX idem_parked_event_due ON @extschema@.idem_parked_event (subscription, slot, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX idem_parked_event_batch ON @extschema@.idem_parked_event (subscription, batch) WHERE batch IS NOT NULL;
COMMENT ON TABLE @extschema@.idem_parked_event IS
'Events that failed, and the later ones of their keys, which wait behind them: copies of their own, which outlive the log. next_at is when the first of a key comes again, NULL for those behind it; batch is the one that has it now; attempts counts how often it was handed out.';

CREATE TABLE @extschema@.idem_dead_event (
	subscription text COLLATE "C" NOT NULL,
	seq bigint NOT NULL,
	slot integer NOT NULL,
	id uuid NOT NULL,
	tenant_id text COLLATE "C" NOT NULL,
	aggregatetype varchar(255) COLLATE "C" NOT NULL,
	aggregateid varchar(255) COLLATE "C" NOT NULL,
	type varchar(255) COLLATE "C" NOT NULL,
	payload jsonb NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL,
	attempts integer NOT NULL,
	error text,
	dead_at timestamptz NOT NULL,
	PRIMARY KEY (subscription, seq)
);
CREATE INDEX idem_dead_event_id ON @extschema@.idem_dead_event (subscription, id);
COMMENT ON TABLE @extschema@.idem_dead_event IS
'Events that were given up after idem.max_attempts, or that no worker lived to acknowledge. They stay until idem_redrive_event or idem_unsubscribe.';

CREATE TYPE @extschema@.idem_subscription_result AS (
	outcome text
);
COMMENT ON TYPE @extschema@.idem_subscription_result IS
'The row that functions on a subscription return.';

CREATE TYPE @extschema@.idem_fetch_events_result AS (
	batch bigint,
	id uuid,
	seq bigint,
	tenant_id text,
	aggregatetype text,
	aggregateid text,
	type text,
	payload jsonb,
	headers jsonb,
	attempt integer,
	created_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_fetch_events_result IS
'An event as idem_fetch_events hands it out. batch is what to acknowledge; attempt counts from 1 how often this event was handed out; seq ascends within a key.';

CREATE TYPE @extschema@.idem_retry_event_result AS (
	outcome text,
	attempts integer,
	next_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_retry_event_result IS
'The row that idem_retry_event returns: how often the event was handed out, and when it comes again (NULL: dead).';

CREATE FUNCTION @extschema@.idem_subscribe(
	subscription text,
	types text[] DEFAULT NULL,
	slots integer DEFAULT 16,
	start text DEFAULT 'now')
	RETURNS @extschema@.idem_subscription_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_subscribe';
COMMENT ON FUNCTION @extschema@.idem_subscribe(text, text[], integer, text) IS
'Makes a subscription: it gets every event committed from now on (start => now), or also those that the log still holds (beginning). types: only these (NULL: all). slots, 1 to 64: into how many parts the keys are divided, and so how many workers can read at once; it never changes.
Outcomes: created; existing (with the same arguments); in_progress.
Errors: ID001 (there with other arguments), ID008, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_unsubscribe(subscription text)
	RETURNS @extschema@.idem_subscription_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_unsubscribe';
COMMENT ON FUNCTION @extschema@.idem_unsubscribe(text) IS
'Ends a subscription, and throws away its positions and its parked and dead events.
Outcomes: removed; duplicate (there is none); in_progress.
Errors: ID008, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_seek_subscription(subscription text, point text)
	RETURNS @extschema@.idem_subscription_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_seek_subscription';
COMMENT ON FUNCTION @extschema@.idem_seek_subscription(text, text) IS
'Moves a subscription: to beginning (all that the log still holds comes again), to now (what is committed already is passed over), or to a time (what was committed since comes again, and a little before it). Batches that are out cannot be acknowledged any more; parked and dead events stay.
Outcomes: moved; in_progress (another transaction is at it).
Errors: ID006, ID008, 22004, 22007, 22023.';

CREATE FUNCTION @extschema@.idem_fetch_events(
	subscription text,
	worker text,
	max_events integer DEFAULT 100,
	lease interval DEFAULT '30 seconds')
	RETURNS SETOF @extschema@.idem_fetch_events_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_fetch_events';
COMMENT ON FUNCTION @extschema@.idem_fetch_events(text, text, integer, interval) IS
'Hands out up to max_events (1 to 10000, and no more than 8 MB) events that were not acknowledged, and leases their slots to the worker for so long from now. Within a key they come in order, in one batch at a time. Commit before acting on them outside this database: a batch is handed out again when its lease is over without idem_ack_events. The same worker who asks again gets the same batch, attempt + 1. No row: nothing to do, or nothing among some 500,000 events of other types, and nothing leased. What is handed out survives a crash.
From the third time on a batch that nobody acknowledges is halved, until the event that kills its workers stands alone; after idem.max_attempts times, the last alone, it is dead.
Errors: ID006, ID008, 22004, 22023, 40001.';

CREATE FUNCTION @extschema@.idem_ack_events(subscription text, batch bigint)
	RETURNS @extschema@.idem_subscription_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_ack_events';
COMMENT ON FUNCTION @extschema@.idem_ack_events(text, bigint) IS
'Acknowledges a batch, all of it but what idem_retry_event took out, and frees its slots. In the transaction of the effect, the effect happens once. Works after the lease is over, as long as nobody has been given the events again.
Outcomes: acked; duplicate (acknowledged before); in_progress.
Errors: ID005 (handed out to somebody else, or the subscription was moved), ID006, ID008, 22004.';

CREATE FUNCTION @extschema@.idem_retry_event(
	subscription text,
	batch bigint,
	id uuid,
	error text,
	delay interval DEFAULT NULL)
	RETURNS @extschema@.idem_retry_event_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_retry_event';
COMMENT ON FUNCTION @extschema@.idem_retry_event(text, bigint, uuid, text, interval) IS
'This event of a batch failed: it and all later ones of its key, those in the batch included, are parked, and come again in order after delay (NULL: 1 s, twice as long each time up to an hour, give or take a quarter). Other keys flow. Acknowledge the batch all the same. After idem.max_attempts times it is dead, and its key goes on without it.
Outcomes: parked; dead; duplicate (it was said before); in_progress.
Errors: ID005 (the batch was handed out to somebody else), ID006 (no such subscription, or the event is not in the batch), ID008, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_redrive_event(subscription text, id uuid)
	RETURNS @extschema@.idem_subscription_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_redrive_event';
COMMENT ON FUNCTION @extschema@.idem_redrive_event(text, uuid) IS
'Lets a dead event come again, at once, with no attempts counted. Later events of its key may have been delivered by then.
Outcomes: redriven; duplicate (it waits to come again already); in_progress.
Errors: ID006 (no such subscription, no such event), ID008, 22004.';

CREATE PROCEDURE @extschema@.idem_wait_events(subscription text, timeout interval)
	LANGUAGE C
	AS 'MODULE_PATHNAME', 'idem_wait_events';
COMMENT ON PROCEDURE @extschema@.idem_wait_events(text, interval) IS
'Returns as soon as idem_fetch_events is likely to have something, or when the time is over (0 to 1 day). With idem in shared_preload_libraries that is as soon as an event is committed, otherwise it looks every 5 to 50 ms. Holds no snapshot while it waits. Inside a transaction block it returns at once.
Errors: ID006, ID008, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_outbox_lags()
	RETURNS TABLE (
		subscription text,
		events_behind bigint,
		oldest_undelivered timestamptz,
		leased_slots integer,
		holders text[],
		parked bigint,
		retrying bigint,
		dead bigint,
		why text)
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_outbox_lags';
COMMENT ON FUNCTION @extschema@.idem_outbox_lags() IS
'The rows of the view idem_outbox_lag.';

CREATE VIEW @extschema@.idem_outbox_lag AS
	SELECT * FROM @extschema@.idem_outbox_lags();
COMMENT ON VIEW @extschema@.idem_outbox_lag IS
'A row for each subscription: about how many events it is behind; when the oldest one was written that it has not acknowledged; how many of its slots are leased, and to whom; how many events are parked, how many of these are due again or out, how many dead; and why nothing moves, if nothing does. Counts no events.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_subscribe(text, text[], integer, text),
	@extschema@.idem_unsubscribe(text),
	@extschema@.idem_seek_subscription(text, text),
	@extschema@.idem_fetch_events(text, text, integer, interval),
	@extschema@.idem_ack_events(text, bigint),
	@extschema@.idem_retry_event(text, bigint, uuid, text, interval),
	@extschema@.idem_redrive_event(text, uuid),
	@extschema@.idem_outbox_lags()
	FROM PUBLIC;
REVOKE ALL ON PROCEDURE @extschema@.idem_wait_events(text, interval) FROM PUBLIC;
