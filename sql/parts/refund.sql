/*
 * refund: money that goes back, bound to one receipt.
 */

CREATE DOMAIN @extschema@.idem_refund_cause AS text COLLATE "C"
	CHECK (VALUE IN ('request', 'late', 'surplus', 'mismatch', 'orphan', 'cancel', 'channel'));
COMMENT ON DOMAIN @extschema@.idem_refund_cause IS
'What made a refund: request a caller, channel the channel''s console, orphan an operator, the others the extension by itself.';

CREATE TABLE @extschema@.idem_refund (
	tenant_id text COLLATE "C" NOT NULL,
	refund_no @extschema@.idem_key_text NOT NULL,
	receipt_no text COLLATE "C" NOT NULL,
	payment_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	channel text COLLATE "C" NOT NULL DEFAULT '',
	account text COLLATE "C" NOT NULL DEFAULT '',
	channel_refund_no text COLLATE "C",
	amount @extschema@.idem_money NOT NULL,
	currency text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	cause @extschema@.idem_refund_cause NOT NULL,
	held boolean NOT NULL DEFAULT false,
	reason text,
	created_at timestamptz NOT NULL,
	submitted_at timestamptz,
	next_check_at timestamptz,
	settled_at timestamptz,
	takes_back boolean NOT NULL DEFAULT false,
	succeeded_at timestamptz,
	PRIMARY KEY (tenant_id, refund_no)
);
CREATE UNIQUE INDEX idem_refund_channel ON @extschema@.idem_refund (tenant_id, channel, account, channel_refund_no);
CREATE INDEX idem_refund_receipt ON @extschema@.idem_refund (tenant_id, receipt_no);
COMMENT ON TABLE @extschema@.idem_refund IS
'Money that goes back. Each refund is bound to one receipt and reserves its amount there until it definitely failed. Automatic refunds are numbered A + receipt_no; cause says what made them. held: requested, but not to be sent before a human lets it go. Never deleted.';

CREATE TYPE @extschema@.idem_request_refund_result AS (
	outcome text,
	refund_no text,
	status text,
	amount bigint,
	remainder bigint
);
COMMENT ON TYPE @extschema@.idem_request_refund_result IS
'The row that idem_request_refund returns. status and amount are the refund''s, refund_no is NULL once it cannot be acted on; remainder is what of the receipt is neither on its way back nor disputed. Amounts are in minor units.';

CREATE TYPE @extschema@.idem_submit_refund_result AS (
	outcome text,
	status text,
	refund_no text,
	payment_no text,
	amount bigint,
	currency text,
	channel text,
	account text,
	trade_no text
);
COMMENT ON TYPE @extschema@.idem_submit_refund_result IS
'The row that idem_submit_refund and idem_retry_refund return. All after status is what the channel has to be told, NULL unless the refund is processing; amount is in minor units.';

CREATE TYPE @extschema@.idem_cancel_refund_result AS (
	outcome text,
	status text,
	remainder bigint
);
COMMENT ON TYPE @extschema@.idem_cancel_refund_result IS
'The row that idem_cancel_refund returns: the refund''s status, and what of its receipt is neither on its way back nor disputed, in minor units.';

CREATE TYPE @extschema@.idem_settle_refund_result AS (
	outcome text,
	status text,
	remainder bigint
);
COMMENT ON TYPE @extschema@.idem_settle_refund_result IS
'The row that idem_settle_refund returns: the refund''s status, NULL if it is unknown, and what of its receipt is neither on its way back nor disputed, in minor units, NULL if that is unknown.';

CREATE FUNCTION @extschema@.idem_request_refund(
	tenant_id text,
	payment_no text,
	refund_no text,
	amount bigint,
	currency text,
	reason text DEFAULT NULL,
	receipt_no text DEFAULT NULL)
	RETURNS @extschema@.idem_request_refund_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_request_refund';
COMMENT ON FUNCTION @extschema@.idem_request_refund(text, text, text, bigint, text, text, text) IS
'Requests a refund under the caller''s own number and reserves its amount, in minor units. receipt_no NULL: the receipt that paid the payment.
Outcomes: requested; replayed (the same was requested before; nothing is written); exceeds (more than remains; nothing is reserved); not_paid (the payment has no applied receipt, and none was named); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (the number is a refund of another payment, receipt, amount or currency), ID006 (no such payment, or no such receipt of it), 22023 (a number of A and digits, amount <= 0, not the receipt''s currency), 22004.';

CREATE FUNCTION @extschema@.idem_submit_refund(tenant_id text, refund_no text)
	RETURNS @extschema@.idem_submit_refund_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_submit_refund';
COMMENT ON FUNCTION @extschema@.idem_submit_refund(text, text) IS
'Says that the channel is about to be called for a requested refund; commit before calling it.
Outcomes: processing; already_processing (submitted before: the same number may be sent again); held (an automatic refund that waits for idem_release_refunds); refused (it has ended, or refunds and disputes exceed its receipt by now); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_cancel_refund(tenant_id text, refund_no text)
	RETURNS @extschema@.idem_cancel_refund_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_cancel_refund';
COMMENT ON FUNCTION @extschema@.idem_cancel_refund(text, text) IS
'Cancels a refund that was not submitted and frees its reserve.
Outcomes: cancelled; already_cancelled; refused (it was submitted, or has ended); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_retry_refund(tenant_id text, refund_no text)
	RETURNS @extschema@.idem_submit_refund_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_retry_refund';
COMMENT ON FUNCTION @extschema@.idem_retry_refund(text, text) IS
'Submits a failed or abnormal refund again, with the same number; a reserve that was freed is taken again. Commit before calling the channel.
Outcomes: processing; already_processing; exceeds (no longer enough of the receipt remains); refused (neither failed nor abnormal); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_settle_refund(
	tenant_id text,
	refund_no text,
	result text,
	channel_refund_no text DEFAULT NULL,
	amount bigint DEFAULT NULL,
	occurred_at timestamptz DEFAULT NULL,
	payment_no text DEFAULT NULL,
	channel text DEFAULT NULL,
	account text DEFAULT NULL,
	trade_no text DEFAULT NULL,
	currency text DEFAULT NULL)
	RETURNS @extschema@.idem_settle_refund_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_settle_refund';
COMMENT ON FUNCTION @extschema@.idem_settle_refund(text, text, text, text, bigint, timestamptz, text, text, text, text, text) IS
'A fact: what became of a refund. result: succeeded, failed, closed (both free the reserve), abnormal (keeps it), timeout (changes nothing), reversed (money that went back came again). A refund that is not known is adopted, with amount in minor units, if payment or trade lead to its money; refund_no NULL: found by channel_refund_no, or adopted as C + channel_refund_no. It is always recorded; the call waits for others as long as it takes.
Outcomes: applied; duplicate (the refund is there already, or is contained in a sum of refunds that the channel told); stale (the refund is beyond that, or was submitted again since); kept (a time-out; or something does not fit: an anomaly, nothing is changed); orphan (neither refund nor money is known: an anomaly).
A known refund is booked at our amount; another amount opens refund_amount_differs. Success counts even after a failure; what exceeds the receipt is booked as its excess and opens over_refund. reversed opens refund_reversed, abnormal refund_abnormal. When all of the money that paid an order went back, the order is refunded, and after a reversal what it was before, unless it was cancelled.
Errors: 22004 and 22023 (a key is NULL, where no other names the refund, or longer than 255 bytes), 40001.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_request_refund(text, text, text, bigint, text, text, text),
	@extschema@.idem_submit_refund(text, text),
	@extschema@.idem_cancel_refund(text, text),
	@extschema@.idem_retry_refund(text, text),
	@extschema@.idem_settle_refund(text, text, text, text, bigint, timestamptz, text, text, text, text, text)
	FROM PUBLIC;
