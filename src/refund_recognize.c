/*-------------------------------------------------------------------------
 * refund_recognize.c
 *	  What of a channel's word on a refund can be answered from a look.
 *
 * A fact is told many times, and all but the first change nothing: those take
 * no lock.  So the same questions are asked twice, of what is committed, and once
 * more of what is locked: is it nonsense, is it about something else than it
 * says, is it where the refund is already?  They take several looks.  Without a
 * lock those are of one moment, else a refund that is written in between is one
 * that nobody knows to the first look, and has taken the number to the next.
 *
 * Whatever fits nothing is kept in an anomaly, which says all that came.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "refund_settle.h"


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
Datum
settle_key(const Settle *settle)
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

void
settle_open_anomaly(IdemCall *call, const Settle *settle, const char *kind)
{
	anomaly_open(call, kind, "refund", settle_key(settle), order_of(settle), describe(call, settle));
}

void
settle_open_over_refund(IdemCall *call, const Settle *settle)
{
	receipt_open_over_refund(call, settle->receipt, describe(call, settle));
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
bool
refund_is_other_currency(const RefundFact *fact, NullableDatum currency)
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
bool
settle_is_another(IdemCall *call, const Settle *settle, IdemSight sight)
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
		!settle_is_another(call, settle, IDEM_SIGHT_LATEST);
}

/* Does the fact name a refund, and not only say how much went back? */
bool
refund_is_named(const RefundFact *fact)
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
		refund_is_other_currency(fact, settle->receipt->currency))
		return false;
	if (fact->cumulative && settle->result != RESULT_SUCCEEDED)
		return false;
	if (!refund_is_named(fact))
		return fact->cumulative;
	if (refund_look(call, number.value, IDEM_SIGHT_LATEST) != NULL)
		return false;
	return !refund_is_automatic_no(number.value) ||
		idem_same_text(number.value, refund_automatic_no(settle->receipt->receipt_no));
}


/* ---------- recognize ---------- */

/* Is there a channel's number to be learnt? */
bool
settle_learns_number(const Settle *settle)
{
	return settle->refund->channel_refund_no.isnull && !settle->fact->channel_refund_no.isnull;
}

/* Is it news when that succeeded which has come back since? */
bool
settle_learns_success(const Settle *settle)
{
	const Refund *refund = settle->refund;
	NullableDatum at = settle->fact->occurred_at;

	return settle->result == RESULT_SUCCEEDED && refund->status == REFUND_REVERSED &&
		!at.isnull && refund->succeeded_at.isnull;
}

/* Does it say how much of the receipt went back in all? */
bool
settle_tells_sum(const Settle *settle)
{
	const RefundFact *fact = settle->fact;

	return fact->cumulative && settle->result == RESULT_SUCCEEDED && is_amount(fact->amount) &&
		!refund_is_other_currency(fact, settle->receipt->currency);
}

static bool
tells_new_sum(const Settle *settle)
{
	return settle_tells_sum(settle) && refund_sum_is_news(settle->fact, settle->receipt);
}

/* What is answered of a refund of which nothing has to be booked */
const char *
settle_outcome_unbooked(const Settle *settle)
{
	/* what explains the sum can still turn out not to */
	return settle->fact->cumulative &&
		DatumGetInt64(settle->fact->amount.value) > settle->receipt->refunded ?
		"kept" : "duplicate";
}

static SettleAnswer
recognize_unknown(IdemCall *call, const Settle *settle)
{
	if (settle->result == RESULT_TIMEOUT)
		return (SettleAnswer) {"orphan", "refund_unmatched"};
	if (!is_adoptable(call, settle))
		return (SettleAnswer) {"kept", "refund_unmatched"};
	if (settle->money == NULL && settle_tells_sum(settle) && !tells_new_sum(settle) &&
		refund_sum_gap(call, settle->receipt) == 0)
		return (SettleAnswer) {settle_outcome_unbooked(settle), NULL};
	return (SettleAnswer) {NULL, NULL};
}

SettleAnswer
settle_recognize(IdemCall *call, const Settle *settle)
{
	const char *nonsense = find_nonsense(settle);
	RefundVerdict verdict;

	if (nonsense != NULL)
		return (SettleAnswer) {"kept", nonsense};
	if (settle->receipt == NULL)
		return (SettleAnswer) {"orphan", "refund_unmatched"};
	if (settle->refund == NULL)
		return recognize_unknown(call, settle);
	if (!is_matched(call, settle))
		return (SettleAnswer) {"kept", "refund_unmatched"};
	verdict = refund_judge(call, settle->refund, settle->fact, settle->result);
	if (refund_is_move(&verdict) || verdict.asks_again || settle_learns_number(settle) ||
		settle_learns_success(settle) || tells_new_sum(settle))
		return (SettleAnswer) {NULL, NULL};
	return (SettleAnswer) {verdict.outcome, NULL};
}
