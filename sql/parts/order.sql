/*
 * order: what is bought.  A row is optional; it follows purchase 1.
 */

CREATE TABLE @extschema@.idem_order (
	tenant_id @extschema@.idem_key_text NOT NULL,
	order_id @extschema@.idem_key_text NOT NULL,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	amount @extschema@.idem_price NOT NULL,
	currency @extschema@.idem_currency NOT NULL,
	buyer_id @extschema@.idem_key_text,
	metadata jsonb,
	created_at timestamptz NOT NULL,
	expires_at timestamptz,
	refunded_from text COLLATE "C",
	PRIMARY KEY (tenant_id, order_id)
);
COMMENT ON TABLE @extschema@.idem_order IS
'Orders, optional. amount is in minor units of currency, 0 allowed. status follows the machine order and purchase 1; refunded_from is what it was before it was refunded, and is again if the refund is reversed. Never deleted.';

CREATE TYPE @extschema@.idem_create_order_result AS (
	outcome text,
	order_id text,
	status text,
	amount bigint,
	currency text,
	version integer,
	created_at timestamptz,
	expires_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_create_order_result IS
'The row that idem_create_order returns; amount is in minor units of currency.';

CREATE TYPE @extschema@.idem_update_order_result AS (
	outcome text,
	version integer
);
COMMENT ON TYPE @extschema@.idem_update_order_result IS
'The row that idem_update_order returns; version is the order''s as it stands after the call.';

CREATE TYPE @extschema@.idem_cancel_order_result AS (
	outcome text,
	status text,
	version integer,
	closing_payment_no text,
	refund_no text,
	refund_status text,
	remainder bigint
);
COMMENT ON TYPE @extschema@.idem_cancel_order_result IS
'The row that idem_cancel_order returns. closing_payment_no is the payment to be closed at its channel, refund_no the refund to be driven on (NULL once it cannot be acted on), remainder what of the receipt is not on its way back, in minor units.';

CREATE TYPE @extschema@.idem_fulfil_order_result AS (
	outcome text,
	status text,
	version integer
);
COMMENT ON TYPE @extschema@.idem_fulfil_order_result IS
'The row that idem_ship_order and idem_complete_order return.';

CREATE FUNCTION @extschema@.idem_create_order(
	tenant_id text,
	order_id text,
	amount bigint,
	currency text,
	buyer_id text DEFAULT NULL,
	expires_in interval DEFAULT NULL,
	metadata jsonb DEFAULT NULL,
	wait interval DEFAULT NULL)
	RETURNS @extschema@.idem_create_order_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_create_order';
COMMENT ON FUNCTION @extschema@.idem_create_order(text, text, bigint, text, text, interval, jsonb, interval) IS
'Creates the row of an order, in minor units of an ISO 4217 currency; 0 is allowed and paid at once, as is an order whose purchase 1 was paid before it had a row. expires_in NULL: never expires; wait NULL: idem.wait.
Outcomes: created; existing (the same order, whatever became of it); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (the order has another amount, currency or, where both name one, buyer_id, or a payment of another amount or currency), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_update_order(
	tenant_id text,
	order_id text,
	amount bigint,
	currency text,
	expected_version integer,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_update_order_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_update_order';
COMMENT ON FUNCTION @extschema@.idem_update_order(text, text, bigint, text, integer, text) IS
'Changes amount, in minor units, and currency of a pending order that no payment is active for; an order changed to 0 is paid at once.
Outcomes, the first that fits: duplicate (amount and currency are those already); refused (not pending, or a payment is active); stale (version is not expected_version); updated. Or in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such order), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_cancel_order(
	tenant_id text,
	order_id text,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_cancel_order_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_cancel_order';
COMMENT ON FUNCTION @extschema@.idem_cancel_order(text, text, text) IS
'Cancels an order for good. Its active payment begins to close (closing_payment_no: close it at the channel), or is closed where it was never submitted. What was paid for purchase 1 and is not on its way back is requested as a refund in the same transaction; that takes the capability cashier. An order without a row gets one.
Outcomes: cancelled; already_cancelled (with the same refund_no and closing_payment_no while they may be acted on); refused (shipped, completed, expired, refunded, or a payment is in review); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (neither an order nor a payment of it), ID008 (paid, and the caller is no cashier), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_ship_order(
	tenant_id text,
	order_id text)
	RETURNS @extschema@.idem_fulfil_order_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_ship_order';
COMMENT ON FUNCTION @extschema@.idem_ship_order(text, text) IS
'Moves a paid order to shipped, unless all of its money is on its way back.
Outcomes: shipped; already_shipped (or completed); refused; in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such order), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_complete_order(
	tenant_id text,
	order_id text)
	RETURNS @extschema@.idem_fulfil_order_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_complete_order';
COMMENT ON FUNCTION @extschema@.idem_complete_order(text, text) IS
'Moves a shipped order to completed, or, for digital goods, a paid one, unless all of its money is on its way back.
Outcomes: completed; already_completed; refused; in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such order), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_get_order(
	tenant_id text,
	order_id text)
	RETURNS SETOF @extschema@.idem_order
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_get_order';
COMMENT ON FUNCTION @extschema@.idem_get_order(text, text) IS
'Shows the row of an order; no row if it has none. Writes nothing, permits nothing.
Errors: 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_create_order(text, text, bigint, text, text, interval, jsonb, interval),
	@extschema@.idem_update_order(text, text, bigint, text, integer, text),
	@extschema@.idem_cancel_order(text, text, text),
	@extschema@.idem_ship_order(text, text),
	@extschema@.idem_complete_order(text, text),
	@extschema@.idem_get_order(text, text)
	FROM PUBLIC;
