/*
 * channel: what channels call things, and whose their accounts are.
 */

CREATE DOMAIN @extschema@.idem_fact_kind AS text COLLATE "C"
	CHECK (VALUE IN ('paid', 'failed', 'closed', 'refunded', 'refund_failed', 'refund_closed', 'refund_abnormal',
		'refund_reversed', 'dispute_opened', 'dispute_won', 'dispute_lost', 'none'));
COMMENT ON DOMAIN @extschema@.idem_fact_kind IS
'What a channel''s event means: money paid, failed, closed; a refund refunded, refund_failed, refund_closed, refund_abnormal, refund_reversed; a dispute dispute_opened, dispute_won, dispute_lost; none: nothing that changes anything.';

CREATE DOMAIN @extschema@.idem_refund_measure AS text COLLATE "C"
	CHECK (VALUE IN ('delta', 'cumulative'));
COMMENT ON DOMAIN @extschema@.idem_refund_measure IS
'What an event''s refund amount says: delta this refund, cumulative all refunds of the trade so far.';

CREATE DOMAIN @extschema@.idem_after_success AS text COLLATE "C"
	CHECK (VALUE IN ('stale', 'reverse'));
COMMENT ON DOMAIN @extschema@.idem_after_success IS
'What a refund''s failure means after its success: stale an old word that changes nothing, reverse the money has come back.';

CREATE TABLE @extschema@.idem_channel_event (
	channel @extschema@.idem_key_text NOT NULL,
	event @extschema@.idem_key_text NOT NULL,
	has_refund boolean NOT NULL,
	kind @extschema@.idem_fact_kind NOT NULL,
	refund_amount_is @extschema@.idem_refund_measure NOT NULL DEFAULT 'delta',
	after_success @extschema@.idem_after_success NOT NULL DEFAULT 'stale',
	PRIMARY KEY (channel, event, has_refund)
);
COMMENT ON TABLE @extschema@.idem_channel_event IS
'What each event of a channel means, as the extension comes with it. has_refund: the event names a refund amount, which some channels tell under the name of the payment''s event. A row of idem_channel_event_change with the same key goes before it. Not dumped.';

CREATE TABLE @extschema@.idem_channel_event_change (
	channel @extschema@.idem_key_text NOT NULL,
	event @extschema@.idem_key_text NOT NULL,
	has_refund boolean NOT NULL,
	kind @extschema@.idem_fact_kind NOT NULL,
	refund_amount_is @extschema@.idem_refund_measure NOT NULL DEFAULT 'delta',
	after_success @extschema@.idem_after_success NOT NULL DEFAULT 'stale',
	PRIMARY KEY (channel, event, has_refund)
);
COMMENT ON TABLE @extschema@.idem_channel_event_change IS
'What operators say that events mean, besides idem_channel_event or against it. Written by idem_set_channel_event, dumped.';

/* Alipay: one trade_status for several facts; refund_fee is the sum of all refunds. */
INSERT INTO @extschema@.idem_channel_event (channel, event, has_refund, kind, refund_amount_is) VALUES
	('alipay', 'WAIT_BUYER_PAY', false, 'none', 'delta'),
	('alipay', 'TRADE_SUCCESS', false, 'paid', 'delta'),
	('alipay', 'TRADE_SUCCESS', true, 'refunded', 'cumulative'),
	('alipay', 'TRADE_FINISHED', false, 'paid', 'delta'),
	('alipay', 'TRADE_FINISHED', true, 'refunded', 'cumulative'),
	('alipay', 'TRADE_CLOSED', false, 'closed', 'delta'),
	('alipay', 'TRADE_CLOSED', true, 'refunded', 'cumulative');

/* WeChat Pay v3: event types, and the trade states that a query tells. */
INSERT INTO @extschema@.idem_channel_event (channel, event, has_refund, kind) VALUES
	('wechat', 'TRANSACTION.SUCCESS', false, 'paid'),
	('wechat', 'REFUND.SUCCESS', false, 'refunded'),
	('wechat', 'REFUND.SUCCESS', true, 'refunded'),
	('wechat', 'REFUND.CLOSED', false, 'refund_closed'),
	('wechat', 'REFUND.CLOSED', true, 'refund_closed'),
	('wechat', 'REFUND.ABNORMAL', false, 'refund_abnormal'),
	('wechat', 'REFUND.ABNORMAL', true, 'refund_abnormal'),
	('wechat', 'SUCCESS', false, 'paid'),
	('wechat', 'REFUND', false, 'none'),
	('wechat', 'NOTPAY', false, 'none'),
	('wechat', 'USERPAYING', false, 'none'),
	('wechat', 'ACCEPT', false, 'none'),
	('wechat', 'PAYERROR', false, 'none'),
	('wechat', 'CLOSED', false, 'closed'),
	('wechat', 'REVOKED', false, 'closed');

/*
 * Stripe: an attempt that failed can be tried again, so only canceled ends a
 * payment.  Where the object's status decides, the adapter appends it.
 */
INSERT INTO @extschema@.idem_channel_event (channel, event, has_refund, kind, refund_amount_is, after_success) VALUES
	('stripe', 'payment_intent.succeeded', false, 'paid', 'delta', 'stale'),
	('stripe', 'payment_intent.canceled', false, 'closed', 'delta', 'stale'),
	('stripe', 'payment_intent.created', false, 'none', 'delta', 'stale'),
	('stripe', 'payment_intent.processing', false, 'none', 'delta', 'stale'),
	('stripe', 'payment_intent.requires_action', false, 'none', 'delta', 'stale'),
	('stripe', 'payment_intent.payment_failed', false, 'none', 'delta', 'stale'),
	('stripe', 'payment_intent.amount_capturable_updated', false, 'none', 'delta', 'stale'),
	('stripe', 'payment_intent.partially_funded', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.succeeded', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.pending', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.failed', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.captured', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.updated', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.expired', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.refunded', true, 'refunded', 'cumulative', 'stale'),
	('stripe', 'refund.created', true, 'none', 'delta', 'stale'),
	('stripe', 'refund.created.pending', true, 'none', 'delta', 'stale'),
	('stripe', 'refund.created.requires_action', true, 'none', 'delta', 'stale'),
	('stripe', 'refund.created.succeeded', true, 'refunded', 'delta', 'stale'),
	('stripe', 'refund.created.failed', true, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'refund.created.canceled', true, 'refund_closed', 'delta', 'reverse'),
	('stripe', 'refund.updated', true, 'refunded', 'delta', 'stale'),
	('stripe', 'refund.updated.pending', true, 'none', 'delta', 'stale'),
	('stripe', 'refund.updated.requires_action', true, 'none', 'delta', 'stale'),
	('stripe', 'refund.updated.succeeded', true, 'refunded', 'delta', 'stale'),
	('stripe', 'refund.updated.failed', true, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'refund.updated.canceled', true, 'refund_closed', 'delta', 'reverse'),
	('stripe', 'refund.failed', true, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'refund.failed', false, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'refund.failed.failed', true, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'charge.refund.updated', true, 'refunded', 'delta', 'stale'),
	('stripe', 'charge.refund.updated.pending', true, 'none', 'delta', 'stale'),
	('stripe', 'charge.refund.updated.requires_action', true, 'none', 'delta', 'stale'),
	('stripe', 'charge.refund.updated.succeeded', true, 'refunded', 'delta', 'stale'),
	('stripe', 'charge.refund.updated.failed', true, 'refund_failed', 'delta', 'reverse'),
	('stripe', 'charge.refund.updated.canceled', true, 'refund_closed', 'delta', 'reverse'),
	('stripe', 'charge.dispute.created', false, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created', true, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.needs_response', false, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.needs_response', true, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.under_review', false, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.under_review', true, 'dispute_opened', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.warning_needs_response', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.dispute.created.warning_under_review', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.dispute.updated', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.dispute.funds_withdrawn', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.dispute.funds_reinstated', false, 'none', 'delta', 'stale'),
	('stripe', 'charge.dispute.closed.won', false, 'dispute_won', 'delta', 'stale'),
	('stripe', 'charge.dispute.closed.won', true, 'dispute_won', 'delta', 'stale'),
	('stripe', 'charge.dispute.closed.lost', false, 'dispute_lost', 'delta', 'stale'),
	('stripe', 'charge.dispute.closed.lost', true, 'dispute_lost', 'delta', 'stale'),
	('stripe', 'charge.dispute.closed.warning_closed', false, 'none', 'delta', 'stale');

/* By merchant account, whoever's: for one notify_url that serves all tenants. */
CREATE INDEX idem_channel_account_channel ON @extschema@.idem_channel_account (channel, account);

CREATE TYPE @extschema@.idem_set_channel_result AS (outcome text);
COMMENT ON TYPE @extschema@.idem_set_channel_result IS
'The row that idem_set_channel_event, idem_set_channel_account and idem_remove_channel_account return.';

CREATE FUNCTION @extschema@.idem_set_channel_event(
	channel text,
	event text,
	has_refund boolean,
	kind text,
	refund_amount_is text DEFAULT 'delta',
	after_success text DEFAULT 'stale')
	RETURNS @extschema@.idem_set_channel_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_set_channel_event';
COMMENT ON FUNCTION @extschema@.idem_set_channel_event(text, text, boolean, text, text, text) IS
'Says what a channel''s event means, from the next notification on, for all tenants; what was judged before stays. has_refund: the meaning where the notification names a refund amount other than 0. kind: paid, failed, closed, refunded, refund_failed, refund_closed, refund_abnormal, refund_reversed, dispute_opened, dispute_won, dispute_lost, none. refund_amount_is: delta, cumulative. after_success, what a refund''s failure means after its success: stale, reverse.
Outcomes: created; updated; unchanged (it means that already); in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023, ID008.';

CREATE FUNCTION @extschema@.idem_set_channel_account(
	tenant_id text,
	channel text,
	account text,
	auto_refund text DEFAULT NULL)
	RETURNS @extschema@.idem_set_channel_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_set_channel_account';
COMMENT ON FUNCTION @extschema@.idem_set_channel_account(text, text, text, text) IS
'Enters a merchant account of the tenant''s. Once a channel has one, money on any other account is rejected, and a notification that names none of our payments is routed by its account. auto_refund: on; hold, automatic refunds of money on this account wait for a human, whatever idem.auto_refund says; NULL, as it is, on for a new account.
Outcomes: created; updated; unchanged; in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023, ID008.';

CREATE FUNCTION @extschema@.idem_tenant_of(
	channel text,
	account text,
	payment_no text,
	OUT tenant_id text)
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_tenant_of';
COMMENT ON FUNCTION @extschema@.idem_tenant_of(text, text, text) IS
'Whose a notification is, where one notify_url serves all tenants: the only tenant that has a payment of this number, of several the one whose payment is on this account; else the only tenant that entered the account by idem_set_channel_account; NULL if there is none. Arguments may be NULL. Writes nothing.
Errors: ID008.';

CREATE FUNCTION @extschema@.idem_remove_channel_account(
	tenant_id text,
	channel text,
	account text)
	RETURNS @extschema@.idem_set_channel_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_remove_channel_account';
COMMENT ON FUNCTION @extschema@.idem_remove_channel_account(text, text, text) IS
'Takes a merchant account of the tenant''s out again. As long as the channel has others, money on this one is rejected from now on, and so is what notifications say in its name of refunds and disputes; with the last one gone money is expected on any account. What was received on it stays as it is and can be refunded; its auto_refund no longer counts, refunds that are held stay so.
Outcomes: removed; duplicate (it is not entered); in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023, ID008.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_set_channel_event(text, text, boolean, text, text, text),
	@extschema@.idem_set_channel_account(text, text, text, text),
	@extschema@.idem_remove_channel_account(text, text, text),
	@extschema@.idem_tenant_of(text, text, text)
	FROM PUBLIC;
