/*
 * dispute: money that a bank takes back.
 */

CREATE TABLE @extschema@.idem_dispute (
	tenant_id text COLLATE "C" NOT NULL,
	channel text COLLATE "C" NOT NULL,
	account text COLLATE "C" NOT NULL,
	dispute_no text COLLATE "C" NOT NULL,
	trade_no text COLLATE "C" NOT NULL,
	receipt_no text COLLATE "C",
	payment_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	stage text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	amount @extschema@.idem_money NOT NULL,
	currency text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL,
	occurred_at timestamptz,
	PRIMARY KEY (tenant_id, channel, account, dispute_no)
);
CREATE INDEX idem_dispute_receipt ON @extschema@.idem_dispute (tenant_id, receipt_no);
COMMENT ON TABLE @extschema@.idem_dispute IS
'Money that a bank takes back, or threatens to. While the stage is opened or lost, amount (minor units) counts in the receipt''s disputed and cannot be refunded; won gives it free. receipt_no is NULL as long as the trade is unknown. occurred_at is when the channel says that the stage was reached. Never deleted.';

CREATE TYPE @extschema@.idem_record_dispute_result AS (
	outcome text,
	receipt_no text,
	remainder bigint,
	stage text
);
COMMENT ON TYPE @extschema@.idem_record_dispute_result IS
'The row that idem_record_dispute returns: the receipt that is disputed and what of it is neither on its way back nor disputed, in minor units, both NULL if it is unknown; the dispute''s stage, NULL if it is unknown.';

CREATE FUNCTION @extschema@.idem_record_dispute(
	tenant_id text,
	channel text,
	account text,
	trade_no text,
	dispute_no text,
	stage text,
	amount bigint,
	currency text,
	occurred_at timestamptz DEFAULT NULL)
	RETURNS @extschema@.idem_record_dispute_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_record_dispute';
COMMENT ON FUNCTION @extschema@.idem_record_dispute(text, text, text, text, text, text, bigint, text, timestamptz) IS
'A fact: a customer disputes a payment at his bank, amount in minor units. stage: opened and lost keep the amount from being refunded, won gives it free. account NULL: unknown. It is always recorded; the call waits for others as long as it takes.
Outcomes: applied; duplicate (the dispute is there already; nothing is written); stale (it is beyond that); kept (something does not fit: an anomaly, nothing is changed); orphan (the trade is unknown: the dispute is kept, and binds to its money when it is told again).
An open or lost dispute leaves an open anomaly, won resolves it. What exceeds the receipt together with its refunds is booked as its excess and opens over_refund.
Errors: 22004 and 22023 (a key is NULL or longer than 255 bytes), 40001.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_record_dispute(text, text, text, text, text, text, bigint, text, timestamptz)
	FROM PUBLIC;
