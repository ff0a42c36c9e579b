/*-------------------------------------------------------------------------
 * receipt_judge.c
 *	  What money means for its payment, and all that follows.
 *
 * Two channels can pay one order, and each report knows its own payment only.
 * So whoever judges money locks everything that the judgement depends on: the
 * order's gate (its row, see order.c), all its payments ascending, and the
 * purchase's receipts that wait for a decision.  Only then he locks the order's
 * name and looks dirty for what is being born meanwhile: a payment, the order's
 * row, the receipt that pays the purchase.  If anything is, it is awaited and
 * the scene is locked anew; nothing is written before the judgement is final.
 *
 * The receipt is written first, while the name is still locked: from then on
 * whoever looks for the purchase's applied receipt meets it.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "brake.h"
#include "payment_close.h"
#include "receipt.h"
#include "refund.h"

#include "access/transam.h"
#include "miscadmin.h"

/* What rules 4 to 7 say of a receipt */
typedef struct Judgement
{
	const char *outcome;
	ReceiptDisposition disposition;
	PaymentStatus status;		/* where its payment goes, unless it is paid */
	const char *anomaly;		/* kind; NULL: none */
	bool		refund;
	bool		tells_channel;	/* a payment without a channel takes this one */
} Judgement;


/* ---------- the scene ---------- */

bool
scene_lock(IdemCall *call, Datum payment_no, Scene *scene)
{
	Payment    *seen = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	ListCell   *cell;

	memset(scene, 0, sizeof(Scene));
	scene->reason = IDEM_NULL;
	if (seen == NULL)
		return true;

	if (order_lock_gate(call, seen->order_id, &scene->order))
		scene->payments = payment_lock_order(call, seen->order_id);
	if (!call->busy)
		scene->mismatches = receipt_lock_mismatches(call, seen->order_id, seen->purchase_no);
	if (call->busy)
		return false;

	foreach(cell, scene->payments)
	{
		Payment    *payment = (Payment *) lfirst(cell);

		if (idem_same_text(payment->payment_no, payment_no))
			scene->payment = payment;
	}
	return true;
}

/* The receipt that paid the purchase; once there is one, no refund of it counts */
static Receipt *
look_applied(IdemCall *call, const Payment *payment)
{
	Datum		keys[] = {
		call->tenant_id, payment->order_id, Int32GetDatum(payment->purchase_no)
	};

	return receipt_look_settled(call, &receipt_applied, keys, lengthof(keys));
}

bool
scene_stands(IdemCall *call, Datum payment_no, Scene *scene)
{
	Payment    *payment = scene->payment;
	bool		same;

	if (payment == NULL)
		same = payment_look(call, payment_no, IDEM_SIGHT_DIRTY) == NULL;
	else
	{
		Datum		keys[] = {call->tenant_id, payment->order_id};
		List	   *payments = idem_look_all(call, &payment_by_order, keys, lengthof(keys),
											 IDEM_SIGHT_DIRTY);

		same = list_length(payments) == list_length(scene->payments);
		if (scene->order == NULL)
			same = order_look(call, payment->order_id, IDEM_SIGHT_DIRTY) == NULL && same;
		scene->applied = look_applied(call, payment);
	}
	return same && !TransactionIdIsValid(call->rival);
}

bool
scene_step_back(IdemCall *call)
{
	idem_unlock_names(call);
	CHECK_FOR_INTERRUPTS();
	if (TransactionIdIsValid(call->rival) && !idem_await_rival(call))
		call->busy = true;
	return !call->busy;
}


/* ---------- rules 4 to 7 ---------- */

static bool
is_first_purchase(const Scene *scene)
{
	return scene->payment->purchase_no == 1;
}

/* Is there anything left to pay?  An order of amount 0 is paid without money. */
static bool
is_paid_for(const Scene *scene)
{
	const Order *order = scene->order;

	if (scene->applied != NULL)
		return true;
	return order != NULL && is_first_purchase(scene) && order->amount == 0 &&
		(order->status == ORDER_PAID || order->status == ORDER_SHIPPED ||
		 order->status == ORDER_COMPLETED);
}

/* The row follows purchase 1; its end ends the others too, a refund does not */
static bool
is_order_over(const Scene *scene)
{
	if (scene->order == NULL)
		return false;
	switch (scene->order->status)
	{
		case ORDER_CANCELLED:
		case ORDER_EXPIRED:
			return true;
		case ORDER_REFUNDED:
			return is_first_purchase(scene);
		default:
			return false;
	}
}

bool
scene_takes_money(const Scene *scene)
{
	return !is_paid_for(scene) && !is_order_over(scene);
}

/* Is it this much, in this currency? */
static bool
is_sum(const Receipt *receipt, int64 amount, Datum currency)
{
	return DatumGetInt64(receipt->amount.value) == amount &&
		idem_same_text(receipt->currency.value, currency);
}

/* Is it the money that the payment, and a pending order, ask for? */
static bool
is_as_expected(const Scene *scene, const Receipt *receipt)
{
	const Payment *payment = scene->payment;
	const Order *order = scene->order;

	if (!receipt_makes_sense(receipt) ||
		!is_sum(receipt, payment->amount, payment->currency))
		return false;
	if (order != NULL && order->status == ORDER_PENDING && is_first_purchase(scene) &&
		!is_sum(receipt, order->amount, order->currency))
		return false;
	return payment->channel.isnull ||
		idem_same_text(payment->channel.value, receipt->channel);
}

static Judgement
judge(const Scene *scene, const Receipt *receipt, bool unlike)
{
	bool		sense = receipt_makes_sense(receipt);

	if (is_paid_for(scene))
		return (Judgement) {"surplus", RECEIPT_SURPLUS, PAYMENT_PAID_LATE, "surplus", sense, false};
	if (is_order_over(scene))
		return (Judgement) {"late", RECEIPT_LATE, PAYMENT_PAID_LATE, "late", sense, false};
	if (!unlike && is_as_expected(scene, receipt))
		return (Judgement) {"paid", RECEIPT_APPLIED, PAYMENT_PAID, NULL, false, true};
	if (payment_is_active(scene->payment))
		return (Judgement) {"mismatch", RECEIPT_MISMATCH, PAYMENT_REVIEW, "mismatch", false, true};
	return (Judgement) {"late", RECEIPT_LATE, PAYMENT_PAID_LATE, "mismatch", sense, true};
}


/* ---------- what follows ---------- */

void
scene_advance(IdemCall *call, Payment *payment, PaymentStatus to)
{
	bool		ended = payment->status == PAYMENT_FAILED || payment->status == PAYMENT_CLOSED;

	if (to == PAYMENT_PAID || to == PAYMENT_PAID_LATE)
		payment->next_check_at = IDEM_NULL;
	if (to == PAYMENT_PAID && ended)
		payment_move(call, payment, PAYMENT_PAID_LATE);
	payment_move(call, payment, to);
}

/* A payment without a channel takes the one its money came through; true: it did */
static bool
take_channel(Payment *payment, const Receipt *receipt)
{
	bool		taken = false;

	if (payment->channel.isnull && !receipt_is_empty(receipt->channel))
	{
		payment->channel = IDEM_VALUE(receipt->channel);
		taken = true;
	}
	if (payment->account.isnull && !receipt_is_empty(receipt->account) &&
		!payment->channel.isnull && idem_same_text(payment->channel.value, receipt->channel))
	{
		payment->account = IDEM_VALUE(receipt->account);
		taken = true;
	}
	return taken;
}

static void
advance_own(IdemCall *call, Payment *payment, const Receipt *receipt,
			const Judgement *judgement)
{
	bool		taken = judgement->tells_channel && take_channel(payment, receipt);

	if (payment->status != PAYMENT_PAID && payment->status != judgement->status)
		scene_advance(call, payment, judgement->status);
	else if (taken)
		payment_store(call, payment);
}

/*
 * The purchase is paid: no other attempt may be paid any more.  Returns the
 * number of the one that is to be closed at its channel.
 */
static NullableDatum
stop_others(IdemCall *call, const Scene *scene)
{
	NullableDatum closing = IDEM_NULL;
	ListCell   *cell;

	foreach(cell, scene->payments)
	{
		Payment    *other = (Payment *) lfirst(cell);

		if (other == scene->payment || other->purchase_no != scene->payment->purchase_no ||
			!payment_is_active(other))
			continue;
		if (other->status == PAYMENT_REVIEW)
		{
			scene_advance(call, other, PAYMENT_PAID_LATE);
			continue;
		}
		if (other->status == PAYMENT_PENDING)
			payment_begin_closing(call, other);
		closing = IDEM_VALUE(other->payment_no);
	}
	return closing;
}

/*
 * Money that waited for a decision has lost its chance: it goes back.  What
 * was already decided to go back keeps its name.
 */
static void
send_back_mismatches(IdemCall *call, const Scene *scene, const Receipt *but,
					 ReceiptDisposition disposition)
{
	const char *kind = receipt_disposition_names[disposition];
	ListCell   *cell;

	foreach(cell, scene->mismatches)
	{
		Receipt    *receipt = (Receipt *) lfirst(cell);

		if (receipt->disposition != RECEIPT_MISMATCH || receipt == but ||
			refund_look_automatic(call, receipt->receipt_no) != NULL)
			continue;
		receipt->disposition = disposition;
		(void) receipt_write(call, receipt);
		receipt_resolve_anomaly(call, "mismatch", receipt, kind, IDEM_NULL);
		receipt_open_anomaly(call, kind, receipt);
		(void) refund_request_automatic(call, receipt, kind, IDEM_NULL);
	}
}

/* All that follows from a receipt that was just written */
static void
follow(IdemCall *call, Scene *scene, Receipt *receipt, const Judgement *judgement,
	   Settlement *settlement)
{
	Payment    *payment = scene->payment;
	bool		left_review;

	left_review = payment->status == PAYMENT_REVIEW && judgement->status != PAYMENT_REVIEW;
	advance_own(call, payment, receipt, judgement);

	if (judgement->disposition == RECEIPT_APPLIED)
	{
		if (scene->order != NULL && is_first_purchase(scene) &&
			scene->order->status == ORDER_PENDING)
			order_move(call, scene->order, ORDER_PAID);
		settlement->closing_payment_no = stop_others(call, scene);
		send_back_mismatches(call, scene, receipt, RECEIPT_SURPLUS);
		scene->applied = receipt;
	}
	else if (left_review)
		send_back_mismatches(call, scene, receipt, judgement->disposition);

	if (judgement->anomaly != NULL)
		receipt_open_anomaly(call, judgement->anomaly, receipt);
	if (judgement->refund)
		settlement->refund =
			refund_request_automatic(call, receipt,
									 receipt_disposition_names[receipt->disposition],
									 IDEM_NULL);
}

/* Write the receipt as it was judged, and do what follows */
static bool
carry_out(IdemCall *call, Scene *scene, Receipt *receipt, const Judgement *judgement,
		  Settlement *settlement)
{
	bool		is_new = !ItemPointerIsValid(&receipt->tid);
	ReceiptDisposition before = receipt->disposition;

	memset(settlement, 0, sizeof(Settlement));
	settlement->outcome = judgement->outcome;
	settlement->closing_payment_no = IDEM_NULL;

	receipt->payment_no = IDEM_VALUE(scene->payment->payment_no);
	receipt->order_id = IDEM_VALUE(scene->payment->order_id);
	receipt->purchase_no = scene->payment->purchase_no;
	receipt->disposition = judgement->disposition;
	if (!receipt_write(call, receipt))
		return false;
	idem_unlock_names(call);
	brake_note_cluster(call);

	if (!is_new)
		receipt_resolve_anomaly(call, receipt_disposition_names[before], receipt,
								before == RECEIPT_MISMATCH ? "accept" : "adopt", scene->reason);
	follow(call, scene, receipt, judgement, settlement);
	return true;
}

bool
scene_settle(IdemCall *call, Scene *scene, Receipt *receipt, bool unlike,
			 Settlement *settlement)
{
	Judgement	judgement = judge(scene, receipt, unlike);

	return carry_out(call, scene, receipt, &judgement, settlement);
}

bool
scene_accept(IdemCall *call, Scene *scene, Receipt *receipt, Settlement *settlement)
{
	static const Judgement accepted = {"accepted", RECEIPT_APPLIED, PAYMENT_PAID, NULL, false, true};

	return carry_out(call, scene, receipt, &accepted, settlement);
}


/* ---------- answers ---------- */

enum
{
	OUT_STATUS = 1, OUT_RECEIPT_NO, OUT_REFUND_NO, OUT_ORDER_STATUS, OUT_VERSION,
	OUT_CLOSING_PAYMENT_NO
};

void
scene_answer(const Scene *scene, const Receipt *receipt, const Settlement *settlement,
			 ReceiptAnswer *answer)
{
	answer->status = NULL;
	answer->order_status = NULL;
	answer->version = answer->receipt_no = IDEM_NULL;
	answer->refund_no = answer->closing_payment_no = IDEM_NULL;

	if (scene->payment != NULL)
	{
		answer->status = payment_status_names[scene->payment->status];
		answer->version = IDEM_VALUE(Int32GetDatum(scene->payment->version));
	}
	if (scene->order != NULL)
		answer->order_status = order_status_names[scene->order->status];
	if (receipt != NULL)
		answer->receipt_no = IDEM_VALUE(receipt->receipt_no);
	if (settlement == NULL)
		return;
	if (settlement->refund != NULL && refund_allows_act(settlement->refund))
		answer->refund_no = IDEM_VALUE(settlement->refund->refund_no);
	answer->closing_payment_no = settlement->closing_payment_no;
}

/*
 * What the first report answered, as far as it may still be acted on.  These are
 * several looks, and must be of the moment that the caller holds: else the refund
 * of money that is surplus since would be told beside a payment in review.
 */
void
scene_answer_settled(IdemCall *call, Payment *payment, const Receipt *receipt,
					 ReceiptAnswer *answer)
{
	Scene		scene = {0};
	Settlement	settlement = {0};
	Payment    *active;

	scene.payment = payment;
	scene.order = order_look(call, payment->order_id, IDEM_SIGHT_LATEST);
	settlement.refund = refund_look_reserved(call, receipt);
	settlement.closing_payment_no = IDEM_NULL;
	if (receipt->disposition == RECEIPT_APPLIED)
	{
		active = payment_look_active(call, payment->order_id, IDEM_SIGHT_LATEST);
		if (active != NULL && active->status == PAYMENT_CLOSING &&
			active->purchase_no == payment->purchase_no)
			settlement.closing_payment_no = IDEM_VALUE(active->payment_no);
	}
	scene_answer(&scene, receipt, &settlement, answer);
}

void
receipt_put_answer(IdemCall *call, const ReceiptAnswer *answer)
{
	if (answer->status != NULL)
		idem_put_text(call, OUT_STATUS, answer->status);
	idem_put_nullable(call, OUT_RECEIPT_NO, answer->receipt_no);
	idem_put_nullable(call, OUT_REFUND_NO, answer->refund_no);
	if (answer->order_status != NULL)
		idem_put_text(call, OUT_ORDER_STATUS, answer->order_status);
	idem_put_nullable(call, OUT_VERSION, answer->version);
	idem_put_nullable(call, OUT_CLOSING_PAYMENT_NO, answer->closing_payment_no);
}


/* ---------- orphans ---------- */

/* Money that came on an account that cannot be the payment's: rule 1 */
static void
reject_orphan(IdemCall *call, Receipt *receipt)
{
	receipt->disposition = RECEIPT_REJECTED;
	(void) receipt_write(call, receipt);
	receipt_resolve_anomaly(call, "orphan", receipt, "rejected", IDEM_NULL);
	receipt_open_anomaly(call, "rejected", receipt);
}

/* Rule 1 for money whose account was named, or else is the payment's own at this channel */
static bool
is_orphan_refused(IdemCall *call, const Payment *payment, const Receipt *receipt)
{
	bool		named = !receipt_is_empty(receipt->account);
	NullableDatum own = payment_account_at(payment, receipt->channel);
	Datum		account = named || own.isnull ? receipt->account : own.value;

	return receipt_account_refused(call, payment, named, receipt->channel, account);
}

void
receipt_adopt_orphans(IdemCall *call, Payment *payment, Order *order)
{
	Scene		scene = {0};
	Settlement	settlement;
	ListCell   *cell;

	/* the insert may not have told where the row lies */
	*payment = *payment_lock(call, payment->payment_no);
	scene.payment = payment;
	scene.payments = list_make1(payment);
	scene.order = order;
	scene.reason = IDEM_NULL;

	foreach(cell, receipt_lock_orphans(call, payment->payment_no))
	{
		Receipt    *receipt = (Receipt *) lfirst(cell);

		if (receipt_is_spoken_for(receipt))
			continue;
		scene.applied = receipt_look_applied(call, payment->order_id, payment->purchase_no,
											 IDEM_SIGHT_LATEST);
		scene.mismatches = receipt_lock_mismatches(call, payment->order_id,
												   payment->purchase_no);
		if (is_orphan_refused(call, payment, receipt))
			reject_orphan(call, receipt);
		else
			(void) scene_settle(call, &scene, receipt, false, &settlement);
	}

	/* what another holds stays an orphan, to be adopted by its next report */
	call->busy = false;
}
