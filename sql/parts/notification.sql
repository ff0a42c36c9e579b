/*
 * notification: what channels tell us, each once, as it came.
 */

CREATE TABLE @extschema@.idem_notification (
	tenant_id text COLLATE "C" NOT NULL,
	channel text COLLATE "C" NOT NULL DEFAULT '',
	account text COLLATE "C" NOT NULL DEFAULT '',
	notify_id text COLLATE "C" NOT NULL,
	payment_no text COLLATE "C",
	trade_no text COLLATE "C" NOT NULL DEFAULT '',
	kind text COLLATE "C" NOT NULL DEFAULT '',
	biz_no text COLLATE "C" NOT NULL DEFAULT '',
	event text COLLATE "C",
	amount bigint,
	currency text COLLATE "C",
	refund_amount bigint,
	refund_currency text COLLATE "C",
	channel_refund_no text COLLATE "C",
	occurred_at timestamptz,
	payload jsonb,
	digest bytea NOT NULL,
	problem text,
	outcome text COLLATE "C" NOT NULL,
	ack boolean NOT NULL,
	hits bigint NOT NULL DEFAULT 1,
	routed_to text COLLATE "C",
	received_at timestamptz NOT NULL,
	last_hit_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, channel, account, notify_id)
);
/* The fact: a memory and no gate, since one number stands for several facts. */
CREATE INDEX idem_notification_fact ON @extschema@.idem_notification (tenant_id, channel, account, trade_no, kind, biz_no);
COMMENT ON TABLE @extschema@.idem_notification IS
'What channels told, one row per id. kind is what the event meant when it was judged last, empty if nothing; outcome and ack what was answered to the first delivery that settled it, hits counts the deliveries. digest is of what was said, not of when and how it was delivered. problem says why a body could not be read. routed_to: in tenant unrouted, whose it turned out to be. Amounts are in minor units, as the channel said. Never deleted.';

CREATE TYPE @extschema@.idem_receive_notification_result AS (
	outcome text,
	ack boolean,
	status text,
	payment_no text,
	receipt_no text,
	refund_no text
);
COMMENT ON TYPE @extschema@.idem_receive_notification_result IS
'The row that idem_receive_notification and idem_reroute_notification return. ack: tell the channel that it need not repeat itself; false: let it come again. status is that of the payment, refund or dispute after the call, NULL if it is unknown; payment_no stands only in paid, failed, closed and applied, refund_no only while that refund is to be driven on.';

CREATE FUNCTION @extschema@.idem_receive_notification(
	tenant_id text,
	channel text,
	notify_id text,
	payment_no text,
	trade_no text,
	event text,
	amount bigint,
	currency text,
	account text DEFAULT NULL,
	biz_no text DEFAULT NULL,
	refund_amount bigint DEFAULT NULL,
	occurred_at timestamptz DEFAULT NULL,
	payload jsonb DEFAULT NULL,
	channel_refund_no text DEFAULT NULL,
	refund_currency text DEFAULT NULL)
	RETURNS @extschema@.idem_receive_notification_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_receive_notification';
COMMENT ON FUNCTION @extschema@.idem_receive_notification(text, text, text, text, text, text, bigint, text, text, text, bigint, timestamptz, jsonb, text, text) IS
'A fact: a channel tells something, its signature checked by the caller. What the event means is said by idem_channel_event; it is then told as idem_confirm_payment, idem_fail_payment, idem_settle_refund or idem_record_dispute would be. Amounts are in minor units; amount is the payment''s (of a dispute: what is disputed), refund_amount the refund''s. notify_id NULL: a digest of the rest. biz_no: the refund''s or dispute''s number at the channel. payload is kept.
Outcomes: paid, late, surplus, mismatch (idem_confirm_payment); failed, closed, stale; applied, kept, stale (refunds and disputes); duplicate (this notification, or its fact, was heard before: hits are added to); orphan (it belongs to nothing we know; ack false until idem.orphan_grace is over); rejected (another merchant''s account or channel); tampered (this id said something else before; that holds); ignored (the event means nothing, or nobody said what: an anomaly).
Errors: 22004 and 22023 (tenant_id or channel NULL or longer than 255 bytes), 40001, ID008.';

CREATE FUNCTION @extschema@.idem_reroute_notification(
	channel text,
	account text,
	notify_id text,
	tenant_id text)
	RETURNS @extschema@.idem_receive_notification_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_reroute_notification';
COMMENT ON FUNCTION @extschema@.idem_reroute_notification(text, text, text, text) IS
'Gives a notification that stands under tenant unrouted to the tenant it belongs to, where it is received as it came. account: as recorded, empty if none was named.
Outcomes: those of idem_receive_notification; duplicate (it was done before); refused (another tenant has it).
Errors: ID006, ID008, 22004, 22023, 40001.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_receive_notification(text, text, text, text, text, text, bigint, text, text, text, bigint, timestamptz, jsonb, text, text),
	@extschema@.idem_reroute_notification(text, text, text, text)
	FROM PUBLIC;
