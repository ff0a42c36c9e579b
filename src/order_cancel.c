/*-------------------------------------------------------------------------
 * order_cancel.c
 *	  Cancelling an order, with or without a row.
 *
 * What was cancelled must not be paid any more, and what was paid must go
 * back, whichever comes first.  So cancelling stands against everything that
 * can happen to an order:
 *
 * - confirm locks the order's row and all its payments; so do we, in the same
 *	 order.  First the money, then we: we see the applied receipt and refund it.
 *	 First we: the money finds a cancelled order and is late.
 * - create locks no row.  It works under the order's name, and so do we when
 *	 we write the order: we see its payment dirtily, or it sees our row.
 * - Without a row there is nothing to lock but the payments.  Whoever inserts
 *	 a row, a payment or a receipt does it under the name.
 *
 * Everything that can wait comes before the name, everything that is written
 * after it; a rival met under the name starts the attempt again.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "order.h"
#include "payment_close.h"
#include "refund.h"

#include "access/transam.h"
#include "miscadmin.h"

/* Columns of the result */
enum
{
	OUT_STATUS = 1, OUT_VERSION, OUT_CLOSING_PAYMENT_NO, OUT_REFUND_NO,
	OUT_REFUND_STATUS, OUT_REMAINDER
};

/* What a cancellation knows and holds locked */
typedef struct Cancel
{
	Datum		order_id;
	NullableDatum reason;
	Order	   *order;			/* NULL: no row */
	List	   *payments;		/* all of the order, ascending */
	Receipt    *applied;		/* what purchase 1 was paid with; NULL: nothing */
} Cancel;

/* By status; NULL: can be cancelled */
static const char *const cancel_outcomes[] = {
	[ORDER_PENDING] = NULL,
	[ORDER_PAID] = NULL,
	[ORDER_SHIPPED] = "refused",
	[ORDER_COMPLETED] = "refused",
	[ORDER_CANCELLED] = "already_cancelled",
	[ORDER_EXPIRED] = "refused",
	[ORDER_REFUNDED] = "refused"
};

/* Name a refund, as a handle only while it may be acted on */
static void
put_refund(IdemCall *call, const Refund *refund)
{
	if (refund == NULL)
		return;
	if (refund_allows_act(refund))
		idem_put(call, OUT_REFUND_NO, refund->refund_no);
	idem_put_text(call, OUT_REFUND_STATUS, refund_status_names[refund->status]);
}

static Datum
leave_with_order(IdemCall *call, const Order *order, const char *outcome)
{
	if (order != NULL)
	{
		idem_put_text(call, OUT_STATUS, order_status_names[order->status]);
		idem_put(call, OUT_VERSION, Int32GetDatum(order->version));
	}
	return idem_leave(call, outcome);
}

/* Answer a repetition with what became of the first call */
static Datum
leave_cancelled_before(IdemCall *call, const Order *order, IdemSight sight)
{
	Payment    *active = payment_look_active(call, order->order_id, sight);
	Receipt    *applied = receipt_look_applied(call, order->order_id, 1, sight);

	if (active != NULL && active->status == PAYMENT_CLOSING)
		idem_put(call, OUT_CLOSING_PAYMENT_NO, active->payment_no);
	if (applied != NULL)
	{
		put_refund(call, refund_look_automatic(call, applied->receipt_no));
		idem_put(call, OUT_REMAINDER, Int64GetDatum(refund_remainder(applied)));
	}
	return leave_with_order(call, order, "already_cancelled");
}

/*
 * Lock the order's payments and the receipt that paid it.  false: one of them
 * was busy.
 */
static bool
lock_money(IdemCall *call, Cancel *cancel)
{
	cancel->payments = payment_lock_order(call, cancel->order_id);
	if (call->busy)
		return false;
	cancel->applied = receipt_lock_applied(call, cancel->order_id, 1);
	return !call->busy;
}

/* The locked payment that holds the slot; NULL: none */
static Payment *
active_of(const Cancel *cancel)
{
	ListCell   *cell;

	foreach(cell, cancel->payments)
	{
		Payment    *payment = (Payment *) lfirst(cell);

		if (payment_is_active(payment))
			return payment;
	}
	return NULL;
}

/*
 * Has anything been born that we did not lock?  Asked under the order's name;
 * a rival still open counts.
 */
static bool
has_grown(IdemCall *call, const Cancel *cancel)
{
	Order	   *order = order_look(call, cancel->order_id, IDEM_SIGHT_DIRTY);
	Payment    *active = payment_look_active(call, cancel->order_id, IDEM_SIGHT_DIRTY);
	Receipt    *applied = receipt_look_applied(call, cancel->order_id, 1, IDEM_SIGHT_DIRTY);

	return TransactionIdIsValid(call->rival) ||
		(order == NULL) != (cancel->order == NULL) ||
		(active == NULL) != (active_of(cancel) == NULL) ||
		(applied == NULL) != (cancel->applied == NULL);
}

/*
 * The payment from which an order without a row takes amount and currency:
 * the one that paid purchase 1, else the latest.  NULL: no payment at all.
 */
static Payment *
model_of(IdemCall *call, const Cancel *cancel)
{
	if (cancel->applied != NULL)
		return payment_look(call, cancel->applied->payment_no.value, IDEM_SIGHT_LATEST);
	return payment_look_latest(call, cancel->order_id, IDEM_SIGHT_LATEST);
}

/*
 * Give the order a row, with the moves it would have made so far, while its
 * name is locked.  false: somebody else just did.
 */
static bool
make_row(IdemCall *call, Cancel *cancel)
{
	Payment    *model = model_of(call, cancel);
	Order	   *order = palloc0(sizeof(Order));

	if (model == NULL)
		order_not_found(cancel->order_id);
	order->order_id = cancel->order_id;
	order->amount = model->amount;
	order->currency = model->currency;
	order->buyer_id = IDEM_NULL;
	order->metadata = IDEM_NULL;
	order->expires_at = IDEM_NULL;
	if (!order_insert(call, order))
		return false;
	if (cancel->applied != NULL)
		order_move(call, order, ORDER_PAID);
	cancel->order = order;
	return true;
}

/* Send back what was paid and is not yet on its way back */
static void
refund(IdemCall *call, Cancel *cancel)
{
	if (cancel->applied == NULL)
		return;
	put_refund(call, refund_request_automatic(call, cancel->applied, "cancel", cancel->reason));
	idem_put(call, OUT_REMAINDER, Int64GetDatum(refund_remainder(cancel->applied)));
}

/*
 * One attempt to cancel an order.  Returns the outcome; NULL: somebody was in
 * the way, try again.
 */
static const char *
try_cancel(IdemCall *call, Cancel *cancel)
{
	Payment    *active;

	if (!order_lock_gate(call, cancel->order_id, &cancel->order))
		return "in_progress";
	if (cancel->order != NULL && cancel_outcomes[cancel->order->status] != NULL)
		return cancel_outcomes[cancel->order->status];
	if (!lock_money(call, cancel))
		return "in_progress";
	if (cancel->applied != NULL ||
		(cancel->order != NULL && cancel->order->status == ORDER_PAID))
		access_require(call, "cashier");

	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, cancel->order_id);
	if (has_grown(call, cancel))
	{
		idem_unlock_names(call);
		return idem_await_rival(call) ? NULL : "in_progress";
	}
	active = active_of(cancel);
	if (active != NULL && active->status == PAYMENT_REVIEW)
		return "refused";
	if (cancel->order == NULL && !make_row(call, cancel))
	{
		idem_unlock_names(call);
		return NULL;
	}
	order_move(call, cancel->order, ORDER_CANCELLED);
	idem_unlock_names(call);

	if (active != NULL)
		payment_give_up(call, active);
	if (active != NULL && active->status == PAYMENT_CLOSING)
		idem_put(call, OUT_CLOSING_PAYMENT_NO, active->payment_no);
	refund(call, cancel);
	return "cancelled";
}

/*
 * idem_cancel_order(tenant_id, order_id, reason)
 *	 -> (outcome, status, version, closing_payment_no, refund_no,
 *		 refund_status, remainder)
 *
 * Outcomes: cancelled, already_cancelled, refused.  Errors: ID006; ID008 for
 * a paid order without the capability cashier.
 */
PG_FUNCTION_INFO_V1(idem_cancel_order);
Datum
idem_cancel_order(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Cancel		cancel = {0};
	const char *outcome;
	Order	   *order;

	cancel.order_id = idem_arg_key(call, 1);
	cancel.reason = idem_arg(call, 2);
	idem_because(call, cancel.reason);

	order = order_look(call, cancel.order_id, IDEM_SIGHT_FIRST);
	if (order != NULL && order->status == ORDER_CANCELLED)
		return leave_cancelled_before(call, order, IDEM_SIGHT_FIRST);

	while ((outcome = try_cancel(call, &cancel)) == NULL)
		CHECK_FOR_INTERRUPTS();
	if (strcmp(outcome, "in_progress") == 0)
		return idem_leave(call, outcome);
	if (strcmp(outcome, "already_cancelled") == 0)
		return leave_cancelled_before(call, cancel.order, IDEM_SIGHT_LATEST);
	return leave_with_order(call, cancel.order, outcome);
}
