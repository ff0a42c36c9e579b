/*
 * receipt: money that really arrived, as the channel told it.
 */

CREATE DOMAIN @extschema@.idem_auto_refund AS text COLLATE "C"
	CHECK (VALUE IN ('on', 'hold'));
COMMENT ON DOMAIN @extschema@.idem_auto_refund IS
'Whether automatic refunds may be sent (on) or are held until a human lets them go (hold).';

CREATE TABLE @extschema@.idem_channel_account (
	tenant_id text COLLATE "C" NOT NULL,
	channel text COLLATE "C" NOT NULL,
	account text COLLATE "C" NOT NULL,
	auto_refund @extschema@.idem_auto_refund NOT NULL DEFAULT 'on',
	PRIMARY KEY (tenant_id, channel, account)
);
COMMENT ON TABLE @extschema@.idem_channel_account IS
'The merchant accounts a tenant expects money on. Once a channel has a row here, money on any other account is rejected. auto_refund hold: automatic refunds of money on this account are held, whatever idem.auto_refund says.';

CREATE DOMAIN @extschema@.idem_disposition AS text COLLATE "C"
	CHECK (VALUE IN ('applied', 'late', 'surplus', 'mismatch', 'orphan', 'rejected'));
COMMENT ON DOMAIN @extschema@.idem_disposition IS
'What became of money that arrived: applied to its purchase; late, surplus: to be refunded; mismatch: waits for a decision; orphan, rejected: belongs to no payment of ours.';

CREATE TABLE @extschema@.idem_receipt (
	tenant_id text COLLATE "C" NOT NULL,
	receipt_no text COLLATE "C" NOT NULL,
	payment_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	channel text COLLATE "C" NOT NULL DEFAULT '',
	account text COLLATE "C" NOT NULL DEFAULT '',
	trade_no text COLLATE "C" NOT NULL DEFAULT '',
	reported_payment_no text COLLATE "C" NOT NULL,
	amount bigint,
	currency text COLLATE "C",
	disposition @extschema@.idem_disposition NOT NULL,
	refund_reserved bigint NOT NULL DEFAULT 0,
	refunded bigint NOT NULL DEFAULT 0,
	disputed bigint NOT NULL DEFAULT 0,
	excess bigint NOT NULL DEFAULT 0,
	paid_at timestamptz,
	created_at timestamptz NOT NULL,
	refund_told bigint NOT NULL DEFAULT 0,
	refund_told_at timestamptz,
	PRIMARY KEY (tenant_id, receipt_no),
	CONSTRAINT idem_receipt_sums CHECK (
		0 <= refunded AND refunded <= refund_reserved AND 0 <= disputed AND 0 <= excess AND
		refund_reserved + disputed <= greatest(coalesce(amount, 0), 0) + excess)
);
CREATE UNIQUE INDEX idem_receipt_trade ON @extschema@.idem_receipt (tenant_id, channel, account, trade_no);
CREATE UNIQUE INDEX idem_receipt_payment ON @extschema@.idem_receipt (tenant_id, payment_no, channel, trade_no);
CREATE UNIQUE INDEX idem_receipt_applied ON @extschema@.idem_receipt (tenant_id, order_id, purchase_no)
	WHERE disposition = 'applied';
CREATE INDEX idem_receipt_reported ON @extschema@.idem_receipt (tenant_id, reported_payment_no)
	WHERE disposition = 'orphan';
CREATE INDEX idem_receipt_mismatch ON @extschema@.idem_receipt (tenant_id, order_id, purchase_no)
	WHERE disposition = 'mismatch';
COMMENT ON TABLE @extschema@.idem_receipt IS
'Money that arrived, one row per (channel, account, trade_no). amount and currency are what the channel said, whatever that was. payment_no is NULL for orphan and rejected receipts until they are adopted; one receipt per purchase is applied. refund_reserved counts refunds requested, processing, abnormal and succeeded; refunded those that succeeded; refund_told is the latest sum of all its refunds that the channel told, and refund_told_at the channel''s time of that. Never deleted.';

CREATE TYPE @extschema@.idem_confirm_payment_result AS (
	outcome text,
	status text,
	receipt_no text,
	refund_no text,
	order_status text,
	version integer,
	closing_payment_no text
);
COMMENT ON TYPE @extschema@.idem_confirm_payment_result IS
'The row that idem_confirm_payment and idem_adopt_receipt return. status and version are the payment''s after the call, NULL if it is unknown; order_status is NULL for an order without a row; refund_no is the automatic refund to be driven on (NULL once it cannot be acted on), closing_payment_no another payment of the purchase that is to be closed at its channel.';

CREATE TYPE @extschema@.idem_resolve_review_result AS (
	outcome text,
	status text,
	refund_no text
);
COMMENT ON TYPE @extschema@.idem_resolve_review_result IS
'The row that idem_resolve_review returns. status is the payment''s after the call; refund_no is the refund of the receipt that was named, else of the first one in review (NULL once it cannot be acted on).';

CREATE TYPE @extschema@.idem_refund_receipt_result AS (
	outcome text,
	refund_no text,
	status text,
	amount bigint,
	remainder bigint
);
COMMENT ON TYPE @extschema@.idem_refund_receipt_result IS
'The row that idem_refund_receipt returns. status and amount are the refund''s, refund_no is NULL once it cannot be acted on; remainder is what of the receipt is neither on its way back nor disputed. Amounts are in minor units of the receipt''s currency.';

CREATE FUNCTION @extschema@.idem_confirm_payment(
	tenant_id text,
	payment_no text,
	channel text,
	trade_no text,
	amount bigint,
	currency text,
	account text DEFAULT NULL,
	paid_at timestamptz DEFAULT NULL)
	RETURNS @extschema@.idem_confirm_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_confirm_payment';
COMMENT ON FUNCTION @extschema@.idem_confirm_payment(text, text, text, text, bigint, text, text, timestamptz) IS
'A fact: money arrived, amount in minor units. It is always recorded; the call waits for others as long as it takes. account NULL: the payment''s own, if it is this channel''s, else unknown.
Outcomes, the first that matches: rejected (the account is not the payment''s or not one of idem_channel_account, or the trade is another payment''s money); duplicate (this trade was received on this payment before; nothing is written); orphan (no such payment: kept until it is created, adopted or refunded); surplus (the purchase is paid already); late (the order is cancelled, expired or refunded); mismatch (amount, currency or channel differs; the payment goes to review), or late for a payment that had ended; paid.
surplus and late request the full refund of the receipt in the same transaction. Everything but paid and duplicate leaves an open anomaly. An amount that is no amount, or an empty key, is recorded, never applied and never refunded by itself.
Errors: 22004 and 22023 (a key is NULL or longer than 255 bytes), 40001.';

CREATE FUNCTION @extschema@.idem_resolve_review(
	tenant_id text,
	payment_no text,
	decision text,
	reason text,
	receipt_no text DEFAULT NULL)
	RETURNS @extschema@.idem_resolve_review_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_resolve_review';
COMMENT ON FUNCTION @extschema@.idem_resolve_review(text, text, text, text, text) IS
'Decides about a payment in review. decision accept: the receipt counts as it is, payment and order are paid, other money in review goes back. decision refund: all money in review goes back, the payment becomes paid_late and the order can be paid anew. receipt_no may be left out if there is one receipt in review, or to refund.
Outcomes: accepted; refunded; duplicate (the same was decided before); refused (not in review, not a receipt in review, or, to accept, the order has ended, the purchase is paid, or the receipt makes no sense); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22023 (decision; receipt_no left out for several receipts), 22004.';

CREATE FUNCTION @extschema@.idem_adopt_receipt(
	tenant_id text,
	receipt_no text,
	payment_no text)
	RETURNS @extschema@.idem_confirm_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_adopt_receipt';
COMMENT ON FUNCTION @extschema@.idem_adopt_receipt(text, text, text) IS
'Gives an orphan or rejected receipt to a payment. It is judged as idem_confirm_payment would, whatever its account.
Outcomes: paid, surplus, late, mismatch (as idem_confirm_payment); duplicate (it is this payment''s already); refused (it is another payment''s, is being refunded or disputed, or the payment has this trade already); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_refund_receipt(
	tenant_id text,
	receipt_no text,
	reason text)
	RETURNS @extschema@.idem_refund_receipt_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_refund_receipt';
COMMENT ON FUNCTION @extschema@.idem_refund_receipt(text, text, text) IS
'Sends an orphan or rejected receipt back: requests its automatic refund, A + receipt_no.
Outcomes: requested; duplicate (it was requested before; status says what became of it); refused (the receipt has a payment, nothing of it remains, or it makes no sense); in_progress (another transaction is at it; nothing was written).
Errors: ID006, 22004, 22023.';

CREATE FUNCTION @extschema@.idem_get_receipts(tenant_id text, payment_no text)
	RETURNS SETOF @extschema@.idem_receipt
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_get_receipts';
COMMENT ON FUNCTION @extschema@.idem_get_receipts(text, text) IS
'The money that arrived for a payment, in the order of its arrival; no row if there is none. Amounts are in minor units. Orphan and rejected receipts belong to no payment and are not shown.
Errors: 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_confirm_payment(text, text, text, text, bigint, text, text, timestamptz),
	@extschema@.idem_resolve_review(text, text, text, text, text),
	@extschema@.idem_adopt_receipt(text, text, text),
	@extschema@.idem_refund_receipt(text, text, text),
	@extschema@.idem_get_receipts(text, text)
	FROM PUBLIC;
