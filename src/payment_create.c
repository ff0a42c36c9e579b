/*-------------------------------------------------------------------------
 * payment_create.c
 *	  idem_create_payment: at most one payable payment for an order.
 *
 * Look, and most calls are answered.  Otherwise lock the names (token, request
 * key, order, the caller's own number), look dirtily, decide again, write,
 * unlock.  A rival that is still open is awaited without any lock, and the
 * decision starts anew.  See look.c for the protocol and payment_decide.c for
 * the decision.  A call with a token begins with the second half of that.
 *
 * While names are locked, rows are locked only if nobody else holds them.
 *-------------------------------------------------------------------------
 */
#include "payment_create.h"

#include "key.h"

#include "access/xact.h"
#include "catalog/pg_type.h"

const char *const create_outcome_names[] = {
	"created", "replayed", "existing", "already_paid", "other_channel", "closing",
	"in_review", "order_closed", "burned", "in_progress", "error"
};

static IdemQuery bind_key = IDEM_QUERY(
	"INSERT INTO @schema@.idem_payment_key"
	" (tenant_id, request_key, payment_no, repurchase, asked_payment_no, created_at)"
	" VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, TEXTOID, BOOLOID, TEXTOID, TIMESTAMPTZOID);

/* Columns of the answer, from the first one on */
enum
{
	OUTCOME, PAYMENT_NO, STATUS, ORDER_ID, PURCHASE_NO, AMOUNT, CURRENCY, REQUEST_KEY,
	CHANNEL, ACCOUNT, CHANNEL_DATA, VERSION, CREATED_AT, EXPIRES_AT, BLOCKING_NO
};

/*
 * The payment that a decision creates, in memory; number is for one to which
 * the caller gave none.
 */
Payment *
create_payment_of(IdemCall *call, const CreateRequest *request, const CreateScene *scene,
				  const CreateDecision *decision, Datum number)
{
	Payment    *payment = palloc0(sizeof(Payment));

	payment->payment_no = request->payment_no.isnull ? number : request->payment_no.value;
	payment->order_id = request->order_id;
	payment->purchase_no = decision->purchase_no;
	payment->amount = request->amount;
	payment->currency = request->currency;
	payment->status = PAYMENT_PENDING;
	payment->version = 1;
	payment->request_key = request->request_key;
	payment->repurchase = request->repurchase;
	payment->channel = request->channel;
	payment->account = request->account;
	payment->channel_data = IDEM_NULL;
	payment->metadata = request->metadata;
	payment->created_at = call->now;
	payment->expires_at = request->lifetime_us == 0 ? IDEM_NULL :
		IDEM_VALUE(TimestampTzGetDatum(call->now + request->lifetime_us));
	payment->submitted_at = IDEM_NULL;
	payment->next_check_at = IDEM_NULL;

	/* not later than the order's */
	if (scene->order != NULL && scene->order->status == ORDER_PENDING &&
		!scene->order->expires_at.isnull &&
		(payment->expires_at.isnull ||
		 DatumGetTimestampTz(payment->expires_at.value) >
		 DatumGetTimestampTz(scene->order->expires_at.value)))
		payment->expires_at = scene->order->expires_at;
	return payment;
}

/* Bind the request key to a payment that is there already */
static bool
attach_key(IdemCall *call, const CreateRequest *request, const Payment *payment)
{
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		request->request_key,
		IDEM_VALUE(payment->payment_no),
		IDEM_VALUE(BoolGetDatum(request->repurchase)),
		request->payment_no,
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	return idem_run(call, &bind_key, args) == 1;
}

/*
 * Consume the token by this payment; false: somebody else has used it, or is
 * just doing so.
 */
static bool
consume_token(IdemCall *call, const CreateRequest *request, const Payment *payment)
{
	TokenUse	use = {
		.payment_no = IDEM_VALUE(payment->payment_no),
		.repurchase = request->repurchase,
		.asked_payment_no = request->payment_no
	};

	return token_use(call, request->token, &use);
}

/*
 * The slot's holder ran out of time: close it, or, as the channel may know of
 * it, put it into closing.  false: somebody else is at it.
 */
static bool
retire(IdemCall *call, CreateDecision *decision)
{
	IdemRow    *row = idem_try_lock(call, &payment_by_no, &decision->expired->tid);
	Payment    *expired = payment_of_row(row);
	bool		submitted;

	if (expired == NULL || expired->status != PAYMENT_PENDING)
		return false;
	submitted = !expired->submitted_at.isnull;
	if (submitted != (decision->outcome == CREATE_CLOSING))
		return false;
	if (submitted)
	{
		decision->payment = expired;
		expired->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now));
	}
	idem_because(call, IDEM_TEXT("expired"));
	payment_move(call, expired, submitted ? PAYMENT_CLOSING : PAYMENT_CLOSED);
	idem_because(call, IDEM_NULL);
	return true;
}

/*
 * Money that came before will move the order, whose row is locked before any
 * payment's.  false: somebody else holds it.
 */
static bool
take_order(IdemCall *call, CreateScene *scene)
{
	IdemRow    *row;

	if (!scene->orphans || scene->order == NULL)
		return true;
	row = idem_try_lock(call, &order_by_id, &scene->order->tid);
	if (row == NULL)
		return false;
	scene->order = order_of_row(row);
	return true;
}

/*
 * Hand over the money that came before.  Where that leaves nothing to be paid,
 * the answer is another than created, and the token was not used.
 */
static void
adopt(IdemCall *call, CreateRequest *request, CreateScene *scene, CreateDecision *decision)
{
	Payment    *payment = decision->payment;

	receipt_adopt_orphans(call, payment, scene->order);
	if (payment->status == PAYMENT_PAID)
		decision->outcome = CREATE_ALREADY_PAID;
	else if (payment->status == PAYMENT_REVIEW)
		decision->outcome = CREATE_IN_REVIEW;
	if (request->token != NULL && decision->outcome != CREATE_CREATED)
		token_give_back(call, request->token);
}

/*
 * Create, and hand over the money that came before; false: begin again.  From
 * the insert on others meet the payment, and the money may have to be waited
 * for: no name is needed any more, and none may be held.
 */
static bool
create(IdemCall *call, CreateRequest *request, CreateScene *scene, CreateDecision *decision)
{
	Datum		number = request->payment_no.isnull ? idem_make_no(call) : (Datum) 0;
	Payment    *payment = create_payment_of(call, request, scene, decision, number);

	if (request->token != NULL && !consume_token(call, request, payment))
		return false;
	if (!payment_insert(call, payment))
	{
		if (request->token != NULL)
			token_give_back(call, request->token);
		return false;
	}
	idem_unlock_names(call);
	decision->payment = payment;
	if (scene->orphans)
		adopt(call, request, scene, decision);
	return true;
}

/*
 * Do what was decided; false: the scene has changed, begin again.  What may
 * fail comes before what is written.
 */
static bool
act(IdemCall *call, CreateRequest *request, CreateScene *scene, CreateDecision *decision)
{
	if (decision->outcome == CREATE_CREATED && !take_order(call, scene))
		return false;
	if (decision->expired != NULL && !retire(call, decision))
		return false;
	if (decision->outcome == CREATE_CREATED)
		return create(call, request, scene, decision);
	if (decision->bind && !attach_key(call, request, decision->payment))
		return false;
	return !decision->consume || consume_token(call, request, decision->payment);
}

/* Lock the names that the decision depends on, in the order of look.c */
static void
lock_names(IdemCall *call, const CreateRequest *request)
{
	if (request->token != NULL && !request->token_is_new)
		token_lock_name(call, request->token);
	if (!request->request_key.isnull)
		idem_lock_name(call, IDEM_NAME_REQUEST_KEY, call->tenant_id, request->request_key.value);
	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, request->order_id);
	if (!request->payment_no.isnull)
		idem_lock_name(call, IDEM_NAME_PAYMENT, call->tenant_id, request->payment_no.value);
}

/*
 * Decide by what a dirty look shows; false: a rival is in the way, or the token
 * was not looked at and this is not just the first payment of its order.
 */
static bool
decide_under_names(IdemCall *call, const CreateRequest *request, CreateScene *scene,
				   CreateDecision *decision)
{
	create_gather(call, request, IDEM_SIGHT_DIRTY, scene);
	if (TransactionIdIsValid(call->rival))
		return false;
	create_decide(call, request, scene, decision);
	return !request->token_is_new ||
		(decision->outcome == CREATE_CREATED && scene->latest == NULL);
}

/* Lock the names, decide, act, unlock; false: nothing was done */
static bool
attempt(IdemCall *call, CreateRequest *request, CreateDecision *decision)
{
	CreateScene scene;
	bool		done;

	lock_names(call, request);
	call->now = GetCurrentTimestamp();
	done = decide_under_names(call, request, &scene, decision) &&
		act(call, request, &scene, decision);
	idem_unlock_names(call);
	return done;
}

/*
 * Nearly every call that brings a token is the first one to bring it, for an
 * order that has no payment.  So begin where those end, by inserting the token,
 * without a look at it and without its name.  false: it is not that simple, and
 * nothing was done.  Under REPEATABLE READ a repetition must not meet the dirty
 * look, which would send it back with 40001.
 */
static bool
create_at_once(IdemCall *call, CreateRequest *request, CreateDecision *decision)
{
	bool		done;

	if (request->token == NULL || XactReadOnly || IsolationUsesXactSnapshot())
		return false;
	request->token_is_new = true;
	done = attempt(call, request, decision);
	request->token_is_new = false;
	call->rival = InvalidTransactionId;
	return done;
}

/*
 * Create one payment, or find out why not.
 */
void
create_one(IdemCall *call, CreateRequest *request, CreateDecision *decision)
{
	CreateScene scene;
	int			pause_ms = 1;

	if (create_at_once(call, request, decision))
		return;
	create_gather(call, request, IDEM_SIGHT_FIRST, &scene);
	create_decide(call, request, &scene, decision);
	if (!create_writes(decision))
		return;

	while (!attempt(call, request, decision))
	{
		if (TransactionIdIsValid(call->rival) ?
			!idem_await_rival(call) : !idem_pause(call, &pause_ms))
		{
			memset(decision, 0, sizeof(CreateDecision));
			decision->outcome = CREATE_IN_PROGRESS;
			return;
		}
	}
}

/* May the caller act on the payment that the answer shows? */
static bool
allows_act(const CreateDecision *decision)
{
	switch (decision->outcome)
	{
		case CREATE_CREATED:
		case CREATE_EXISTING:
		case CREATE_REPLAYED:
			return decision->payment->status == PAYMENT_PENDING;
		default:
			return false;
	}
}

/*
 * Put the answer together, in the columns from first_column on.
 */
void
create_show(IdemCall *call, int first_column, const CreateRequest *request,
			const CreateDecision *decision)
{
	const Payment *payment = decision->payment;
	int			c = first_column;

	idem_put_text(call, c + OUTCOME, create_outcome_names[decision->outcome]);
	idem_put(call, c + ORDER_ID, request->order_id);
	idem_put_nullable(call, c + REQUEST_KEY, request->request_key);
	if (payment == NULL)
		return;

	if (allows_act(decision))
	{
		idem_put(call, c + PAYMENT_NO, payment->payment_no);
		idem_put_nullable(call, c + CHANNEL_DATA, payment->channel_data);
	}
	else
		idem_put(call, c + BLOCKING_NO, payment->payment_no);
	idem_put_text(call, c + STATUS, payment_status_names[payment->status]);
	idem_put(call, c + PURCHASE_NO, Int32GetDatum(payment->purchase_no));
	idem_put(call, c + AMOUNT, Int64GetDatum(payment->amount));
	idem_put(call, c + CURRENCY, payment->currency);
	if (request->request_key.isnull)
		idem_put_nullable(call, c + REQUEST_KEY, payment->request_key);
	idem_put_nullable(call, c + CHANNEL, payment->channel);
	idem_put_nullable(call, c + ACCOUNT, payment->account);
	idem_put(call, c + VERSION, Int32GetDatum(payment->version));
	idem_put(call, c + CREATED_AT, TimestampTzGetDatum(payment->created_at));
	idem_put_nullable(call, c + EXPIRES_AT, payment->expires_at);
}

/*
 * What is wrong with a number that the caller chose, as channels see it;
 * NULL: nothing.
 */
const char *
create_bad_number(Datum payment_no)
{
	text	   *number = DatumGetTextPP(payment_no);
	int			length = VARSIZE_ANY_EXHDR(number);
	static const char allowed[] =
		"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-";

	if (length < 6 || length > 32)
		return "A payment number has 6 to 32 characters.";
	for (int i = 0; i < length; i++)
	{
		if (strchr(allowed, VARDATA_ANY(number)[i]) == NULL)
			return "A payment number is made of letters, digits, _ and -.";
	}
	return NULL;
}

/*
 * Read the request's token, after all that can be wrong with its other
 * arguments; false: it is unknown, as the decision says.
 */
bool
create_read_token(IdemCall *call, NullableDatum chars, CreateRequest *request,
				  CreateDecision *decision)
{
	request->token = NULL;
	request->token_is_new = false;
	if (chars.isnull)
		return true;
	request->token = token_read(call, CStringGetTextDatum(TOKEN_SCOPE_PAYMENT), chars.value);
	if (request->token == NULL)
		create_reject(decision, "It is unknown, or was issued for another tenant or scope.");
	return request->token != NULL;
}

static void
raise_error(const CreateDecision *decision)
{
	ereport(ERROR,
			(errcode(decision->sqlstate),
			 errmsg("%s", decision->message),
			 decision->detail != NULL ?
			 errdetail("%s", decision->detail) :
			 errdetail("The first field that differs is %s.", decision->differs),
			 errhint("%s", decision->hint)));
}

/* The arguments of idem_create_payment, by position */
enum
{
	ARG_TENANT_ID, ARG_ORDER_ID, ARG_AMOUNT, ARG_CURRENCY, ARG_REQUEST_KEY, ARG_REPURCHASE,
	ARG_CHANNEL, ARG_EXPIRES_IN, ARG_TOKEN, ARG_METADATA, ARG_WAIT, ARG_ACCOUNT, ARG_PAYMENT_NO
};

static void
read_request(IdemCall *call, CreateRequest *request)
{
	NullableDatum expires_at;

	request->order_id = idem_arg_key(call, ARG_ORDER_ID);
	request->amount = idem_arg_amount(call, ARG_AMOUNT, 1);
	request->currency = idem_arg_currency(call, ARG_CURRENCY);
	request->request_key = idem_arg_optional_key(call, ARG_REQUEST_KEY);
	request->repurchase = idem_arg_bool(call, ARG_REPURCHASE);
	request->channel = idem_arg_optional_key(call, ARG_CHANNEL);
	request->account = idem_arg_optional_key(call, ARG_ACCOUNT);
	request->payment_no = idem_arg_optional_key(call, ARG_PAYMENT_NO);
	expires_at = idem_arg_expiry(call, ARG_EXPIRES_IN);
	request->lifetime_us = expires_at.isnull ? 0 :
		DatumGetTimestampTz(expires_at.value) - call->now;
	request->metadata = idem_arg(call, ARG_METADATA);
	idem_arg_wait(call, ARG_WAIT);

	if (!request->payment_no.isnull && create_bad_number(request->payment_no.value) != NULL)
		idem_bad_argument(call, ARG_PAYMENT_NO, create_bad_number(request->payment_no.value));
	if (request->repurchase && request->request_key.isnull)
		idem_bad_argument(call, ARG_REPURCHASE,
						  "A repurchase needs a request_key, so that it can be repeated.");
}

/*
 * idem_create_payment(tenant_id, order_id, amount, currency, request_key,
 *					   repurchase, channel, expires_in, token, metadata, wait,
 *					   account, payment_no)
 *		-> (outcome, payment_no, status, ..., blocking_no)
 *
 * Creates the payment of an order, or tells which one stands in its place.
 * Errors: 22004, 22023, ID001, ID002.
 */
PG_FUNCTION_INFO_V1(idem_create_payment);
Datum
idem_create_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	CreateRequest request;
	CreateDecision decision;

	read_request(call, &request);
	if (create_read_token(call, idem_arg(call, ARG_TOKEN), &request, &decision))
		create_one(call, &request, &decision);
	if (decision.outcome == CREATE_ERROR)
		raise_error(&decision);
	create_show(call, 0, &request, &decision);
	return idem_leave(call, create_outcome_names[decision.outcome]);
}
