/*-------------------------------------------------------------------------
 * review.c
 *	  What a human decides about money that fits nothing.
 *
 * A mismatch is accepted or refunded; an orphan or rejected receipt is adopted
 * by a payment or refunded.  These are requests, but about money that other
 * reports may be judging at this very moment.  So they lock the same scene
 * under the same names as those do (receipt_judge.c, confirm.c), only that
 * they wait no longer than idem.wait for any of it.  All that could still be
 * busy is locked before the first write.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "receipt.h"
#include "refund.h"

#include "miscadmin.h"

/* tenant_id, entity, key */
static const IdemIndex history_by_key = {"idem_history", "idem_history_key", 6};
#define HISTORY_TO_STATE 6


/* ---------- resolve ---------- */

typedef struct Review
{
	Datum		payment_no;
	bool		accept;			/* else refund */
	NullableDatum reason;
	NullableDatum receipt_no;
} Review;

/* Columns of idem_resolve_review */
enum
{
	REVIEW_STATUS = 1, REVIEW_REFUND_NO
};

static void
read_review(IdemCall *call, Review *review)
{
	const char *decision;

	review->payment_no = idem_arg_key(call, 1);
	decision = idem_arg_word(call, 2);
	review->reason = idem_arg(call, 3);
	review->receipt_no = idem_arg_optional_key(call, 4);

	review->accept = strcmp(decision, "accept") == 0;
	if (!review->accept && strcmp(decision, "refund") != 0)
		idem_bad_argument(call, 2, "It is one of accept, refund.");
}

static void
put_review(IdemCall *call, const Payment *payment, const Refund *refund)
{
	idem_put_text(call, REVIEW_STATUS, payment_status_names[payment->status]);
	if (refund != NULL && refund_allows_act(refund))
		idem_put(call, REVIEW_REFUND_NO, refund->refund_no);
}

static bool
was_in_review(IdemCall *call, const Payment *payment)
{
	Datum		keys[] = {call->tenant_id, CStringGetTextDatum("payment"), payment->payment_no};
	ListCell   *cell;

	foreach(cell, idem_look_all(call, &history_by_key, keys, lengthof(keys), IDEM_SIGHT_LATEST))
	{
		if (idem_text_is(IDEM_COLUMN((IdemRow *) lfirst(cell), HISTORY_TO_STATE), "review"))
			return true;
	}
	return false;
}

/* The receipts of a purchase in that disposition that are this payment's */
static List *
only_of(const List *receipts, const Payment *payment)
{
	List	   *own = NIL;
	ListCell   *cell;

	foreach(cell, receipts)
	{
		Receipt    *receipt = (Receipt *) lfirst(cell);

		if (receipt->disposition == RECEIPT_MISMATCH &&
			idem_same_text(receipt->payment_no.value, payment->payment_no))
			own = lappend(own, receipt);
	}
	return own;
}

/*
 * The payment is not in review: was the same decided before?
 */
static const char *
recognize_review(IdemCall *call, const Review *review, Payment *payment)
{
	PaymentStatus decided = review->accept ? PAYMENT_PAID : PAYMENT_PAID_LATE;
	Receipt    *receipt = NULL;
	Refund	   *refund = NULL;

	if (!review->receipt_no.isnull)
	{
		receipt = receipt_look(call, review->receipt_no.value, IDEM_SIGHT_LATEST);
		if (receipt == NULL)
			receipt_not_found(review->receipt_no.value);
	}
	if (payment->status != decided || !was_in_review(call, payment))
		receipt = NULL;
	else if (receipt == NULL)
		receipt = review->accept ?
			receipt_look_applied(call, payment->order_id, payment->purchase_no, IDEM_SIGHT_LATEST) :
			receipt_look_mismatch(call, payment->payment_no);
	else if (receipt->disposition != (review->accept ? RECEIPT_APPLIED : RECEIPT_MISMATCH))
		receipt = NULL;

	if (receipt != NULL && !receipt->payment_no.isnull &&
		idem_same_text(receipt->payment_no.value, payment->payment_no))
	{
		if (!review->accept)
			refund = refund_look_automatic(call, receipt->receipt_no);
		put_review(call, payment, refund);
		return "duplicate";
	}
	put_review(call, payment, NULL);
	return "refused";
}

/*
 * The receipt that the decision names; NULL: it is none of those in review.
 */
static Receipt *
chosen_receipt(IdemCall *call, const Review *review, const List *receipts)
{
	ListCell   *cell;

	if (review->receipt_no.isnull)
	{
		if (review->accept && list_length(receipts) > 1)
			idem_bad_argument(call, 4, "The payment has several receipts in review; one must be named.");
		return receipts == NIL ? NULL : (Receipt *) linitial(receipts);
	}
	foreach(cell, receipts)
	{
		Receipt    *receipt = (Receipt *) lfirst(cell);

		if (idem_same_text(receipt->receipt_no, review->receipt_no.value))
			return receipt;
	}
	if (receipt_look(call, review->receipt_no.value, IDEM_SIGHT_LATEST) == NULL)
		receipt_not_found(review->receipt_no.value);
	return NULL;
}

/* An order that ended, or that was paid otherwise, takes no money any more */
static bool
may_accept(const Scene *scene, const Receipt *receipt)
{
	return scene_takes_money(scene) && receipt_makes_sense(receipt) &&
		!receipt_is_spoken_for(receipt);
}

static const char *
accept_receipt(IdemCall *call, Scene *scene, Receipt *receipt)
{
	Settlement	settlement;

	if (!may_accept(scene, receipt))
	{
		put_review(call, scene->payment, NULL);
		return "refused";
	}
	if (!scene_accept(call, scene, receipt, &settlement))
		return NULL;
	put_review(call, scene->payment, NULL);
	return "accepted";
}

/* All money in review goes back; what cannot, stays an open anomaly */
static const char *
refund_all(IdemCall *call, Scene *scene, List *receipts, const Receipt *chosen)
{
	Refund	   *shown = NULL;
	ListCell   *cell;

	scene_advance(call, scene->payment, PAYMENT_PAID_LATE);
	foreach(cell, receipts)
	{
		Receipt    *receipt = (Receipt *) lfirst(cell);
		Refund	   *refund = refund_request_automatic(call, receipt, "mismatch", scene->reason);

		if (receipt_makes_sense(receipt))
			receipt_resolve_anomaly(call, "mismatch", receipt, "refund", scene->reason);
		if (receipt == chosen)
			shown = refund;
	}
	put_review(call, scene->payment, shown);
	return "refunded";
}

/* One attempt; NULL: begin again */
static const char *
try_resolve(IdemCall *call, const Review *review)
{
	const char *outcome = NULL;
	Scene		scene;
	List	   *receipts;
	Receipt    *receipt;

	if (!scene_lock(call, review->payment_no, &scene))
		return "in_progress";
	if (scene.payment == NULL)
		payment_not_found(review->payment_no);
	if (scene.payment->status != PAYMENT_REVIEW)
		return recognize_review(call, review, scene.payment);

	scene.reason = review->reason;
	receipts = only_of(scene.mismatches, scene.payment);
	receipt = chosen_receipt(call, review, receipts);
	if (receipt == NULL)
	{
		put_review(call, scene.payment, NULL);
		return "refused";
	}
	if (!review->accept)
		return refund_all(call, &scene, receipts, receipt);

	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, scene.payment->order_id);
	if (scene_stands(call, review->payment_no, &scene))
		outcome = accept_receipt(call, &scene, receipt);
	if (outcome == NULL && !scene_step_back(call))
		return "in_progress";
	return outcome;
}

/*
 * idem_resolve_review(tenant_id, payment_no, decision, reason, receipt_no)
 *	 -> (outcome, status, refund_no)
 *
 * Outcomes: accepted, refunded, duplicate, refused, in_progress.  Errors:
 * 22023 for several receipts in review and none named, ID006.
 */
PG_FUNCTION_INFO_V1(idem_resolve_review);
Datum
idem_resolve_review(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Review		review;
	Payment    *payment;
	const char *outcome = NULL;

	read_review(call, &review);
	idem_because(call, review.reason);

	/* a repetition is answered without a lock: nothing leads back to review */
	idem_hold_moment(call);
	payment = payment_look(call, review.payment_no, IDEM_SIGHT_LATEST);
	if (payment != NULL &&
		(payment->status == PAYMENT_PAID || payment->status == PAYMENT_PAID_LATE))
		outcome = recognize_review(call, &review, payment);
	idem_let_moment_go(call);
	while (outcome == NULL)
		outcome = try_resolve(call, &review);
	return idem_leave(call, outcome);
}


/* ---------- adopt ---------- */

/* Is the receipt without a payment, as orphans and rejected ones are? */
static bool
is_apart(const Receipt *receipt)
{
	return receipt->payment_no.isnull;
}

/* The receipt has its payment: is it this one? */
static const char *
recognize_adopted(IdemCall *call, Payment *payment, const Receipt *receipt,
				  ReceiptAnswer *answer)
{
	Scene		scene = {0};

	idem_unlock_names(call);
	if (idem_same_text(receipt->payment_no.value, payment->payment_no))
	{
		scene_answer_settled(call, payment, receipt, answer);
		return "duplicate";
	}
	scene.payment = payment;
	scene.order = order_look(call, payment->order_id, IDEM_SIGHT_LATEST);
	scene_answer(&scene, NULL, NULL, answer);
	return "refused";
}

/* With everything locked; NULL: begin again */
static const char *
adopt(IdemCall *call, Scene *scene, Receipt *receipt, ReceiptAnswer *answer)
{
	Settlement	settlement;

	if (!is_apart(receipt))
		return recognize_adopted(call, scene->payment, receipt, answer);
	if (receipt_is_spoken_for(receipt) ||
		receipt_look_own(call, scene->payment->payment_no, receipt->channel,
						 receipt->trade_no, IDEM_SIGHT_LATEST) != NULL)
	{
		scene_answer(scene, NULL, NULL, answer);
		return "refused";
	}
	if (!scene_settle(call, scene, receipt, false, &settlement))
		return NULL;
	scene_answer(scene, receipt, &settlement, answer);
	return settlement.outcome;
}

static const char *
try_adopt(IdemCall *call, Datum receipt_no, Datum payment_no, ReceiptAnswer *answer)
{
	const char *outcome = NULL;
	Receipt    *seen = receipt_look(call, receipt_no, IDEM_SIGHT_LATEST);
	Receipt    *receipt;
	Scene		scene;

	if (seen == NULL)
		receipt_not_found(receipt_no);
	if (!scene_lock(call, payment_no, &scene))
		return "in_progress";
	if (scene.payment == NULL)
		payment_not_found(payment_no);
	if (!is_apart(seen))
		return recognize_adopted(call, scene.payment, seen, answer);
	if (!anomaly_lock(call, receipt_disposition_names[seen->disposition], "receipt", receipt_no))
		return "in_progress";

	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, scene.payment->order_id);
	receipt_lock_apart(call, seen);
	if (scene_stands(call, payment_no, &scene) &&
		(receipt = receipt_take_apart(call, seen)) != NULL)
		outcome = adopt(call, &scene, receipt, answer);
	if (outcome == NULL && !scene_step_back(call))
		return "in_progress";
	return outcome;
}

/*
 * idem_adopt_receipt(tenant_id, receipt_no, payment_no)
 *	 -> the row of idem_confirm_payment
 *
 * Outcomes: paid, surplus, late, mismatch, duplicate, refused, in_progress.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_adopt_receipt);
Datum
idem_adopt_receipt(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		receipt_no = idem_arg_key(call, 1);
	Datum		payment_no = idem_arg_key(call, 2);
	Receipt    *receipt;
	Payment    *payment;
	const Scene nothing = {0};
	const char *outcome = NULL;
	ReceiptAnswer answer;

	scene_answer(&nothing, NULL, NULL, &answer);
	idem_hold_moment(call);
	receipt = receipt_look(call, receipt_no, IDEM_SIGHT_LATEST);
	payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	if (receipt != NULL && payment != NULL && !is_apart(receipt))
		outcome = recognize_adopted(call, payment, receipt, &answer);
	idem_let_moment_go(call);
	while (outcome == NULL)
		outcome = try_adopt(call, receipt_no, payment_no, &answer);
	receipt_put_answer(call, &answer);
	return idem_leave(call, outcome);
}


/* ---------- refund ---------- */

/* Columns of idem_refund_receipt */
enum
{
	REFUND_NO = 1, REFUND_STATUS, REFUND_AMOUNT, REFUND_REMAINDER
};

static const char *
put_refund(IdemCall *call, const Receipt *receipt, const Refund *refund, const char *outcome)
{
	idem_put(call, REFUND_REMAINDER, Int64GetDatum(refund_remainder(receipt)));
	if (refund == NULL)
		return outcome;
	if (refund_allows_act(refund))
		idem_put(call, REFUND_NO, refund->refund_no);
	idem_put_text(call, REFUND_STATUS, refund_status_names[refund->status]);
	idem_put(call, REFUND_AMOUNT, Int64GetDatum(refund->amount));
	return outcome;
}

/* What may be said without a lock; NULL: the receipt can be sent back */
static const char *
recognize_refunded(IdemCall *call, const Receipt *receipt)
{
	Refund	   *refund;

	if (!is_apart(receipt))
		return put_refund(call, receipt, NULL, "refused");
	refund = refund_look_automatic(call, receipt->receipt_no);
	return refund == NULL ? NULL : put_refund(call, receipt, refund, "duplicate");
}

/* With the receipt locked and its names too */
static const char *
send_back(IdemCall *call, Receipt *receipt, NullableDatum reason)
{
	const char *outcome = recognize_refunded(call, receipt);
	Refund	   *refund;

	if (outcome != NULL)
		return outcome;
	refund = refund_request_automatic(call, receipt, "orphan", reason);
	idem_unlock_names(call);
	if (refund == NULL)
		return put_refund(call, receipt, NULL, "refused");
	receipt_resolve_anomaly(call, receipt_disposition_names[receipt->disposition], receipt,
							"refund", reason);
	return put_refund(call, receipt, refund, "requested");
}

static const char *
try_refund(IdemCall *call, Datum receipt_no, NullableDatum reason)
{
	Receipt    *seen;
	Receipt    *receipt;
	const char *outcome;

	idem_hold_moment(call);
	seen = receipt_look(call, receipt_no, IDEM_SIGHT_LATEST);
	if (seen == NULL)
		receipt_not_found(receipt_no);
	outcome = recognize_refunded(call, seen);
	idem_let_moment_go(call);
	if (outcome != NULL)
		return outcome;
	if (!anomaly_lock(call, receipt_disposition_names[seen->disposition], "receipt", receipt_no))
		return "in_progress";

	receipt_lock_apart(call, seen);
	receipt = receipt_take_apart(call, seen);
	if (receipt != NULL)
		return send_back(call, receipt, reason);
	return call->busy ? "in_progress" : NULL;
}

/*
 * idem_refund_receipt(tenant_id, receipt_no, reason)
 *	 -> (outcome, refund_no, status, amount, remainder)
 *
 * Outcomes: requested, duplicate, refused, in_progress.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_refund_receipt);
Datum
idem_refund_receipt(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		receipt_no = idem_arg_key(call, 1);
	NullableDatum reason = idem_arg(call, 2);
	const char *outcome = NULL;

	idem_because(call, reason);
	while (outcome == NULL)
		outcome = try_refund(call, receipt_no, reason);
	return idem_leave(call, outcome);
}
