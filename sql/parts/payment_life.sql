/*
 * payment_life: what happens to a payment between its creation and its money:
 * it is handed to a channel, closed in two phases, given up, shown.
 */

CREATE TYPE @extschema@.idem_submit_payment_result AS (
	outcome text,
	status text,
	expires_at timestamptz,
	channel_data jsonb
);
COMMENT ON TYPE @extschema@.idem_submit_payment_result IS
'The row that idem_submit_payment returns; channel_data only where the channel may be called.';

CREATE TYPE @extschema@.idem_payment_result AS (
	outcome text,
	status text,
	version integer
);
COMMENT ON TYPE @extschema@.idem_payment_result IS
'The row that idem_attach_channel_data, idem_begin_close, idem_finish_close, idem_close_payment and idem_fail_payment return; status and version are the payment''s as it stands after the call.';

CREATE TYPE @extschema@.idem_cancel_request_key_result AS (
	outcome text,
	payment_no text
);
COMMENT ON TYPE @extschema@.idem_cancel_request_key_result IS
'The row that idem_cancel_request_key returns; payment_no is the payment to be closed at its channel.';

CREATE FUNCTION @extschema@.idem_submit_payment(
	tenant_id text,
	payment_no text,
	channel text,
	account text DEFAULT NULL)
	RETURNS @extschema@.idem_submit_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_submit_payment';
COMMENT ON FUNCTION @extschema@.idem_submit_payment(text, text, text, text) IS
'Notes that a payment is handed to a channel; to be committed before the channel is called. Sets channel, account and submitted_at once; account NULL: the payment''s own.
Outcomes: submitted, already_submitted (both: call the channel, with this payment_no); other_channel (it belongs to another channel or account); refused (not pending, or expired); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such payment), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_attach_channel_data(
	tenant_id text,
	payment_no text,
	data jsonb)
	RETURNS @extschema@.idem_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_attach_channel_data';
COMMENT ON FUNCTION @extschema@.idem_attach_channel_data(text, text, jsonb) IS
'Keeps what the channel gave for the customer to pay with (QR code, prepay id, client secret) beside a pending payment, in place of what was there; idem_create_payment hands it back.
Outcomes: attached; duplicate (the same data is there); refused (not pending); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such payment), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_begin_close(
	tenant_id text,
	payment_no text,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_begin_close';
COMMENT ON FUNCTION @extschema@.idem_begin_close(text, text, text) IS
'First phase of closing: the payment still holds the slot of its order while the caller closes it at the channel, then tells idem_finish_close. Money that arrives meanwhile wins.
Outcomes: closing; already_closing; already_closed; already_paid; refused (in review, failed, paid_late); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such payment), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_finish_close(
	tenant_id text,
	payment_no text,
	result text,
	expire_order boolean DEFAULT false)
	RETURNS @extschema@.idem_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_finish_close';
COMMENT ON FUNCTION @extschema@.idem_finish_close(text, text, text, boolean) IS
'Second phase of closing. result is what the channel said: closed, already_paid, not_exist (proof only idem.close_grace after expires_at), refused, unknown. expire_order: a pending order whose payment is closed expires, unless another payment of it is active.
Outcomes: closed (it is looked at once more after idem.close_grace); kept (as it was; a check is due); reopened (pending again); paid_wins (money arrived); already_closed; refused (pending, review, failed); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such payment), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_close_payment(
	tenant_id text,
	payment_no text,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_close_payment';
COMMENT ON FUNCTION @extschema@.idem_close_payment(text, text, text) IS
'Closes at once a payment that no channel knows of, since it was never submitted.
Outcomes: closed; already_closed; already_paid; refused (submitted, in review, failed, paid_late); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such payment), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_cancel_request_key(
	tenant_id text,
	request_key text,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_cancel_request_key_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_cancel_request_key';
COMMENT ON FUNCTION @extschema@.idem_cancel_request_key(text, text, text) IS
'For a caller that never learnt what became of its idem_create_payment: gives up the payment that the key led to, or burns the key, so that the lost call creates nothing should it still arrive.
Outcomes: closing (close payment_no at its channel, then idem_finish_close); closed (nothing can be paid); burned (there was no payment, and there will be none); already_paid; in_review; in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023.';

CREATE FUNCTION @extschema@.idem_fail_payment(
	tenant_id text,
	payment_no text,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_payment_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_fail_payment';
COMMENT ON FUNCTION @extschema@.idem_fail_payment(text, text, text) IS
'A fact: the channel says that the payment failed for good. Frees the slot of its order.
Outcomes: failed; duplicate (failed before); stale (closed, paid, or in review: what happened holds); orphan (no such payment: an anomaly is opened).
Errors: 22004, 22023 (a key that cannot be stored).';

CREATE FUNCTION @extschema@.idem_get_payment(
	tenant_id text,
	payment_no text)
	RETURNS SETOF @extschema@.idem_payment
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_get_payment';
COMMENT ON FUNCTION @extschema@.idem_get_payment(text, text) IS
'Shows the row of a payment; no row if there is none. Writes nothing, permits nothing.
Errors: 22004, 22023.';

CREATE FUNCTION @extschema@.idem_find_payment(
	tenant_id text,
	order_id text)
	RETURNS SETOF @extschema@.idem_payment
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_find_payment';
COMMENT ON FUNCTION @extschema@.idem_find_payment(text, text) IS
'Shows the payment that matters for an order: the active one, else the paid one of the current purchase, else the latest; no row if the order has none. Writes nothing, permits nothing.
Errors: 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_submit_payment(text, text, text, text),
	@extschema@.idem_attach_channel_data(text, text, jsonb),
	@extschema@.idem_begin_close(text, text, text),
	@extschema@.idem_finish_close(text, text, text, boolean),
	@extschema@.idem_close_payment(text, text, text),
	@extschema@.idem_cancel_request_key(text, text, text),
	@extschema@.idem_fail_payment(text, text, text),
	@extschema@.idem_get_payment(text, text),
	@extschema@.idem_find_payment(text, text)
	FROM PUBLIC;
