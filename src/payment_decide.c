/*-------------------------------------------------------------------------
 * payment_decide.c
 *	  What a request to create a payment is to be answered.
 *
 * The decision is made twice from the same rules: first from what the
 * statement's snapshot shows, where most repetitions end; then, if it calls
 * for a write, under the names' locks from what a dirty look shows.
 *
 * The order in which the second look reads matters.  Whoever pays does not
 * hold the order's name while he moves the payment, but he inserted the
 * receipt under it.  So the active payment is looked at before the receipt: a
 * payment that has just left the slot as paid has its receipt by then.
 *
 * A request key and a token are two memories of the same kind.  A request that
 * brings both is a repetition if either remembers it, and what each of them
 * remembers has to be the same payment.
 *-------------------------------------------------------------------------
 */
#include "payment_create.h"

/*
 * What the request key led to: the payment that it made, in one look, else
 * what it was bound to.  false: nothing, it is new.
 */
static bool
gather_by_key(IdemCall *call, Datum request_key, IdemSight sight, CreateScene *scene)
{
	Datum		keys[] = {call->tenant_id, request_key};
	NullableDatum payment_no;

	if (scene->by_key == NULL)
		scene->by_key = payment_look_by_key(call, request_key, sight);
	if (scene->by_key != NULL)
		return true;
	scene->key = idem_look(call, &payment_key_by_key, keys, 2, sight);
	if (scene->key == NULL)
		return false;
	payment_no = IDEM_NULLABLE(scene->key, PAYMENT_KEY_PAYMENT_NO);
	if (!payment_no.isnull)
		scene->by_key = payment_look(call, payment_no.value, sight);
	return true;
}

/* What the token led to, if it was used */
static void
gather_by_token(IdemCall *call, const Token *token, IdemSight sight, CreateScene *scene)
{
	scene->use = token_look(call, token, sight);
	if (scene->use != NULL && !scene->use->payment_no.isnull)
		scene->by_token = payment_look(call, scene->use->payment_no.value, sight);
}

/*
 * Is there nothing yet that a repetition would be answered by?  A token that
 * was not used says so alone, without one it takes a payment of this key or
 * order.  What was looked at stays in the scene.
 */
static bool
looks_new(IdemCall *call, const CreateRequest *request, CreateScene *scene)
{
	if (request->token != NULL)
		return scene->use == NULL;
	if (!request->request_key.isnull)
		scene->by_key = payment_look_by_key(call, request->request_key.value, IDEM_SIGHT_FIRST);
	if (scene->by_key == NULL)
		scene->latest = payment_look_latest(call, request->order_id, IDEM_SIGHT_FIRST);
	return scene->by_key == NULL && scene->latest == NULL;
}

/*
 * Look at everything that the decision depends on.  The first look is for
 * repetitions: a call that looks new ends it, and is decided by the second one.
 */
void
create_gather(IdemCall *call, const CreateRequest *request, IdemSight sight,
			  CreateScene *scene)
{
	Receipt    *applied;

	memset(scene, 0, sizeof(CreateScene));
	if (request->token != NULL && !request->token_is_new)
		gather_by_token(call, request->token, sight, scene);
	if (sight == IDEM_SIGHT_FIRST && looks_new(call, request, scene))
		return;
	if (!request->request_key.isnull &&
		gather_by_key(call, request->request_key.value, sight, scene))
		return;					/* known: nothing else counts */
	if (scene->use != NULL)
		return;					/* likewise */

	if (!request->payment_no.isnull)
	{
		scene->by_no = payment_look(call, request->payment_no.value, sight);
		scene->orphans = receipt_look_orphans(call, request->payment_no.value, sight);
	}

	scene->order = order_look(call, request->order_id, sight);
	if (scene->latest == NULL)
		scene->latest = payment_look_latest(call, request->order_id, sight);
	if (scene->latest == NULL)
		return;
	scene->active = payment_look_active(call, request->order_id, sight);
	applied = receipt_look_applied(call, request->order_id, scene->latest->purchase_no, sight);
	if (applied != NULL)
		scene->paid = payment_look(call, applied->payment_no.value, sight);
}

static void
conflict(CreateDecision *decision, const char *message, const char *differs, const char *hint)
{
	decision->outcome = CREATE_ERROR;
	decision->payment = NULL;
	decision->sqlstate = ERRCODE_IDEM_KEY_CONFLICT;
	decision->message = message;
	decision->differs = differs;
	decision->hint = hint;
}

/* The request's token is good for nothing: ID002 */
void
create_reject(CreateDecision *decision, const char *detail)
{
	memset(decision, 0, sizeof(CreateDecision));
	decision->outcome = CREATE_ERROR;
	decision->sqlstate = ERRCODE_IDEM_TOKEN_REJECTED;
	decision->message = "token was rejected";
	decision->detail = detail;
	decision->hint = "Issue a new one with idem_issue_token, of scope \"" TOKEN_SCOPE_PAYMENT "\".";
}

/* Do both name one, and not the same? */
static bool
contradict(NullableDatum a, NullableDatum b)
{
	return !a.isnull && !b.isnull && !idem_same_text(a.value, b.value);
}

/*
 * The first field in which a request differs from the first one of its key or
 * token, which asked for the payment as these say, in the order of the
 * documentation; NULL: none.
 */
static const char *
first_difference(const CreateRequest *request, const Payment *payment,
				 bool repurchase, NullableDatum asked)
{
	if (asked.isnull)
		asked = IDEM_VALUE(payment->payment_no);
	if (!idem_same_text(request->order_id, payment->order_id))
		return "order_id";
	if (request->amount != payment->amount)
		return "amount";
	if (!idem_same_text(request->currency, payment->currency))
		return "currency";
	if (request->repurchase != repurchase)
		return "repurchase";
	if (contradict(request->channel, payment->channel))
		return "channel";
	if (contradict(request->account, payment->account))
		return "account";
	if (contradict(request->payment_no, asked))
		return "payment_no";
	return NULL;
}

/* Was the request key used before, or burned? */
static bool
knows_key(const CreateScene *scene)
{
	return scene->key != NULL || scene->by_key != NULL;
}

/* The request key was used before: does it lead to what is asked for? */
static bool
agrees_with_key(const CreateRequest *request, const CreateScene *scene, CreateDecision *decision)
{
	const char *differs;

	decision->payment = scene->by_key;
	if (scene->by_key == NULL)
	{
		decision->outcome = CREATE_BURNED;
		return false;
	}
	if (scene->key == NULL)
		differs = first_difference(request, scene->by_key, scene->by_key->repurchase, IDEM_NULL);
	else
		differs = first_difference(request, scene->by_key,
								   DatumGetBool(IDEM_COLUMN(scene->key, PAYMENT_KEY_REPURCHASE)),
								   IDEM_NULLABLE(scene->key, PAYMENT_KEY_ASKED_PAYMENT_NO));
	if (differs != NULL)
		conflict(decision, "request key was used for another payment", differs,
				 "Use a new request_key for another payment.");
	return differs == NULL;
}

/* The token was used before: does it lead to what is asked for, as the key does? */
static bool
agrees_with_token(const CreateRequest *request, const CreateScene *scene, CreateDecision *decision)
{
	const char *differs = first_difference(request, scene->by_token, scene->use->repurchase,
										   scene->use->asked_payment_no);

	if (differs == NULL && scene->by_key != NULL &&
		!idem_same_text(scene->by_key->payment_no, scene->by_token->payment_no))
		differs = "token";
	decision->payment = scene->by_token;
	if (differs != NULL)
		conflict(decision, "token was used for another payment", differs,
				 "Use a new token for another payment.");
	return differs == NULL;
}

/*
 * The request key or the token was used before.  A key that comes with a used
 * token is bound to the token's payment, so that both lead to it from now on:
 * else the key could be cancelled as one that never made a payment.
 */
static void
decide_by_first(const CreateRequest *request, const CreateScene *scene, CreateDecision *decision)
{
	if (knows_key(scene) && !agrees_with_key(request, scene, decision))
		return;
	if (scene->use != NULL && !agrees_with_token(request, scene, decision))
		return;
	decision->outcome = CREATE_REPLAYED;
	decision->bind = !knows_key(scene) && !request->request_key.isnull;
}

/*
 * The token can be used, or was used for a payment, or there is none; false:
 * rejected.
 */
static bool
passes_token(IdemCall *call, const CreateRequest *request, const CreateScene *scene,
			 CreateDecision *decision)
{
	if (request->token == NULL || scene->by_token != NULL)
		return true;
	if (scene->use != NULL)
		create_reject(decision, "It was consumed without a payment.");
	else if (token_is_expired(request->token, call->now))
		create_reject(decision, "It has expired.");
	else
		return true;
	return false;
}

/* The slot is held by a pending payment that can still be paid */
static void
decide_by_pending(const CreateRequest *request, const Payment *active, CreateDecision *decision)
{
	if (request->amount != active->amount)
		conflict(decision, "order has an active payment of another amount", "amount",
				 "Close it with idem_begin_close, then create again.");
	else if (!idem_same_text(request->currency, active->currency))
		conflict(decision, "order has an active payment in another currency", "currency",
				 "Close it with idem_begin_close, then create again.");
	else if (contradict(request->channel, active->channel))
		decision->outcome = CREATE_OTHER_CHANNEL;
	else
	{
		decision->outcome = CREATE_EXISTING;
		decision->bind = !request->request_key.isnull;
		decision->consume = request->token != NULL;
	}
}

/* The slot is held */
static void
decide_by_active(IdemCall *call, const CreateRequest *request, const CreateScene *scene,
				 CreateDecision *decision)
{
	Payment    *active = scene->active;

	decision->payment = active;
	if (active->status == PAYMENT_REVIEW)
		decision->outcome = CREATE_IN_REVIEW;
	else if (active->status == PAYMENT_CLOSING)
		decision->outcome = CREATE_CLOSING;
	else if (!payment_is_expired(active, call->now))
		decide_by_pending(request, active, decision);
	else
	{
		decision->expired = active;
		if (!active->submitted_at.isnull)
			decision->outcome = CREATE_CLOSING;
		else
		{
			decision->outcome = CREATE_CREATED;
			decision->payment = NULL;
			decision->purchase_no = active->purchase_no;
		}
	}
}

/*
 * Is the wanted number taken?  Not by the very payment that this request is
 * about: then it is a repetition, and repetitions are answered.
 */
static bool
number_is_taken(const CreateRequest *request, const CreateScene *scene)
{
	const Payment *same = scene->active;

	if (scene->by_no == NULL)
		return false;
	if (scene->paid != NULL && !request->repurchase)
		same = scene->paid;
	return same == NULL || !idem_same_text(scene->by_no->payment_no, same->payment_no);
}

/* The wanted number is free, and the order row agrees; false: decided */
static bool
passes_order(IdemCall *call, const CreateRequest *request, const CreateScene *scene,
			 CreateDecision *decision)
{
	const Order *order = scene->order;

	if (number_is_taken(request, scene))
		conflict(decision, "payment number is taken by another payment", "payment_no",
				 "Choose another payment_no.");
	else if (order == NULL)
		return true;
	else if (request->amount != order->amount)
		conflict(decision, "order has another amount", "amount",
				 "Change the order with idem_update_order, or ask for its amount.");
	else if (!idem_same_text(request->currency, order->currency))
		conflict(decision, "order has another currency", "currency",
				 "Change the order with idem_update_order, or ask for its currency.");
	else if (!order_is_payable(order, call->now))
		decision->outcome = CREATE_ORDER_CLOSED;
	else
		return true;
	return false;
}

/*
 * Decide, by the order of precedence in docs/payment.md.
 */
void
create_decide(IdemCall *call, const CreateRequest *request, const CreateScene *scene,
			  CreateDecision *decision)
{
	memset(decision, 0, sizeof(CreateDecision));
	if (!passes_token(call, request, scene, decision))
		return;
	if (knows_key(scene) || scene->use != NULL)
		decide_by_first(request, scene, decision);
	else if (!passes_order(call, request, scene, decision))
		return;
	else if (scene->paid != NULL && !request->repurchase)
	{
		decision->outcome = CREATE_ALREADY_PAID;
		decision->payment = scene->paid;
	}
	else if (scene->active != NULL)
		decide_by_active(call, request, scene, decision);
	else
	{
		decision->outcome = CREATE_CREATED;
		decision->purchase_no = scene->latest == NULL ? 1 :
			scene->latest->purchase_no + (scene->paid != NULL ? 1 : 0);
	}
}

/*
 * Does the decision call for a write, and so for the second look?  A rejected
 * token does too: it may just have been used, and used wins over expired.
 */
bool
create_writes(const CreateDecision *decision)
{
	return decision->outcome == CREATE_CREATED ||
		decision->expired != NULL ||
		decision->bind ||
		decision->consume ||
		decision->sqlstate == ERRCODE_IDEM_TOKEN_REJECTED;
}
