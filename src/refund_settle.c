/*-------------------------------------------------------------------------
 * refund_settle.c
 *	  What became of a refund.
 *
 * A channel tells of a refund when it likes: before our own transaction that
 * asked for it has committed, twice, in the wrong order, under its number or
 * under ours, and also of refunds that somebody started at its console.  All of
 * that happened; none of it may be refused or counted twice.
 *
 * 1. Find the refund, by our number or the channel's.  One that is where the
 *	  fact leads, or beyond, is answered from the look.
 * 2. If nobody knows it, find the money it came from: by trade, else by
 *	  payment.  Whoever is just writing the refund or the receipt is awaited.
 * 3. Lock the order's gate, where the money may move the order; the receipt;
 *	  the refund.  Then, for a number that is written for the first time, its
 *	  name, and look dirty for it once more.
 * 4. Book the money and move the refund, on a fact edge if need be.
 * 5. Note the sum, if one was told, and book what of the latest sum nothing
 *	  explains any more: see refund_sum.c.
 *
 * What came late or came twice is told by time: a failure older than the last
 * submit is that of an earlier attempt; a success older than a failure that
 * takes successes back was taken back.  So the end does not depend on the order
 * of arrival.
 *
 * What exceeds the receipt is booked all the same, as its excess, with an
 * anomaly.  What cannot be booked, since it names no amount, or what belongs to
 * something else, is kept in an anomaly and changes nothing.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "entitlement.h"
#include "refund_settle.h"

#include "access/transam.h"

/* What is known, and later locked, of the thing that a fact is about */
typedef struct Settle
{
	const RefundFact *fact;
	RefundResult result;
	const Receipt *money;		/* what it is about, if that need not be found */
	Refund	   *refund;			/* NULL: unknown */
	Receipt    *receipt;		/* that its money came from; NULL: unknown */
	Order	   *order;			/* locked, if its row may have to follow; NULL: none */
	Datum		number;			/* of one that is to be adopted, */
	int64		amount;			/* and what of it: 0 if it is booked already */
	bool		is_done;		/* under the locks, and not only answered */
} Settle;


/* ---------- what fits nothing ---------- */

/* What a human will see of the fact */
static NullableDatum
describe(IdemCall *call, const Settle *settle)
{
	const RefundFact *fact = settle->fact;
	AnomalyDetail *detail = anomaly_detail(call);

	anomaly_detail_text(detail, "result", IDEM_TEXT(fact->result));
	anomaly_detail_text(detail, "refund_no", fact->refund_no);
	anomaly_detail_text(detail, "channel_refund_no", fact->channel_refund_no);
	anomaly_detail_text(detail, "payment_no", fact->payment_no);
	anomaly_detail_text(detail, "channel", fact->channel);
	anomaly_detail_text(detail, "account", fact->account);
	anomaly_detail_text(detail, "trade_no", fact->trade_no);
	anomaly_detail_amount(detail, fact->cumulative ? "cumulative_amount" : "amount", fact->amount);
	anomaly_detail_text(detail, "currency", fact->currency);
	if (settle->refund != NULL)
		anomaly_detail_amount(detail, "our_amount", IDEM_VALUE(Int64GetDatum(settle->refund->amount)));
	return anomaly_detail_done(detail);
}

static NullableDatum
order_of(const Settle *settle)
{
	return settle->receipt == NULL ? IDEM_NULL : settle->receipt->order_id;
}

/* The number that the fact's refund has or would have, or what else there is */
static Datum
key_of(const Settle *settle)
{
	const RefundFact *fact = settle->fact;
	NullableDatum number;

	if (settle->refund != NULL)
		return settle->refund->refund_no;
	number = refund_number_of(fact, settle->receipt);
	if (!number.isnull)
		return number.value;
	if (idem_is_given(fact->trade_no))
		return fact->trade_no.value;
	return idem_is_given(fact->payment_no) ? fact->payment_no.value : CStringGetTextDatum("");
}

static void
open_anomaly(IdemCall *call, const Settle *settle, const char *kind)
{
	anomaly_open(call, kind, "refund", key_of(settle), order_of(settle), describe(call, settle));
}

/* The receipt's refunds and disputes exceed it */
static void
open_over_refund(IdemCall *call, const Settle *settle)
{
	anomaly_open(call, "over_refund", "receipt", settle->receipt->receipt_no,
				 settle->receipt->order_id, describe(call, settle));
}

static bool
is_empty(NullableDatum text)
{
	return !text.isnull && !idem_is_given(text);
}

static bool
is_amount(NullableDatum amount)
{
	return !amount.isnull && DatumGetInt64(amount.value) > 0;
}

/*
 * What is wrong with a fact as such, as the kind of the anomaly; NULL: nothing.
 */
static const char *
find_nonsense(const Settle *settle)
{
	const RefundFact *fact = settle->fact;
	Datum		upper_case;

	if (settle->result == RESULT_UNKNOWN)
		return "unmapped_event";
	if (is_empty(fact->refund_no) || is_empty(fact->channel_refund_no) ||
		is_empty(fact->payment_no) || is_empty(fact->channel) || is_empty(fact->trade_no))
		return "refund_unmatched";
	if ((fact->amount.isnull || is_amount(fact->amount)) &&
		(fact->currency.isnull || idem_is_currency(fact->currency.value, &upper_case)))
		return NULL;
	return settle->refund != NULL ? "refund_amount_differs" : "refund_unmatched";
}

/* Is it said in another currency than the money came in? */
static bool
is_other_currency(const RefundFact *fact, NullableDatum currency)
{
	Datum		upper_case;

	if (fact->currency.isnull)
		return false;
	return currency.isnull || !idem_is_currency(fact->currency.value, &upper_case) ||
		!idem_same_text(upper_case, currency.value);
}

/*
 * The channel's number is another refund's already: one of the two is not what
 * it seems, and booking this one could book it twice.
 */
static bool
is_another(IdemCall *call, const Settle *settle, IdemSight sight)
{
	const Refund *refund = settle->refund;
	NullableDatum said = settle->fact->channel_refund_no;
	Refund	   *other;

	if (said.isnull || idem_same_nullable(said, refund->channel_refund_no))
		return false;
	other = refund_look_at_channel(call, refund->channel, refund->account, said.value, sight);
	return other != NULL && !idem_same_text(other->refund_no, refund->refund_no);
}

/* What we know under our number agrees with what is said */
static bool
is_matched(IdemCall *call, const Settle *settle)
{
	return refund_fact_fits(settle->fact, settle->receipt) &&
		!is_another(call, settle, IDEM_SIGHT_LATEST);
}

/* Does the fact name a refund, and not only say how much went back? */
static bool
is_named(const RefundFact *fact)
{
	return idem_is_given(fact->refund_no) || idem_is_given(fact->channel_refund_no);
}

/*
 * Can an unknown refund be taken over?  It needs an amount that can be told
 * from the sum, in the receipt's currency, and a number that is free and not
 * that of another receipt's automatic refund.
 */
static bool
is_adoptable(IdemCall *call, const Settle *settle)
{
	const RefundFact *fact = settle->fact;
	NullableDatum number = refund_number_of(fact, settle->receipt);

	if (!is_amount(fact->amount) || settle->receipt->currency.isnull ||
		is_other_currency(fact, settle->receipt->currency))
		return false;
	if (fact->cumulative && settle->result != RESULT_SUCCEEDED)
		return false;
	if (!is_named(fact))
		return fact->cumulative;
	if (refund_look(call, number.value, IDEM_SIGHT_LATEST) != NULL)
		return false;
	return !refund_is_automatic_no(number.value) ||
		idem_same_text(number.value, refund_automatic_no(settle->receipt->receipt_no));
}

static const char *
keep(IdemCall *call, const Settle *settle, const char *kind, const char *outcome)
{
	idem_unlock_names(call);
	open_anomaly(call, settle, kind);
	return outcome;
}


/* ---------- recognize ---------- */

/* Is there a channel's number to be learnt? */
static bool
learns_number(const Settle *settle)
{
	return settle->refund->channel_refund_no.isnull && !settle->fact->channel_refund_no.isnull;
}

/* Does it say how much of the receipt went back in all? */
static bool
tells_sum(const Settle *settle)
{
	const RefundFact *fact = settle->fact;

	return fact->cumulative && settle->result == RESULT_SUCCEEDED && is_amount(fact->amount) &&
		!is_other_currency(fact, settle->receipt->currency);
}

static bool
tells_new_sum(const Settle *settle)
{
	return tells_sum(settle) && refund_sum_is_news(settle->fact, settle->receipt);
}

/* What is answered of a refund of which nothing has to be booked */
static const char *
outcome_unbooked(const Settle *settle)
{
	/* what explains the sum can still turn out not to */
	return settle->fact->cumulative &&
		DatumGetInt64(settle->fact->amount.value) > settle->receipt->refunded ?
		"kept" : "duplicate";
}

static const char *
recognize_unknown(IdemCall *call, const Settle *settle)
{
	if (settle->result == RESULT_TIMEOUT)
		return keep(call, settle, "refund_unmatched", "orphan");
	if (!is_adoptable(call, settle))
		return keep(call, settle, "refund_unmatched", "kept");
	if (tells_sum(settle) && !tells_new_sum(settle) && refund_sum_gap(call, settle->receipt) == 0)
		return outcome_unbooked(settle);
	return NULL;
}

/*
 * What may be answered without a lock, from what is committed; NULL: there is
 * something to do.  Asked again once everything is locked.
 */
static const char *
recognize(IdemCall *call, const Settle *settle)
{
	const char *nonsense = find_nonsense(settle);
	RefundVerdict verdict;

	if (nonsense != NULL)
		return keep(call, settle, nonsense, "kept");
	if (settle->receipt == NULL)
		return keep(call, settle, "refund_unmatched", "orphan");
	if (settle->refund == NULL)
		return recognize_unknown(call, settle);
	if (!is_matched(call, settle))
		return keep(call, settle, "refund_unmatched", "kept");
	verdict = refund_judge(call, settle->refund, settle->fact, settle->result);
	if (refund_is_move(&verdict) || verdict.asks_again || learns_number(settle) ||
		tells_new_sum(settle))
		return NULL;
	return verdict.outcome;
}


/* ---------- move ---------- */

/* For the entitlements that were granted for the money */
static void
follow_entitlements(IdemCall *call, const Settle *settle)
{
	const Receipt *receipt = settle->receipt;

	if (!receipt->amount.isnull)
		entitlement_follow_refund(call, receipt->receipt_no, receipt->refunded,
								  DatumGetInt64(receipt->amount.value),
								  settle->refund->refund_no);
}

/* All that depends on how much of the receipt went back */
static void
follow_money(IdemCall *call, Settle *settle)
{
	if (settle->order != NULL && settle->receipt->disposition == RECEIPT_APPLIED)
		order_follow_money(call, settle->order, settle->receipt);
	follow_entitlements(call, settle);
}

/* Money that could pay nothing has gone back: nothing is left to be done */
static void
resolve_cured(IdemCall *call, const Settle *settle)
{
	const Receipt *receipt = settle->receipt;
	bool		cured = receipt_is_refunded(receipt) ||
		idem_same_text(settle->refund->refund_no, refund_automatic_no(receipt->receipt_no));

	if (cured && (receipt->disposition == RECEIPT_LATE || receipt->disposition == RECEIPT_SURPLUS))
		receipt_resolve_anomaly(call, receipt_disposition_names[receipt->disposition], receipt,
								"refund", IDEM_NULL);
}

static void
succeed(IdemCall *call, Settle *settle)
{
	Refund	   *refund = settle->refund;
	int64		reserve = refund_holds_reserve(refund) ? 0 : refund->amount;

	receipt_book(call, settle->receipt, reserve, refund->amount, 0);
	refund->next_check_at = IDEM_NULL;
	refund->takes_back = false;
	refund_move(call, refund, REFUND_SUCCEEDED);
	idem_unlock_names(call);
	follow_money(call, settle);
	resolve_cured(call, settle);
}

static void
reverse(IdemCall *call, Settle *settle)
{
	receipt_book(call, settle->receipt, -settle->refund->amount, -settle->refund->amount, 0);
	refund_move(call, settle->refund, REFUND_REVERSED);
	idem_unlock_names(call);
	follow_money(call, settle);
	open_anomaly(call, settle, "refund_reversed");
}

static void
fail(IdemCall *call, Settle *settle)
{
	Refund	   *refund = settle->refund;
	RefundStatus to = refund_failed_status(settle->result);

	if (to != REFUND_ABNORMAL)
		receipt_book(call, settle->receipt, -refund->amount, 0, 0);
	refund->next_check_at = IDEM_NULL;
	refund->takes_back = settle->fact->reversing;
	refund_move(call, refund, to);
	idem_unlock_names(call);
	if (to == REFUND_ABNORMAL)
		open_anomaly(call, settle, "refund_abnormal");
}

/* A known refund is booked at our amount, whatever was said */
static bool
differs(const Settle *settle)
{
	const RefundFact *fact = settle->fact;

	if (!fact->cumulative && !fact->amount.isnull &&
		DatumGetInt64(fact->amount.value) != settle->refund->amount)
		return true;
	return is_other_currency(fact, IDEM_VALUE(settle->refund->currency));
}

static void
move(IdemCall *call, Settle *settle, const RefundVerdict *verdict)
{
	Refund	   *refund = settle->refund;
	bool		was_abnormal = refund->status == REFUND_ABNORMAL;
	bool		was_taken_back = verdict->reverses && settle->result == RESULT_SUCCEEDED;

	/* this success is the older of the two */
	if (!was_taken_back)
		refund->settled_at = settle->fact->occurred_at;
	if (verdict->succeeds)
		succeed(call, settle);
	if (verdict->reverses)
		reverse(call, settle);
	if (verdict->fails)
		fail(call, settle);
	if (was_abnormal)
		anomaly_resolve(call, "refund_abnormal", "refund", refund->refund_no,
						refund_status_names[refund->status], IDEM_NULL);
}

/*
 * Do what the verdict says about a refund whose scene is locked.  excess:
 * the receipt's before this fact.
 */
static const char *
carry_out(IdemCall *call, Settle *settle, int64 excess)
{
	RefundVerdict verdict = refund_judge(call, settle->refund, settle->fact, settle->result);
	Refund	   *refund = settle->refund;
	bool		learns = learns_number(settle);

	if (verdict.succeeds && !refund_holds_reserve(refund) &&
		!receipt_can_book(settle->receipt, refund->amount, 0))
	{
		idem_unlock_names(call);
		open_over_refund(call, settle);
		return "kept";
	}
	if (learns ||
		(refund_is_move(&verdict) && !settle->fact->channel_refund_no.isnull))
		refund->channel_refund_no = settle->fact->channel_refund_no;
	if (verdict.asks_again)
		refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now));

	if (!refund_is_move(&verdict))
	{
		if (learns || verdict.asks_again)
			refund_store(call, refund);
		idem_unlock_names(call);
		return verdict.outcome;
	}
	move(call, settle, &verdict);
	if (differs(settle))
		open_anomaly(call, settle, "refund_amount_differs");
	if (settle->receipt->excess > excess)
		open_over_refund(call, settle);
	return verdict.outcome;
}

/* What was said of this refund while nobody knew it or its money is cured */
static void
resolve_unmatched(IdemCall *call, const Settle *settle)
{
	Settle		unknown = {.fact = settle->fact};

	anomaly_resolve(call, "refund_unmatched", "refund", key_of(&unknown), "adopted", IDEM_NULL);
}

/* Take over a refund that was started elsewhere; NULL: begin again */
static const char *
adopt(IdemCall *call, Settle *settle)
{
	const char *outcome;
	int64		amount = settle->amount;
	int64		excess = settle->receipt->excess;
	Refund	   *refund = refund_of_receipt(settle->receipt, settle->number, amount, "channel",
										   IDEM_NULL);

	if (!receipt_can_book(settle->receipt, amount, 0))
	{
		idem_unlock_names(call);
		open_over_refund(call, settle);
		return "kept";
	}
	refund->channel_refund_no = settle->fact->channel_refund_no;
	if (!refund_insert(call, refund))
		return NULL;
	idem_unlock_names(call);
	receipt_book(call, settle->receipt, amount, 0, 0);
	settle->refund = refund;
	outcome = carry_out(call, settle, excess);
	if (settle->money == NULL)
		resolve_unmatched(call, settle);
	return outcome;
}


/* ---------- lock ---------- */

/*
 * Can the fact change how much of the money went back?  A failure can: what a
 * sum contains was not that refund, then.
 */
static bool
moves_money(const Settle *settle)
{
	return settle->result != RESULT_TIMEOUT;
}

/* Lock the receipt, and before it the order that may have to follow; NULL: begin again */
static Receipt *
lock_receipt(IdemCall *call, Settle *settle)
{
	const Receipt *seen = settle->receipt;

	settle->order = NULL;
	if (moves_money(settle) && seen->purchase_no == 1)
		(void) order_lock_gate(call, seen->order_id.value, &settle->order);
	return receipt_lock_seen(call, seen);
}

/*
 * Of a refund that nobody knows: what of it is not booked yet.  It can turn out
 * to be a nameless one of a sum, or part of several.
 */
static void
reckon(IdemCall *call, Settle *settle)
{
	const RefundFact *fact = settle->fact;
	const Receipt *receipt = settle->receipt;
	Refund	   *same = NULL;
	int64		nameless;

	settle->amount = DatumGetInt64(fact->amount.value);
	if (fact->cumulative)
		settle->amount = refund_sum_gap_told(call, fact, receipt);
	else
	{
		nameless = refund_sum_nameless(call, fact, settle->result, receipt, &same);
		if (settle->result == RESULT_SUCCEEDED)
			settle->amount -= Min(settle->amount, nameless);
	}
	settle->refund = same;
	settle->number = is_named(fact) ? refund_number_of(fact, receipt).value :
		refund_sum_number(call, receipt, receipt->refunded + settle->amount);
}

/* Lock the names under which a number of ours or of the channel's is written */
static void
lock_numbers(IdemCall *call, const Settle *settle)
{
	const Receipt *receipt = settle->receipt;
	NullableDatum at_channel = settle->fact->channel_refund_no;
	Datum		names[2];
	int			n = 0;

	if (settle->refund == NULL)
		names[n++] = settle->number;
	if (!at_channel.isnull)
		names[n++] = CStringGetTextDatum(psprintf("%s/%s/%s", TextDatumGetCString(receipt->channel),
												  TextDatumGetCString(receipt->account),
												  TextDatumGetCString(at_channel.value)));
	idem_lock_names(call, IDEM_NAME_REFUND, call->tenant_id, names, n);
}

/*
 * Lock everything.  false: it is not as it was seen, or somebody is at work on
 * a number of it.
 */
static bool
lock_all(IdemCall *call, Settle *settle)
{
	bool		is_known = settle->refund != NULL;
	Refund	   *found;

	settle->receipt = lock_receipt(call, settle);
	if (settle->receipt == NULL)
		return false;
	if (!is_known)
		reckon(call, settle);
	if (settle->refund != NULL)
		settle->refund = refund_lock(call, settle->refund->refund_no);

	lock_numbers(call, settle);
	found = refund_find(call, settle->fact, settle->receipt, IDEM_SIGHT_DIRTY);
	if (settle->refund != NULL)
		(void) is_another(call, settle, IDEM_SIGHT_DIRTY);
	else if (found == NULL)
		found = refund_look(call, settle->number, IDEM_SIGHT_DIRTY);
	return !TransactionIdIsValid(call->rival) && (found != NULL) == is_known;
}


/* ---------- settle ---------- */

/* Find what the fact is about */
static void
look_around(IdemCall *call, Settle *settle, IdemSight sight)
{
	settle->receipt = NULL;
	settle->refund = refund_find(call, settle->fact, NULL, sight);
	if (settle->money != NULL)
		settle->receipt = receipt_look(call, settle->money->receipt_no, sight);
	else if (settle->refund == NULL)
	{
		settle->receipt = refund_find_receipt(call, settle->fact, sight);
		if (settle->receipt != NULL)
			settle->refund = refund_find(call, settle->fact, settle->receipt, sight);
	}
	/* the number is what counts: the money may have come elsewhere than is said */
	if (settle->refund != NULL)
		settle->receipt = receipt_look(call, settle->refund->receipt_no, IDEM_SIGHT_LATEST);
}

/* With everything locked: book it, and note the sum; NULL: begin again */
static const char *
settle_locked(IdemCall *call, Settle *settle)
{
	const char *outcome;

	if (settle->refund != NULL)
		outcome = carry_out(call, settle, settle->receipt->excess);
	else
		outcome = settle->amount > 0 ? adopt(call, settle) : "";
	if (outcome == NULL || strcmp(outcome, "kept") == 0)
		return outcome;

	idem_unlock_names(call);
	settle->is_done = true;
	if (tells_sum(settle))
		refund_sum_note(call, settle->fact, settle->receipt);
	return settle->refund != NULL ? outcome : outcome_unbooked(settle);
}

/* One attempt; NULL: begin again */
static const char *
try_settle(IdemCall *call, Settle *settle)
{
	const char *outcome;

	look_around(call, settle, IDEM_SIGHT_LATEST);
	if (settle->refund == NULL)
	{
		/* perhaps somebody is just writing it */
		look_around(call, settle, IDEM_SIGHT_DIRTY);
		if (TransactionIdIsValid(call->rival))
			return NULL;
	}
	outcome = recognize(call, settle);
	if (outcome != NULL)
		return outcome;
	if (!lock_all(call, settle))
		return NULL;
	outcome = recognize(call, settle);
	if (outcome != NULL)
		return outcome;
	return settle_locked(call, settle);
}

static const char *
settle_once(IdemCall *call, Settle *settle)
{
	const char *outcome;

	while ((outcome = try_settle(call, settle)) == NULL)
		(void) scene_step_back(call);
	idem_unlock_names(call);
	return outcome;
}

/* Book what of the latest sum nothing explains any more, without a name */
static void
cover_sum(IdemCall *call, Settle *settle)
{
	const Receipt *receipt = settle->receipt;
	int64		gap = refund_sum_gap(call, receipt);
	RefundFact	fact = {
		.refund_no = IDEM_NULL,
		.payment_no = receipt->payment_no,
		.channel = IDEM_NULL,
		.account = IDEM_NULL,
		.trade_no = IDEM_NULL,
		.channel_refund_no = IDEM_NULL,
		.amount = IDEM_VALUE(Int64GetDatum(receipt->refunded + gap)),
		.currency = receipt->currency,
		.occurred_at = receipt->refund_told_at,
		.result = "succeeded",
		.cumulative = true
	};
	Settle		rest = {.fact = &fact, .result = RESULT_SUCCEEDED, .money = receipt};

	if (gap == 0)
		return;
	(void) settle_once(call, &rest);
	settle->receipt = rest.receipt;
}

static void
fill_answer(const Settle *settle, RefundAnswer *answer)
{
	const Refund *refund = settle->refund;
	const Receipt *receipt = settle->receipt;

	answer->refund_no = refund != NULL && refund_allows_act(refund) ?
		IDEM_VALUE(refund->refund_no) : IDEM_NULL;
	answer->status = refund == NULL ? NULL : refund_status_names[refund->status];
	answer->receipt_no = receipt == NULL ? IDEM_NULL : IDEM_VALUE(receipt->receipt_no);
	answer->payment_no = receipt == NULL ? IDEM_NULL : receipt->payment_no;
	answer->order_id = receipt == NULL ? IDEM_NULL : receipt->order_id;
	answer->remainder = receipt == NULL ? 0 : refund_remainder(receipt);
}

void
refund_settle(IdemCall *call, const RefundFact *fact, RefundAnswer *answer)
{
	Settle		settle = {0};

	settle.fact = fact;
	settle.result = refund_result(fact->result);
	answer->outcome = settle_once(call, &settle);
	if (settle.is_done)
		cover_sum(call, &settle);
	fill_answer(&settle, answer);
}

/* The arguments of idem_settle_refund, by position */
enum
{
	ARG_TENANT_ID, ARG_REFUND_NO, ARG_RESULT, ARG_CHANNEL_REFUND_NO, ARG_AMOUNT,
	ARG_OCCURRED_AT, ARG_PAYMENT_NO, ARG_CHANNEL, ARG_ACCOUNT, ARG_TRADE_NO, ARG_CURRENCY
};

static void
read_fact(IdemCall *call, RefundFact *fact)
{
	NullableDatum result = idem_arg(call, ARG_RESULT);

	memset(fact, 0, sizeof(RefundFact));
	fact->channel_refund_no = idem_arg_optional_fact_key(call, ARG_CHANNEL_REFUND_NO);
	/* a refund without any number cannot be told from the next one */
	fact->refund_no = fact->channel_refund_no.isnull ?
		IDEM_VALUE(idem_arg_fact_key(call, ARG_REFUND_NO)) :
		idem_arg_optional_fact_key(call, ARG_REFUND_NO);
	fact->result = result.isnull ? "" : TextDatumGetCString(result.value);
	fact->amount = idem_arg(call, ARG_AMOUNT);
	fact->occurred_at = idem_arg(call, ARG_OCCURRED_AT);
	fact->payment_no = idem_arg_optional_fact_key(call, ARG_PAYMENT_NO);
	fact->channel = idem_arg_optional_fact_key(call, ARG_CHANNEL);
	fact->account = idem_arg_optional_fact_key(call, ARG_ACCOUNT);
	fact->trade_no = idem_arg_optional_fact_key(call, ARG_TRADE_NO);
	fact->currency = idem_arg(call, ARG_CURRENCY);
}

/*
 * idem_settle_refund(tenant_id, refund_no, result, channel_refund_no, amount,
 *	 occurred_at, payment_no, channel, account, trade_no, currency)
 *	 -> (outcome, status, remainder)
 *
 * A fact.  Outcomes: applied, duplicate, stale, kept, orphan.
 */
PG_FUNCTION_INFO_V1(idem_settle_refund);
Datum
idem_settle_refund(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	RefundFact	fact;
	RefundAnswer answer;

	read_fact(call, &fact);
	refund_settle(call, &fact, &answer);
	if (answer.status != NULL)
		idem_put_text(call, 1, answer.status);
	if (!answer.receipt_no.isnull)
		idem_put(call, 2, Int64GetDatum(answer.remainder));
	return idem_leave(call, answer.outcome);
}
