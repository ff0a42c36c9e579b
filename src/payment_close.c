/*-------------------------------------------------------------------------
 * payment_close.c
 *	  Closing a payment, in two phases.
 *
 * A payment that was submitted can be paid at the channel at any moment, so
 * it cannot simply be declared closed: the customer may be typing his
 * password.  Phase one moves it to closing, which still holds the order's
 * slot; then the caller closes it at the channel; phase two tells what the
 * channel said.  Money that arrives meanwhile wins, since confirm and every
 * function here lock the payment's row.
 *
 * Even "closed" is only the channel's word.  So each closed payment is looked
 * at once more, and money for it that arrives still is late, never lost.
 *-------------------------------------------------------------------------
 */
#include "order.h"
#include "payment_close.h"
#include "receipt.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"

/* When to ask the channel again about what it did not know */
#define CHECK_AGAIN_US (60 * USECS_PER_SEC)

static IdemQuery burn_key = IDEM_QUERY(
	"INSERT INTO @schema@.idem_payment_key (tenant_id, request_key, created_at)"
	" VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, TIMESTAMPTZOID);


/* ---------- the moves ---------- */

static NullableDatum
moment(TimestampTz at)
{
	return IDEM_VALUE(TimestampTzGetDatum(at));
}

/* The first moment at which the channel's "no such payment" is proof */
static TimestampTz
grace_ends_at(TimestampTz expires_at)
{
	return expires_at + (int64) idem_close_grace_s * USECS_PER_SEC;
}

NullableDatum
payment_last_check_at(IdemCall *call, const Payment *payment)
{
	TimestampTz last = call->now;

	if (!payment->expires_at.isnull)
		last = Max(last, DatumGetTimestampTz(payment->expires_at.value));
	return moment(grace_ends_at(last));
}

void
payment_begin_closing(IdemCall *call, Payment *payment)
{
	payment->next_check_at = moment(call->now + CHECK_AGAIN_US);
	payment_move(call, payment, PAYMENT_CLOSING);
}

void
payment_give_up(IdemCall *call, Payment *payment)
{
	if (payment->submitted_at.isnull)
	{
		payment->next_check_at = IDEM_NULL;
		payment_move(call, payment, PAYMENT_CLOSED);
	}
	else if (payment->status == PAYMENT_PENDING)
		payment_begin_closing(call, payment);
}

/*
 * The payment: as it was seen, where the outcomes have an answer for it, else
 * locked.  NULL: the lock was busy.  Errors: ID006.
 */
static Payment *
find_payment(IdemCall *call, Datum payment_no, StatusOutcomes outcomes)
{
	Payment    *payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);

	if (payment != NULL && outcomes[payment->status] == NULL)
		payment = payment_lock(call, payment_no);
	if (payment == NULL && !call->busy)
		payment_not_found(payment_no);
	return payment;
}

Datum
payment_leave(IdemCall *call, const Payment *payment, const char *outcome)
{
	if (payment != NULL)
	{
		idem_put_text(call, 1, payment_status_names[payment->status]);
		idem_put(call, 2, Int32GetDatum(payment->version));
	}
	return idem_leave(call, outcome);
}


/*
 * The payment that the first two arguments name, with a reason, as above, and
 * what its status alone decides; NULL: nothing.
 */
static const char *
judge_named(IdemCall *call, StatusOutcomes outcomes, Payment **payment)
{
	idem_because(call, idem_arg(call, 2));
	*payment = find_payment(call, idem_arg_key(call, 1), outcomes);
	return *payment == NULL ? "in_progress" : outcomes[(*payment)->status];
}


/* ---------- begin ---------- */

static StatusOutcomes begin_outcomes = {
	[PAYMENT_PENDING] = NULL,
	[PAYMENT_CLOSING] = "already_closing",
	[PAYMENT_REVIEW] = "refused",
	[PAYMENT_PAID] = "already_paid",
	[PAYMENT_PAID_LATE] = "refused",
	[PAYMENT_FAILED] = "refused",
	[PAYMENT_CLOSED] = "already_closed"
};

/*
 * idem_begin_close(tenant_id, payment_no, reason)
 *	 -> (outcome, status, version)
 *
 * Outcomes: closing, already_closing, already_closed, already_paid, refused.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_begin_close);
Datum
idem_begin_close(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Payment    *payment;
	const char *outcome = judge_named(call, begin_outcomes, &payment);

	if (outcome == NULL)
	{
		payment_begin_closing(call, payment);
		outcome = "closing";
	}
	return payment_leave(call, payment, outcome);
}


/* ---------- finish ---------- */

/* What the channel said, in the order of close_results */
typedef enum CloseResult
{
	RESULT_CLOSED,
	RESULT_ALREADY_PAID,
	RESULT_NOT_EXIST,
	RESULT_REFUSED,
	RESULT_UNKNOWN
} CloseResult;

static const char *const close_results[] = {
	"closed", "already_paid", "not_exist", "refused", "unknown"
};

/* What becomes of the payment */
typedef struct Verdict
{
	const char *outcome;
	PaymentStatus to;
	NullableDatum check_at;
} Verdict;

static CloseResult
arg_close_result(IdemCall *call, int n)
{
	const char *word = idem_arg_word(call, n);

	for (size_t i = 0; i < lengthof(close_results); i++)
	{
		if (strcmp(word, close_results[i]) == 0)
			return (CloseResult) i;
	}
	idem_bad_argument(call, n, "It is one of closed, already_paid, not_exist, refused, unknown.");
}

/* The channel does not know the payment: true only once it cannot come any more */
static Verdict
judge_not_exist(IdemCall *call, const Payment *payment)
{
	TimestampTz due;

	if (payment->expires_at.isnull)
		return (Verdict) {"kept", PAYMENT_CLOSING, moment(grace_ends_at(call->now))};
	due = grace_ends_at(DatumGetTimestampTz(payment->expires_at.value));
	if (call->now < due)
		return (Verdict) {"kept", PAYMENT_CLOSING, moment(due)};
	return (Verdict) {"closed", PAYMENT_CLOSED, payment_last_check_at(call, payment)};
}

/* The channel would not close: the payment lives on, if it may still be paid */
static Verdict
judge_refused(IdemCall *call, const Payment *payment, const Order *order)
{
	if (order_is_payable(order, call->now) &&
		receipt_look_applied(call, payment->order_id, payment->purchase_no,
							 IDEM_SIGHT_LATEST) == NULL)
		return (Verdict) {"reopened", PAYMENT_PENDING, moment(call->now + CHECK_AGAIN_US)};
	return (Verdict) {"kept", PAYMENT_CLOSING, moment(call->now)};
}

/* What the channel's word means for a locked payment in closing */
static Verdict
judge_closing(IdemCall *call, const Payment *payment, const Order *order, CloseResult result)
{
	switch (result)
	{
		case RESULT_CLOSED:
			return (Verdict) {"closed", PAYMENT_CLOSED, payment_last_check_at(call, payment)};
		case RESULT_ALREADY_PAID:
			return (Verdict) {"kept", PAYMENT_CLOSING, moment(call->now)};
		case RESULT_NOT_EXIST:
			return judge_not_exist(call, payment);
		case RESULT_REFUSED:
			return judge_refused(call, payment, order);
		case RESULT_UNKNOWN:
			break;
	}
	return (Verdict) {"kept", PAYMENT_CLOSING, moment(call->now + CHECK_AGAIN_US)};
}

/* The same for a payment in any state */
static Verdict
judge(IdemCall *call, const Payment *payment, const Order *order, CloseResult result)
{
	switch (payment->status)
	{
		case PAYMENT_CLOSING:
			return judge_closing(call, payment, order, result);
		case PAYMENT_PAID:
		case PAYMENT_PAID_LATE:
			return (Verdict) {"paid_wins", payment->status, payment->next_check_at};
		case PAYMENT_CLOSED:
			if (result == RESULT_ALREADY_PAID)
				return (Verdict) {"kept", PAYMENT_CLOSED, moment(call->now)};
			return (Verdict) {"already_closed", PAYMENT_CLOSED, payment->next_check_at};
		case PAYMENT_PENDING:
		case PAYMENT_REVIEW:
		case PAYMENT_FAILED:
			break;
	}
	return (Verdict) {"refused", payment->status, payment->next_check_at};
}

/* Are both due already, or due at the same moment, or never? */
static bool
same_check(IdemCall *call, NullableDatum a, NullableDatum b)
{
	TimestampTz x = DatumGetTimestampTz(a.value);
	TimestampTz y = DatumGetTimestampTz(b.value);

	if (a.isnull || b.isnull)
		return a.isnull == b.isnull;
	return x == y || (x <= call->now && y <= call->now);
}

/* Write the verdict down, if it changes anything */
static void
carry_out(IdemCall *call, Payment *payment, const Verdict *verdict)
{
	if (verdict->to == payment->status &&
		same_check(call, payment->next_check_at, verdict->check_at))
		return;
	payment->next_check_at = verdict->check_at;
	payment_move(call, payment, verdict->to);
}

/*
 * Carry out a verdict that ends with the order expired, unless another payment
 * of it is active.  Whether one is can be said only under the order's name.
 * false: a rival was met, nothing is written.
 */
static bool
carry_out_and_expire(IdemCall *call, Payment *payment, Order *order, const Verdict *verdict)
{
	Payment    *active;

	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, order->order_id);
	active = payment_look_active(call, order->order_id, IDEM_SIGHT_DIRTY);
	if (!TransactionIdIsValid(call->rival))
	{
		carry_out(call, payment, verdict);
		if (active == NULL || idem_same_text(active->payment_no, payment->payment_no))
			order_move(call, order, ORDER_EXPIRED);
		idem_unlock_names(call);
		return true;
	}
	idem_unlock_names(call);
	return false;
}

/*
 * Lock the order's row, where it matters and there is one, and the payment;
 * judge; carry out.  NULL: a rival was in the way and is gone, try again.
 */
static const char *
try_finish(IdemCall *call, Payment **payment, CloseResult result, bool expire_order)
{
	Order	   *order = NULL;
	Payment    *locked = NULL;
	Verdict		verdict;

	if (expire_order || result == RESULT_REFUSED)
		order = order_lock(call, (*payment)->order_id);
	if (!call->busy)
		locked = payment_lock(call, (*payment)->payment_no);
	if (locked == NULL)
		return "in_progress";
	*payment = locked;

	verdict = judge(call, locked, order, result);
	if (expire_order && verdict.to == PAYMENT_CLOSED &&
		order != NULL && order->status == ORDER_PENDING)
	{
		if (!carry_out_and_expire(call, locked, order, &verdict))
			return idem_await_rival(call) ? NULL : "in_progress";
	}
	else
		carry_out(call, locked, &verdict);
	return verdict.outcome;
}

/* Is there anything to do for a payment as it was seen? */
static bool
is_finished(IdemCall *call, const Payment *payment, CloseResult result, bool expire_order)
{
	Order	   *order;

	switch (payment->status)
	{
		case PAYMENT_PENDING:
		case PAYMENT_CLOSING:
			return false;
		case PAYMENT_CLOSED:
			if (result == RESULT_ALREADY_PAID)
				return false;
			order = expire_order ? order_look(call, payment->order_id, IDEM_SIGHT_LATEST) : NULL;
			return order == NULL || order->status != ORDER_PENDING;
		case PAYMENT_REVIEW:
		case PAYMENT_PAID:
		case PAYMENT_PAID_LATE:
		case PAYMENT_FAILED:
			break;
	}
	return true;
}

/*
 * idem_finish_close(tenant_id, payment_no, result, expire_order)
 *	 -> (outcome, status, version)
 *
 * Outcomes: closed, paid_wins, kept, reopened, already_closed, refused.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_finish_close);
Datum
idem_finish_close(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		payment_no = idem_arg_key(call, 1);
	CloseResult result = arg_close_result(call, 2);
	bool		expire_order = idem_arg_bool(call, 3);
	Payment    *payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	const char *outcome;

	if (payment == NULL)
		payment_not_found(payment_no);

	if (is_finished(call, payment, result, expire_order))
		outcome = judge(call, payment, NULL, result).outcome;
	else
	{
		while ((outcome = try_finish(call, &payment, result, expire_order)) == NULL)
			CHECK_FOR_INTERRUPTS();
	}
	if (strcmp(outcome, "in_progress") == 0)
		return idem_leave(call, outcome);
	return payment_leave(call, payment, outcome);
}


/* ---------- close at once ---------- */

static StatusOutcomes close_outcomes = {
	[PAYMENT_PENDING] = NULL,
	[PAYMENT_CLOSING] = NULL,
	[PAYMENT_REVIEW] = "refused",
	[PAYMENT_PAID] = "already_paid",
	[PAYMENT_PAID_LATE] = "refused",
	[PAYMENT_FAILED] = "refused",
	[PAYMENT_CLOSED] = "already_closed"
};

/*
 * idem_close_payment(tenant_id, payment_no, reason)
 *	 -> (outcome, status, version)
 *
 * Outcomes: closed, already_closed, already_paid, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_close_payment);
Datum
idem_close_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Payment    *payment;
	const char *outcome = judge_named(call, close_outcomes, &payment);

	if (outcome == NULL && !payment->submitted_at.isnull)
		outcome = "refused";
	if (outcome == NULL)
	{
		payment_give_up(call, payment);
		outcome = "closed";
	}
	return payment_leave(call, payment, outcome);
}


/* ---------- cancel a request key ---------- */

/*
 * What becomes of a payment whose key is cancelled; closing is judged under
 * lock, since it may never have been submitted.
 */
static StatusOutcomes cancel_outcomes = {
	[PAYMENT_PENDING] = NULL,
	[PAYMENT_CLOSING] = NULL,
	[PAYMENT_REVIEW] = "in_review",
	[PAYMENT_PAID] = "already_paid",
	[PAYMENT_PAID_LATE] = "already_paid",
	[PAYMENT_FAILED] = "closed",
	[PAYMENT_CLOSED] = "closed"
};

/* Give up the payment that a key led to; returns the outcome */
static const char *
cancel_payment(IdemCall *call, Datum payment_no)
{
	Payment    *payment = find_payment(call, payment_no, cancel_outcomes);
	const char *outcome;

	if (payment == NULL)
		return "in_progress";
	outcome = cancel_outcomes[payment->status];
	if (outcome != NULL)
		return outcome;

	payment_give_up(call, payment);
	if (payment->status == PAYMENT_CLOSING)
		idem_put(call, 1, payment->payment_no);
	return payment_status_names[payment->status];
}

/* Make sure that the call that used the key, should it still arrive, makes nothing */
static bool
burn(IdemCall *call, Datum request_key)
{
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(request_key),
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	return idem_run(call, &burn_key, args) == 1;
}

/*
 * The payment that a request key made or was bound to; NULL: it was burned.
 * false: nobody has used the key.
 */
static bool
find_key(IdemCall *call, Datum request_key, IdemSight sight, NullableDatum *payment_no)
{
	Datum		keys[] = {call->tenant_id, request_key};
	Payment    *made = payment_look_by_key(call, request_key, sight);
	IdemRow    *row;

	if (made != NULL)
	{
		*payment_no = IDEM_VALUE(made->payment_no);
		return true;
	}
	row = idem_look(call, &payment_key_by_key, keys, lengthof(keys), sight);
	if (row != NULL)
		*payment_no = IDEM_NULLABLE(row, PAYMENT_KEY_PAYMENT_NO);
	return row != NULL;
}

/*
 * One attempt to burn a key that nobody has used.  NULL: look again.
 */
static const char *
try_burn(IdemCall *call, Datum request_key)
{
	NullableDatum payment_no;
	const char *outcome = NULL;
	bool		found;

	idem_lock_name(call, IDEM_NAME_REQUEST_KEY, call->tenant_id, request_key);
	found = find_key(call, request_key, IDEM_SIGHT_DIRTY, &payment_no);
	if (TransactionIdIsValid(call->rival))
	{
		idem_unlock_names(call);
		return idem_await_rival(call) ? NULL : "in_progress";
	}
	if (!found && burn(call, request_key))
		outcome = "burned";
	idem_unlock_names(call);
	return outcome;
}

/*
 * idem_cancel_request_key(tenant_id, request_key, reason)
 *	 -> (outcome, payment_no)
 *
 * Outcomes: closing, closed, burned, already_paid, in_review.
 */
PG_FUNCTION_INFO_V1(idem_cancel_request_key);
Datum
idem_cancel_request_key(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		request_key = idem_arg_key(call, 1);
	IdemSight	sight = IDEM_SIGHT_FIRST;
	NullableDatum payment_no;
	const char *outcome;

	idem_because(call, idem_arg(call, 2));
	while (!find_key(call, request_key, sight, &payment_no))
	{
		outcome = try_burn(call, request_key);
		if (outcome != NULL)
			return idem_leave(call, outcome);
		sight = IDEM_SIGHT_LATEST;
		CHECK_FOR_INTERRUPTS();
	}
	if (payment_no.isnull)
		return idem_leave(call, "burned");
	outcome = cancel_payment(call, payment_no.value);
	return idem_leave(call, outcome);
}
