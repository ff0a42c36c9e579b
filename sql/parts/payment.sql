/*
 * payment: one attempt to pay an order, one out_trade_no at the channel.
 *
 * idem_payment_active is the promise of the whole extension: whatever the
 * functions do, an order never has two payable payments.
 */

CREATE TABLE @extschema@.idem_payment (
	tenant_id @extschema@.idem_key_text NOT NULL,
	payment_no @extschema@.idem_key_text NOT NULL,
	order_id @extschema@.idem_key_text NOT NULL,
	purchase_no integer NOT NULL,
	amount @extschema@.idem_money NOT NULL,
	currency @extschema@.idem_currency NOT NULL,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	request_key text COLLATE "C",
	repurchase boolean NOT NULL DEFAULT false,
	channel text COLLATE "C",
	account text COLLATE "C",
	channel_data jsonb,
	metadata jsonb,
	created_at timestamptz NOT NULL,
	expires_at timestamptz,
	submitted_at timestamptz,
	next_check_at timestamptz,
	/* the number first, since it is also looked for alone: one notify_url may serve all tenants */
	PRIMARY KEY (payment_no, tenant_id)
);
CREATE UNIQUE INDEX idem_payment_active ON @extschema@.idem_payment (tenant_id, order_id)
	WHERE status IN ('pending', 'closing', 'review');
CREATE UNIQUE INDEX idem_payment_request_key ON @extschema@.idem_payment (tenant_id, request_key)
	WHERE request_key IS NOT NULL;
CREATE INDEX idem_payment_order ON @extschema@.idem_payment (tenant_id, order_id, purchase_no, created_at);
COMMENT ON TABLE @extschema@.idem_payment IS
'Attempts to pay. One row in pending, closing or review per order. amount is in minor units of currency. channel, account and submitted_at are set once; request_key and repurchase are those of the call that made it; next_check_at says when reconciliation should ask the channel. Never deleted.';

CREATE TABLE @extschema@.idem_payment_key (
	tenant_id @extschema@.idem_key_text NOT NULL,
	request_key @extschema@.idem_key_text NOT NULL,
	payment_no text COLLATE "C",
	repurchase boolean NOT NULL DEFAULT false,
	asked_payment_no text COLLATE "C",
	created_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, request_key)
);
COMMENT ON TABLE @extschema@.idem_payment_key IS
'Request keys that made no payment of their own: bound to the one that was there (several may lead to one), or burned, payment_no NULL: cancelled before there was one. The key that made a payment stands in idem_payment. repurchase and asked_payment_no are those of the key''s first call.';

CREATE TYPE @extschema@.idem_create_payment_result AS (
	outcome text,
	payment_no text,
	status text,
	order_id text,
	purchase_no integer,
	amount bigint,
	currency text,
	request_key text,
	channel text,
	account text,
	channel_data jsonb,
	version integer,
	created_at timestamptz,
	expires_at timestamptz,
	blocking_no text
);
COMMENT ON TYPE @extschema@.idem_create_payment_result IS
'The answer of idem_create_payment. payment_no and channel_data stand only where the payment may still be paid; blocking_no names the payment that stands in the way.';

CREATE FUNCTION @extschema@.idem_create_payment(
	tenant_id text,
	order_id text,
	amount bigint,
	currency text,
	request_key text DEFAULT NULL,
	repurchase boolean DEFAULT false,
	channel text DEFAULT NULL,
	expires_in interval DEFAULT '30 minutes',
	token text DEFAULT NULL,
	metadata jsonb DEFAULT NULL,
	wait interval DEFAULT NULL,
	account text DEFAULT NULL,
	payment_no text DEFAULT NULL
) RETURNS @extschema@.idem_create_payment_result
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idem_create_payment';
COMMENT ON FUNCTION @extschema@.idem_create_payment(text, text, bigint, text, text, boolean, text, interval, text, jsonb, interval, text, text) IS
'Creates the payment of an order, at most one payable at a time. amount in minor units of currency. Outcomes: created; replayed (this request_key or token was used before: that payment); existing (the order has a pending payment of the same amount, the request_key is bound to it); created and existing consume the token; already_paid; other_channel; closing; in_review; order_closed; burned (the request_key was cancelled before it had a payment); in_progress (the same call is open in another transaction). Errors: ID001 another order, amount or currency under the same key, token, number or order; ID002 the token is unknown, expired or of another scope than payment; 22023, 22004 nonsense arguments.';

CREATE TYPE @extschema@.idem_create_payments_result AS (
	ord integer,
	outcome text,
	payment_no text,
	status text,
	order_id text,
	purchase_no integer,
	amount bigint,
	currency text,
	request_key text,
	channel text,
	account text,
	channel_data jsonb,
	version integer,
	created_at timestamptz,
	expires_at timestamptz,
	blocking_no text,
	error text
);
COMMENT ON TYPE @extschema@.idem_create_payments_result IS
'A row of the answer of idem_create_payments: ord is the element''s place in the array, from 1; error the SQLSTATE of outcome error.';

CREATE FUNCTION @extschema@.idem_create_payments(
	tenant_id text,
	requests jsonb
) RETURNS SETOF @extschema@.idem_create_payments_result
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'idem_create_payments';
COMMENT ON FUNCTION @extschema@.idem_create_payments(text, jsonb) IS
'Creates many payments in one call: requests is an array of objects with the argument names of idem_create_payment. One row per element, in order, with the outcomes of idem_create_payment, or error with the SQLSTATE in error; a bad element stops no other. Errors: 22004, 22023 requests is not an array of objects.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_create_payment(text, text, bigint, text, text, boolean, text, interval, text, jsonb, interval, text, text),
	@extschema@.idem_create_payments(text, jsonb)
	FROM PUBLIC;
