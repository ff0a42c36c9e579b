/*
 * adapter: notifications from the channels' own bodies.
 */

CREATE TYPE @extschema@.idem_adapter_result AS (
	outcome text,
	ack boolean,
	status text,
	payment_no text,
	receipt_no text,
	refund_no text,
	tenant_id text
);
COMMENT ON TYPE @extschema@.idem_adapter_result IS
'The row that idem_alipay_notification, idem_wechat_notification and idem_stripe_event return: that of idem_receive_notification, and the tenant it was received for; unrouted: nobody''s yet.';

CREATE FUNCTION @extschema@.idem_alipay_notification(body jsonb)
	RETURNS @extschema@.idem_adapter_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_alipay_notification';
COMMENT ON FUNCTION @extschema@.idem_alipay_notification(jsonb) IS
'A fact: an asynchronous notice of Alipay, its signature checked, its form fields as a jsonb object of strings. The tenant is found by out_trade_no, else by seller_id or app_id. Sums are converted from the currency''s unit without rounding. Answer the channel success if ack, else fail.
Outcomes: those of idem_receive_notification; rejected also for a body that cannot be read.
Errors: 40001, ID008.';

CREATE FUNCTION @extschema@.idem_wechat_notification(body jsonb)
	RETURNS @extschema@.idem_adapter_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_wechat_notification';
COMMENT ON FUNCTION @extschema@.idem_wechat_notification(jsonb) IS
'A fact: a notification of WeChat Pay v3, its signature checked, its resource replaced by what was decrypted from it. The tenant is found by out_trade_no, else by mchid, sub_mchid, sp_mchid or appid. Answer the channel 200 if ack, else 500 with code FAIL.
Outcomes: those of idem_receive_notification; rejected also for a body that cannot be read, or is not decrypted.
Errors: 40001, ID008.';

CREATE FUNCTION @extschema@.idem_stripe_event(body jsonb)
	RETURNS @extschema@.idem_adapter_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_stripe_event';
COMMENT ON FUNCTION @extschema@.idem_stripe_event(jsonb) IS
'A fact: an event of Stripe, its signature checked. trade_no is the payment intent''s id; payment_no is metadata.payment_no, a refund''s number metadata.refund_no, to be set when the intent or refund is made. The tenant is found by payment_no, else by the connected account. Answer the channel 200 if ack, else 500.
Outcomes: those of idem_receive_notification; rejected also for a body that cannot be read.
Errors: 40001, ID008.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_alipay_notification(jsonb),
	@extschema@.idem_wechat_notification(jsonb),
	@extschema@.idem_stripe_event(jsonb)
	FROM PUBLIC;
