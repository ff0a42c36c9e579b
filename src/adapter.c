/*-------------------------------------------------------------------------
 * adapter.c
 *	  Notifications from the channels' own bodies: Alipay, WeChat Pay v3, Stripe.
 *
 * The caller has checked the signature (and decrypted, for WeChat); from there
 * on nothing is left for him to get wrong.  A body is read into what it says,
 * its tenant is found, and it is received like any other notification.  One
 * that cannot be read is recorded too, since raising would lose it, and opens
 * an anomaly.
 *
 * Which of a merchant's several ids is "the account" is the tenant's choice: a
 * body names all of them, and the one is taken that the payment or the tenant's
 * accounts know.
 *-------------------------------------------------------------------------
 */
#include "adapter.h"
#include "payment.h"

/* Alipay tells Beijing time, without saying so */
#define BEIJING_MINUTES (8 * 60)

static void
add_account(Body *body, JsonbContainer *json, const char *name)
{
	NullableDatum account = read_text(json, name);

	Assert(body->naccounts < BODY_MAX_ACCOUNTS);
	if (!account.isnull)
		body->accounts[body->naccounts++] = account;
}


/* ---------- Alipay ---------- */

/* Does it tell of money that went back? */
static bool
tells_refund(const Notification *said)
{
	return !said->refund_amount.isnull && DatumGetInt64(said->refund_amount.value) != 0;
}

/*
 * The fields of its POST, as an object.  refund_fee is all that was refunded so
 * far; out_biz_no is the refund's number.
 */
static const char *
read_alipay(JsonbContainer *json, Body *body)
{
	Notification *said = &body->said;
	NullableDatum currency = read_currency(json, "trans_currency");

	said->notify_id = read_text(json, "notify_id");
	said->payment_no = read_text(json, "out_trade_no");
	said->trade_no = read_text(json, "trade_no");
	said->event = read_text(json, "trade_status");
	said->currency = currency.isnull ? IDEM_TEXT("CNY") : currency;
	said->amount = read_major(json, "total_amount", said->currency);
	said->refund_amount = read_major(json, "refund_fee", said->currency);
	said->occurred_at = read_time(json, "gmt_payment", BEIJING_MINUTES);
	add_account(body, json, "seller_id");
	add_account(body, json, "app_id");

	if (tells_refund(said))
	{
		said->biz_no = read_text(json, "out_biz_no");
		said->refund_currency = said->currency;
		said->occurred_at = read_time(json, "gmt_refund", BEIJING_MINUTES);
	}
	else if (!said->event.isnull && idem_text_is(said->event.value, "TRADE_CLOSED"))
		said->occurred_at = read_time(json, "gmt_close", BEIJING_MINUTES);

	if (said->event.isnull)
		return "It has no trade_status.";
	return NULL;
}


/* ---------- WeChat Pay v3 ---------- */

/*
 * A payment.  Its event says success; what the trade's state says is what
 * counts.
 */
static void
read_wechat_trade(JsonbContainer *trade, Notification *said)
{
	JsonbContainer *amount = read_object(trade, "amount");
	NullableDatum state = read_text(trade, "trade_state");

	said->amount = read_minor(amount, "total");
	said->currency = read_currency(amount, "currency");
	if (said->currency.isnull)
		said->currency = IDEM_TEXT("CNY");
	if (!state.isnull && (said->event.isnull || !idem_text_is(state.value, "SUCCESS")))
		said->event = state;
}

static void
read_wechat_refund(JsonbContainer *refund, Notification *said)
{
	JsonbContainer *amount = read_object(refund, "amount");
	NullableDatum state = read_text(refund, "refund_status");

	said->biz_no = read_text(refund, "out_refund_no");
	said->channel_refund_no = read_text(refund, "refund_id");
	said->refund_amount = read_minor(amount, "refund");
	said->refund_currency = read_currency(amount, "currency");
	if (said->event.isnull && !state.isnull)
		said->event = IDEM_TEXT(psprintf("REFUND.%s", TextDatumGetCString(state.value)));
}

/* An event whose resource was decrypted, or such a resource alone */
static const char *
read_wechat(JsonbContainer *json, Body *body)
{
	Notification *said = &body->said;
	bool		has_envelope = read_has(json, "event_type") || read_has(json, "resource");
	JsonbContainer *resource = has_envelope ? read_object(json, "resource") : json;

	if (has_envelope)
	{
		said->notify_id = read_text(json, "id");
		said->event = read_text(json, "event_type");
	}
	said->payment_no = read_text(resource, "out_trade_no");
	said->trade_no = read_text(resource, "transaction_id");
	said->occurred_at = read_time(resource, "success_time", BEIJING_MINUTES);
	if (said->occurred_at.isnull)
		said->occurred_at = read_time(json, "create_time", BEIJING_MINUTES);
	add_account(body, resource, "mchid");
	add_account(body, resource, "sub_mchid");
	add_account(body, resource, "sp_mchid");
	add_account(body, resource, "appid");

	if (read_has(resource, "refund_status") || read_has(resource, "out_refund_no"))
		read_wechat_refund(resource, said);
	else
		read_wechat_trade(resource, said);

	if (read_has(resource, "ciphertext"))
		return "Its resource is not decrypted.";
	if (resource == NULL || said->event.isnull)
		return "It has no event_type and resource.";
	return NULL;
}


/* ---------- Stripe ---------- */

static NullableDatum
stripe_metadata(JsonbContainer *object, const char *name, const char *other_name)
{
	const char *const names[] = {name, other_name};

	return read_first_text(read_object(object, "metadata"), names, lengthof(names));
}

/* The trade is the payment intent; a charge without one stands for itself */
static void
read_stripe_trade(JsonbContainer *object, const char *charge, Notification *said)
{
	said->payment_no = stripe_metadata(object, "payment_no", "out_trade_no");
	said->trade_no = read_text(object, "payment_intent");
	if (said->trade_no.isnull)
		said->trade_no = read_text(object, charge);
}

static void
read_stripe_intent(JsonbContainer *intent, Notification *said)
{
	said->payment_no = stripe_metadata(intent, "payment_no", "out_trade_no");
	said->trade_no = read_text(intent, "id");
	said->currency = read_currency(intent, "currency");
	said->amount = read_minor(intent, "amount_received");
	if (said->amount.isnull || DatumGetInt64(said->amount.value) == 0)
		said->amount = read_minor(intent, "amount");
}

/* Its refunds stand in it only for old versions of the API, the latest first */
static void
read_stripe_charge(JsonbContainer *charge, Notification *said)
{
	JsonbContainer *refund = read_first_object(read_object(charge, "refunds"), "data");

	read_stripe_trade(charge, "id", said);
	said->amount = read_minor(charge, "amount");
	said->currency = read_currency(charge, "currency");
	if (!idem_text_is(said->event.value, "charge.refunded"))
		return;
	said->refund_amount = read_minor(charge, "amount_refunded");
	said->refund_currency = said->currency;
	said->biz_no = stripe_metadata(refund, "refund_no", "out_refund_no");
	said->channel_refund_no = read_text(refund, "id");
}

/* Where the object's status decides what an event means, it is part of its name */
static void
append_status(JsonbContainer *object, Notification *said)
{
	NullableDatum status = read_text(object, "status");

	if (!status.isnull)
		said->event = IDEM_TEXT(psprintf("%s.%s", TextDatumGetCString(said->event.value),
										 TextDatumGetCString(status.value)));
}

static void
read_stripe_refund(JsonbContainer *refund, Notification *said)
{
	NullableDatum status = read_text(refund, "status");

	read_stripe_trade(refund, "charge", said);
	said->biz_no = stripe_metadata(refund, "refund_no", "out_refund_no");
	said->channel_refund_no = read_text(refund, "id");
	said->refund_amount = read_minor(refund, "amount");
	said->refund_currency = read_currency(refund, "currency");
	/* it counts in the sums that the charge tells from its creation on */
	if (!status.isnull && idem_text_is(status.value, "succeeded") && read_has(refund, "created"))
		said->occurred_at = read_epoch(refund, "created");
	append_status(refund, said);
}

static void
read_stripe_dispute(JsonbContainer *dispute, Notification *said)
{
	read_stripe_trade(dispute, "charge", said);
	said->biz_no = read_text(dispute, "id");
	said->amount = read_minor(dispute, "amount");
	said->currency = read_currency(dispute, "currency");
	if (idem_text_is(said->event.value, "charge.dispute.created") ||
		idem_text_is(said->event.value, "charge.dispute.closed"))
		append_status(dispute, said);
}

static const char *
read_stripe(JsonbContainer *json, Body *body)
{
	Notification *said = &body->said;
	JsonbContainer *object = read_object(read_object(json, "data"), "object");
	NullableDatum type = read_text(object, "object");

	said->notify_id = read_text(json, "id");
	said->event = read_text(json, "type");
	said->occurred_at = read_epoch(json, "created");
	add_account(body, json, "account");

	if (said->event.isnull || object == NULL)
		return "It has no type and data.object.";
	if (type.isnull)
		return NULL;
	if (idem_text_is(type.value, "payment_intent"))
		read_stripe_intent(object, said);
	else if (idem_text_is(type.value, "charge"))
		read_stripe_charge(object, said);
	else if (idem_text_is(type.value, "refund"))
		read_stripe_refund(object, said);
	else if (idem_text_is(type.value, "dispute"))
		read_stripe_dispute(object, said);
	return NULL;
}


/* ---------- tenant and account ---------- */

static NullableDatum
find_tenant(IdemCall *call, const Body *body)
{
	NullableDatum tenant_id = IDEM_NULL;
	int			i = 0;

	do
	{
		tenant_id = channel_tenant_of(call, body->said.channel, body->accounts[i],
									  body->said.payment_no, IDEM_SIGHT_LATEST);
	} while (tenant_id.isnull && ++i < body->naccounts);
	return tenant_id;
}

/* Does the tenant know this as an account of its own? */
static bool
is_account(IdemCall *call, const Body *body, const Payment *payment, Datum account)
{
	if (payment != NULL && !payment->account.isnull)
		return idem_same_text(payment->account.value, account);
	return channel_account_is_known(call, call->tenant_id, body->said.channel, account);
}

/* Of the ids that the body names, the one that the tenant calls the account */
static NullableDatum
choose_account(IdemCall *call, const Body *body)
{
	Payment    *payment = body->said.payment_no.isnull ? NULL :
		payment_look(call, body->said.payment_no.value, IDEM_SIGHT_LATEST);

	for (int i = 1; i < body->naccounts; i++)
	{
		if (is_account(call, body, payment, body->accounts[i].value) &&
			!is_account(call, body, payment, body->accounts[0].value))
			return body->accounts[i];
	}
	return body->accounts[0];
}

/* Go on as its tenant */
static void
route(IdemCall *call, Body *body)
{
	NullableDatum tenant_id = find_tenant(call, body);

	body->said.account = body->accounts[0];
	if (tenant_id.isnull)
	{
		call->tenant_id = CStringGetTextDatum(UNROUTED_TENANT);
		return;
	}
	call->tenant_id = tenant_id.value;
	notification_note_route(call, &body->said, tenant_id.value);
	body->said.account = choose_account(call, body);
}


/* ---------- the functions ---------- */

/* The column behind those of idem_receive_notification */
#define OUT_TENANT_ID 6

static Datum
receive(FunctionCallInfo fcinfo, const char *channel, BodyReader read)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	Body		body;
	Notification *said = &body.said;

	memset(&body, 0, sizeof(body));
	for (int i = 0; i < BODY_MAX_ACCOUNTS; i++)
		body.accounts[i] = IDEM_NULL;
	*said = notification_of_nothing();
	said->channel = CStringGetTextDatum(channel);
	said->payload = idem_arg(call, 0);

	if (said->payload.isnull || !JB_ROOT_IS_OBJECT(DatumGetJsonbP(said->payload.value)))
		said->problem = "It is no object.";
	else
		said->problem = read(&DatumGetJsonbP(said->payload.value)->root, &body);

	/* its id stays free for the same, should it come readable */
	if (said->problem != NULL)
		said->notify_id = IDEM_NULL;
	route(call, &body);
	idem_put(call, OUT_TENANT_ID, call->tenant_id);
	return notification_leave(call, said);
}

/*
 * idem_alipay_notification(body)
 *	 -> the row of idem_receive_notification, and tenant_id
 */
PG_FUNCTION_INFO_V1(idem_alipay_notification);
Datum
idem_alipay_notification(PG_FUNCTION_ARGS)
{
	return receive(fcinfo, "alipay", read_alipay);
}

/*
 * idem_wechat_notification(body)
 *	 -> the row of idem_receive_notification, and tenant_id
 */
PG_FUNCTION_INFO_V1(idem_wechat_notification);
Datum
idem_wechat_notification(PG_FUNCTION_ARGS)
{
	return receive(fcinfo, "wechat", read_wechat);
}

/*
 * idem_stripe_event(body)
 *	 -> the row of idem_receive_notification, and tenant_id
 */
PG_FUNCTION_INFO_V1(idem_stripe_event);
Datum
idem_stripe_event(PG_FUNCTION_ARGS)
{
	return receive(fcinfo, "stripe", read_stripe);
}
