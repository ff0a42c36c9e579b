/*-------------------------------------------------------------------------
 * confirm.c
 *	  idem_confirm_payment: money arrived.
 *
 * A channel tells the same thing several times, at once and to several
 * servers, tells of payments that we do not know yet, and tells it late, wrong
 * or for an order that another channel has just paid.  None of that may be
 * refused: an error would undo the only proof that the money is there.
 *
 * 1. Look.  A trade that this payment already has is answered from the look;
 *	  nothing is locked or written.
 * 2. Lock the scene (receipt_judge.c).
 * 3. Lock the names: the order's, or the payment's if it is unknown, so that
 *	  nobody creates it meanwhile, and the trade's.
 * 4. Look dirty at all that could be born meanwhile, and for the trade.  If
 *	  anybody is at work on it, unlock, wait for him as long as it takes, and
 *	  begin again.
 * 5. Judge, write the receipt, unlock the names, do what follows.
 *
 * A receipt without a payment is kept, as it was first reported, and used again
 * by the next report of its trade.  It is written under the name of the payment it was reported for,
 * since a create of that payment looks for it there.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "key.h"
#include "receipt.h"
#include "refund.h"

#include "access/transam.h"

/* The arguments of idem_confirm_payment, by position */
enum
{
	ARG_TENANT_ID, ARG_PAYMENT_NO, ARG_CHANNEL, ARG_TRADE_NO, ARG_AMOUNT, ARG_CURRENCY,
	ARG_ACCOUNT, ARG_PAID_AT
};

/* A fact, and what is known of it so far */
typedef struct Report
{
	ReceiptFact fact;			/* currency in upper case, if it is one */
	ReceiptAnswer *answer;
	NullableDatum also;			/* another payment whose name is needed */
} Report;


/* ---------- find the trade ---------- */

/*
 * An orphan of this trade that names the same, still unknown payment: of several,
 * on several accounts, the one that came first.
 */
static Receipt *
find_orphan(IdemCall *call, const Report *report)
{
	Datum		keys[] = {call->tenant_id, report->fact.payment_no};
	List	   *rows = idem_look_all(call, &receipt_orphans, keys, lengthof(keys),
									 IDEM_SIGHT_DIRTY);
	ListCell   *cell;

	receipt_sort(rows);
	foreach(cell, rows)
	{
		Receipt    *receipt = receipt_of_row((IdemRow *) lfirst(cell));

		if (idem_same_text(receipt->channel, report->fact.channel) &&
			idem_same_text(receipt->trade_no, report->fact.trade_no))
			return receipt;
	}
	return NULL;
}

/* What an earlier report of the trade left for this payment; NULL: nothing that matters */
static Receipt *
look_before(IdemCall *call, const Report *report, const Payment *payment)
{
	if (payment != NULL)
		return receipt_look_own(call, payment->payment_no, report->fact.channel,
								report->fact.trade_no, IDEM_SIGHT_DIRTY);
	return report->fact.account.isnull ? find_orphan(call, report) : NULL;
}

/*
 * The account that the money is on: as reported, else the payment's own at this
 * channel, else as an earlier report of the trade had it (before, or NULL), else
 * unknown and empty.
 */
static Datum
account_of(const Report *report, const Payment *payment, const Receipt *before)
{
	NullableDatum own = payment == NULL ? IDEM_NULL :
		payment_account_at(payment, report->fact.channel);

	if (!report->fact.account.isnull)
		return report->fact.account.value;
	if (!own.isnull)
		return own.value;
	return before == NULL ? CStringGetTextDatum("") : before->account;
}

/*
 * The receipt of this trade on this account, or one that was recorded for the same
 * payment while its account was unknown.
 */
static Receipt *
find_trade(IdemCall *call, const Report *report, Datum account)
{
	Datum		keys[] = {call->tenant_id, report->fact.channel, account, report->fact.trade_no};
	Receipt    *receipt = receipt_look_settled(call, &receipt_by_trade, keys, lengthof(keys));

	if (receipt != NULL || receipt_is_empty(account))
		return receipt;
	keys[2] = CStringGetTextDatum("");
	receipt = receipt_look_settled(call, &receipt_by_trade, keys, lengthof(keys));
	return receipt != NULL && receipt_is_for(receipt, report->fact.payment_no) ? receipt : NULL;
}


/* ---------- names ---------- */

static void
lock_names(IdemCall *call, const Report *report, const Payment *payment)
{
	Datum		payment_nos[2];
	int			n = 0;

	if (payment != NULL)
		idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, payment->order_id);
	else
		payment_nos[n++] = report->fact.payment_no;
	if (!report->also.isnull)
		payment_nos[n++] = report->also.value;
	idem_lock_names(call, IDEM_NAME_PAYMENT, call->tenant_id, payment_nos, n);
	receipt_lock_trade(call, report->fact.channel, report->fact.trade_no);
}

/*
 * Take a receipt without a payment, to use it again, and the anomaly that says
 * so: whoever sends the money back holds it and waits for our names.  NULL: the
 * names are unlocked, begin again.
 */
static Receipt *
take_again(IdemCall *call, Report *report, const Payment *payment, const Receipt *seen)
{
	Datum		name = seen->reported_payment_no;
	bool		has_name = (payment == NULL && idem_same_text(name, report->fact.payment_no)) ||
		(!report->also.isnull && idem_same_text(name, report->also.value));
	const char *kind = receipt_disposition_names[seen->disposition];
	bool		is_free = anomaly_try_lock(call, kind, "receipt", seen->receipt_no);

	if (has_name && is_free)
		return receipt_take(call, seen);
	report->also = IDEM_VALUE(name);
	(void) scene_step_back(call);
	if (!is_free)
		(void) anomaly_lock(call, kind, "receipt", seen->receipt_no);
	return NULL;
}


/* ---------- the outcomes ---------- */

static Receipt *
new_receipt(IdemCall *call, const Report *report, Datum account)
{
	Receipt    *receipt = palloc0(sizeof(Receipt));

	ItemPointerSetInvalid(&receipt->tid);
	receipt->receipt_no = idem_make_no(call);
	receipt->payment_no = IDEM_NULL;
	receipt->order_id = IDEM_NULL;
	receipt->channel = report->fact.channel;
	receipt->account = account;
	receipt->trade_no = report->fact.trade_no;
	receipt->reported_payment_no = report->fact.payment_no;
	receipt->amount = report->fact.amount;
	receipt->currency = report->fact.currency;
	receipt->paid_at = report->fact.paid_at;
	return receipt;
}

/* Does a receipt that is used again differ from what is reported now? */
static bool
is_unlike(const Receipt *receipt, const Report *report)
{
	if (receipt->amount.isnull != report->fact.amount.isnull ||
		!idem_same_nullable(receipt->currency, report->fact.currency))
		return true;
	return !receipt->amount.isnull &&
		DatumGetInt64(receipt->amount.value) != DatumGetInt64(report->fact.amount.value);
}

/*
 * Rules 1 and 3: keep the money without a payment, as rejected or orphan.  All
 * of it is done under the names, so that whoever creates the payment meanwhile
 * meets it.
 */
static const char *
keep_apart(IdemCall *call, const Report *report, const Scene *scene, Receipt *receipt,
		   ReceiptDisposition disposition)
{
	const char *outcome = receipt_disposition_names[disposition];
	bool		is_new = !ItemPointerIsValid(&receipt->tid);
	bool		is_other = !is_new && receipt->disposition != disposition;

	if (is_other)
		receipt_resolve_anomaly(call, receipt_disposition_names[receipt->disposition],
								receipt, outcome, IDEM_NULL);
	receipt->disposition = disposition;
	if ((is_new || is_other) && !receipt_write(call, receipt))
		return NULL;
	receipt_open_anomaly(call, outcome, receipt);
	idem_unlock_names(call);
	scene_answer(scene, receipt, NULL, report->answer);
	return outcome;
}

/*
 * The other half of rule 2: the trade is another payment's money, and stays
 * it; or this one's, on an account that was unknown, and is refused now that it
 * is named.  There is nothing to keep but the claim.
 */
static const char *
reject_claim(IdemCall *call, const Report *report, const Scene *scene, Datum account)
{
	idem_unlock_names(call);
	anomaly_open(call, "rejected", "payment", report->fact.payment_no,
				 scene->payment == NULL ? IDEM_NULL : IDEM_VALUE(scene->payment->order_id),
				 receipt_detail(call, new_receipt(call, report, account), report->fact.payment_no));
	scene_answer(scene, NULL, NULL, report->answer);
	return "rejected";
}

/* Money that is on its way back, or disputed, is left alone */
static const char *
leave_alone(IdemCall *call, const Report *report, const Scene *scene,
			const Receipt *receipt)
{
	Settlement	settlement = {0};

	idem_unlock_names(call);
	settlement.refund = refund_look_automatic(call, receipt->receipt_no);
	settlement.closing_payment_no = IDEM_NULL;
	scene_answer(scene, receipt, &settlement, report->answer);
	return receipt_disposition_names[receipt->disposition];
}

static const char *
answer_duplicate(IdemCall *call, const Report *report, Payment *payment,
				 const Receipt *receipt)
{
	idem_unlock_names(call);
	scene_answer_settled(call, payment, receipt, report->answer);
	return "duplicate";
}


/* ---------- decide ---------- */

/*
 * Rules 1 to 7, with scene and names locked.  NULL: begin again.
 */
static const char *
decide(IdemCall *call, Report *report, Scene *scene)
{
	Payment    *payment = scene->payment;
	Receipt    *before = look_before(call, report, payment);
	Datum		account = account_of(report, payment, before);
	bool		refused = receipt_account_refused(call, payment, !report->fact.account.isnull,
												  report->fact.channel, account);
	bool		is_own = payment != NULL && before != NULL && !refused;
	Receipt    *receipt = is_own ? NULL : find_trade(call, report, account);
	Settlement	settlement;

	if (TransactionIdIsValid(call->rival))
		return NULL;
	if (is_own)
		return answer_duplicate(call, report, payment, before);
	if (receipt != NULL && !receipt->payment_no.isnull)
		return reject_claim(call, report, scene, account);

	if (receipt == NULL)
		receipt = new_receipt(call, report, account);
	else if ((receipt = take_again(call, report, payment, receipt)) == NULL)
		return NULL;
	else if (receipt_is_spoken_for(receipt))
		return leave_alone(call, report, scene, receipt);

	if (refused)
		return keep_apart(call, report, scene, receipt, RECEIPT_REJECTED);
	if (payment == NULL)
		return keep_apart(call, report, scene, receipt, RECEIPT_ORPHAN);

	if (!scene_settle(call, scene, receipt, is_unlike(receipt, report), &settlement))
		return NULL;
	scene_answer(scene, receipt, &settlement, report->answer);
	return settlement.outcome;
}

/* One attempt; NULL: somebody was at work on the same, begin again */
static const char *
try_confirm(IdemCall *call, Report *report)
{
	const char *outcome = NULL;
	Scene		scene;

	(void) scene_lock(call, report->fact.payment_no, &scene);
	lock_names(call, report, scene.payment);
	if (scene_stands(call, report->fact.payment_no, &scene))
		outcome = decide(call, report, &scene);
	if (outcome == NULL)
		(void) scene_step_back(call);
	return outcome;
}

/*
 * Rule 2 without any lock, for the most frequent report of all: one that was
 * already heard.  NULL: it was not.
 */
static const char *
recognize(IdemCall *call, const Report *report)
{
	Receipt    *receipt = receipt_look_own(call, report->fact.payment_no, report->fact.channel,
										   report->fact.trade_no, IDEM_SIGHT_LATEST);
	Payment    *payment;

	if (receipt == NULL)
		return NULL;
	payment = payment_look(call, report->fact.payment_no, IDEM_SIGHT_LATEST);
	if (payment == NULL ||
		receipt_account_refused(call, payment, !report->fact.account.isnull, report->fact.channel,
								account_of(report, payment, receipt)))
		return NULL;
	return answer_duplicate(call, report, payment, receipt);
}

void
receipt_confirm(IdemCall *call, const ReceiptFact *fact, ReceiptAnswer *answer)
{
	Report		report = {*fact, answer, IDEM_NULL};
	Datum		upper_case;

	if (!fact->currency.isnull && idem_is_currency(fact->currency.value, &upper_case))
		report.fact.currency = IDEM_VALUE(upper_case);

	idem_hold_moment(call);
	answer->outcome = recognize(call, &report);
	idem_let_moment_go(call);
	while (answer->outcome == NULL)
		answer->outcome = try_confirm(call, &report);
}

void
receipt_recall(IdemCall *call, const ReceiptFact *fact, ReceiptAnswer *answer)
{
	Scene		scene = {0};
	Settlement	settlement = {.closing_payment_no = IDEM_NULL};
	Receipt    *receipt;

	idem_hold_moment(call);
	receipt = receipt_look_own(call, fact->payment_no, fact->channel, fact->trade_no,
							   IDEM_SIGHT_LATEST);
	/* money that is applied has paid its payment, and nothing leaves paid */
	if (receipt == NULL || receipt->disposition != RECEIPT_APPLIED)
		scene.payment = payment_look(call, fact->payment_no, IDEM_SIGHT_LATEST);
	if (receipt != NULL)
		settlement.refund = refund_look_reserved(call, receipt);
	idem_let_moment_go(call);
	scene_answer(&scene, receipt, &settlement, answer);
	if (receipt != NULL && receipt->disposition == RECEIPT_APPLIED)
		answer->status = payment_status_names[PAYMENT_PAID];
}

/*
 * idem_confirm_payment(tenant_id, payment_no, channel, trade_no, amount,
 *	 currency, account, paid_at)
 *	 -> (outcome, status, receipt_no, refund_no, order_status, version,
 *		 closing_payment_no)
 *
 * A fact.  Outcomes: paid, duplicate, late, surplus, mismatch, orphan,
 * rejected.
 */
PG_FUNCTION_INFO_V1(idem_confirm_payment);
Datum
idem_confirm_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	ReceiptFact fact = {
		.payment_no = idem_arg_fact_key(call, ARG_PAYMENT_NO),
		.channel = idem_arg_fact_key(call, ARG_CHANNEL),
		.trade_no = idem_arg_fact_key(call, ARG_TRADE_NO),
		.amount = idem_arg(call, ARG_AMOUNT),
		.currency = idem_arg(call, ARG_CURRENCY),
		.account = idem_arg_optional_fact_key(call, ARG_ACCOUNT),
		.paid_at = idem_arg(call, ARG_PAID_AT)
	};
	ReceiptAnswer answer;

	receipt_confirm(call, &fact, &answer);
	receipt_put_answer(call, &answer);
	return idem_leave(call, answer.outcome);
}
