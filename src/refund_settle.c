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
 *	  fact leads, or beyond, is answered from the look, which is of one moment.
 * 2. If nobody knows it, find the money it came from: by trade, else by
 *	  payment.  Then look dirty for both: whoever is just writing them is awaited,
 *	  and what he has written since that moment is looked at anew.
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
	if (settle->refund != NULL)
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

/* Is it not settled with this move how much went back? */
static bool
is_midway(const Settle *settle)
{
	return settle->is_midway || settle->share.cut != NIL;
}

static void
succeed(IdemCall *call, Settle *settle)
{
	Refund	   *refund = settle->refund;
	int64		reserve = refund_holds_reserve(refund) ? 0 : refund->amount;

	receipt_book(call, settle->receipt, reserve, refund->amount, 0);
	refund->next_check_at = IDEM_NULL;
	refund->takes_back = false;
	refund->succeeded_at = settle->result == RESULT_SUCCEEDED ?
		settle->fact->occurred_at : IDEM_NULL;
	refund_move(call, refund, REFUND_SUCCEEDED);
	idem_unlock_names(call);
	if (is_midway(settle))
		return;
	follow_money(call, settle);
	resolve_cured(call, settle);
}

static void
reverse(IdemCall *call, Settle *settle)
{
	receipt_book(call, settle->receipt, -settle->refund->amount, -settle->refund->amount, 0);
	refund_move(call, settle->refund, REFUND_REVERSED);
	idem_unlock_names(call);
	if (!is_midway(settle))
		follow_money(call, settle);
	settle_open_anomaly(call, settle, "refund_reversed");
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
		settle_open_anomaly(call, settle, "refund_abnormal");
}

/* A known refund is booked at our amount, whatever was said */
static bool
differs(const Settle *settle)
{
	const RefundFact *fact = settle->fact;

	if (!fact->cumulative && !fact->amount.isnull &&
		DatumGetInt64(fact->amount.value) != settle->refund->amount)
		return true;
	return refund_is_other_currency(fact, IDEM_VALUE(settle->refund->currency));
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

/* Do what the verdict says about a refund whose scene is locked */
static const char *
carry_out(IdemCall *call, Settle *settle)
{
	RefundVerdict verdict = refund_judge(call, settle->refund, settle->fact, settle->result);
	Refund	   *refund = settle->refund;
	bool		learns = settle_learns_number(settle);

	if (verdict.succeeds && !refund_holds_reserve(refund) &&
		!receipt_can_book(settle->receipt, refund->amount, 0))
	{
		idem_unlock_names(call);
		settle_open_over_refund(call, settle);
		return "kept";
	}
	if (learns ||
		(refund_is_move(&verdict) && !settle->fact->channel_refund_no.isnull))
		refund->channel_refund_no = settle->fact->channel_refund_no;
	if (settle->share.same != NULL && settle->share.cut == NIL)
		refund->succeeded_at = settle->result == RESULT_SUCCEEDED ?
			settle->fact->occurred_at : IDEM_NULL;
	if (verdict.asks_again)
		refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now));

	if (!refund_is_move(&verdict))
	{
		if (settle_learns_success(settle))
		{
			refund->succeeded_at = settle->fact->occurred_at;
			learns = true;
		}
		if (learns || verdict.asks_again)
			refund_store(call, refund);
		idem_unlock_names(call);
		return verdict.outcome;
	}
	move(call, settle, &verdict);
	if (differs(settle))
		settle_open_anomaly(call, settle, "refund_amount_differs");
	if (settle->receipt->excess > settle->excess && !is_midway(settle))
		settle_open_over_refund(call, settle);
	return verdict.outcome;
}

/* What was said of this refund while nobody knew it or its money is cured */
static void
resolve_unmatched(IdemCall *call, const Settle *settle)
{
	Settle		unknown = {.fact = settle->fact};

	anomaly_resolve(call, "refund_unmatched", "refund", settle_key(&unknown), "adopted", IDEM_NULL);
}

/* Take over a refund that was started elsewhere; NULL: begin again */
static const char *
adopt(IdemCall *call, Settle *settle)
{
	const char *outcome;
	int64		amount = settle->amount;
	Refund	   *refund = refund_of_receipt(settle->receipt, settle->number, amount, "channel",
										   IDEM_NULL);

	if (!receipt_can_book(settle->receipt, amount, 0))
	{
		idem_unlock_names(call);
		settle_open_over_refund(call, settle);
		return "kept";
	}
	refund->channel_refund_no = settle->fact->channel_refund_no;
	if (!refund_insert(call, refund))
		return NULL;
	idem_unlock_names(call);
	receipt_book(call, settle->receipt, amount, 0, 0);
	settle->refund = refund;
	outcome = carry_out(call, settle);
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
 * Of a refund that nobody knows and that is told by name: it can turn out to be
 * a nameless one, or to be contained in some.  What came back has to be taken out
 * of them; what only went back can stay where it is.
 */
static void
reckon_named(IdemCall *call, Settle *settle)
{
	RefundShare *share = &settle->share;

	settle->amount = DatumGetInt64(settle->fact->amount.value);
	refund_sum_share(call, settle->fact, settle->result, settle->amount, settle->receipt, share);
	if (share->same != NULL && !idem_is_given(settle->fact->refund_no))
	{
		settle->refund = share->same;
		share->cut = NIL;
	}
	else if (settle->result == RESULT_SUCCEEDED && share->amount == settle->amount)
	{
		settle->amount = 0;
		share->cut = NIL;
	}
}

/* Of a refund that nobody knows: what of it has to be booked, under which number */
static void
reckon_unknown(IdemCall *call, Settle *settle)
{
	const RefundFact *fact = settle->fact;
	const Receipt *receipt = settle->receipt;

	if (settle->money == NULL && fact->cumulative)
		settle->amount = refund_sum_gap_told(call, fact, receipt);
	else if (settle->money == NULL)
		reckon_named(call, settle);
	settle->number = refund_is_named(fact) ? refund_number_of(fact, receipt).value :
		refund_sum_number(call, receipt, receipt->refunded + settle->amount);
}

/*
 * Of a refund that we know and that counts for nothing so far: it can have its
 * share in nameless ones, too, if it succeeded all the same.
 */
static void
reckon_known(IdemCall *call, Settle *settle)
{
	RefundVerdict verdict = refund_judge(call, settle->refund, settle->fact, settle->result);

	if (verdict.succeeds && !verdict.reverses &&
		!refund_sum_may_contain(settle->refund, settle->receipt))
		refund_sum_share(call, settle->fact, settle->result, settle->refund->amount,
						 settle->receipt, &settle->share);
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
	memset(&settle->share, 0, sizeof(RefundShare));
	if (!is_known)
		reckon_unknown(call, settle);
	if (settle->refund != NULL)
		settle->refund = refund_lock(call, settle->refund->refund_no);
	if (is_known)
		reckon_known(call, settle);

	lock_numbers(call, settle);
	found = refund_find(call, settle->fact, settle->receipt, IDEM_SIGHT_DIRTY);
	if (settle->refund != NULL)
		(void) settle_is_another(call, settle, IDEM_SIGHT_DIRTY);
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
	bool		is_booked = settle->refund == NULL && settle->amount == 0;
	const char *outcome;

	settle->excess = settle->receipt->excess;
	if (is_booked)
		outcome = settle_outcome_unbooked(settle);
	else
	{
		outcome = settle->refund == NULL ? adopt(call, settle) : carry_out(call, settle);
		if (outcome == NULL || strcmp(outcome, "kept") == 0)
			return outcome;
	}
	idem_unlock_names(call);
	settle->is_done = true;
	if (settle_tells_sum(settle))
		settle->is_sum_new = refund_sum_note(call, settle->fact, settle->receipt);
	return outcome;
}

/* Is somebody just writing what was looked for and not found, or has he since? */
static bool
is_being_written(IdemCall *call, const Settle *seen)
{
	Settle		now = *seen;

	look_around(call, &now, IDEM_SIGHT_DIRTY);
	return TransactionIdIsValid(call->rival) || now.refund != NULL ||
		(now.receipt != NULL && seen->receipt == NULL);
}

static const char *
give(IdemCall *call, const Settle *settle, const SettleAnswer *answer)
{
	idem_unlock_names(call);
	if (answer->anomaly != NULL)
		settle_open_anomaly(call, settle, answer->anomaly);
	return answer->outcome;
}

/* One attempt; NULL: begin again */
static const char *
try_settle(IdemCall *call, Settle *settle)
{
	SettleAnswer answer;

	idem_hold_moment(call);
	look_around(call, settle, IDEM_SIGHT_LATEST);
	answer = settle_recognize(call, settle);
	idem_let_moment_go(call);
	if (settle->refund == NULL && is_being_written(call, settle))
		return NULL;
	if (answer.outcome == NULL)
	{
		if (!lock_all(call, settle))
			return NULL;
		answer = settle_recognize(call, settle);
	}
	return answer.outcome == NULL ? settle_locked(call, settle) : give(call, settle, &answer);
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

/* Book that much of the latest sum without a name */
static void
book_nameless(IdemCall *call, Settle *settle, int64 amount, bool is_midway)
{
	const Receipt *receipt = settle->receipt;
	RefundFact	fact = {
		.refund_no = IDEM_NULL,
		.payment_no = receipt->payment_no,
		.channel = IDEM_NULL,
		.account = IDEM_NULL,
		.trade_no = IDEM_NULL,
		.channel_refund_no = IDEM_NULL,
		.amount = IDEM_VALUE(Int64GetDatum(receipt->refund_told)),
		.currency = receipt->currency,
		.occurred_at = receipt->refund_told_at,
		.result = "succeeded",
		.cumulative = true
	};
	Settle		part = {
		.fact = &fact,
		.result = RESULT_SUCCEEDED,
		.money = receipt,
		.amount = amount,
		.is_midway = is_midway
	};

	if (amount == 0)
		return;
	(void) settle_once(call, &part);
	settle->receipt = part.receipt;
}

/* Take out of nameless refunds what has to give way */
static void
cut_nameless(IdemCall *call, Settle *settle)
{
	refund_sum_cut(call, settle->receipt, &settle->share);
	book_nameless(call, settle, settle->share.rest, true);
	follow_money(call, settle);
}

/* What turned out to be this refund; then do what was left for then */
static void
take_share(IdemCall *call, Settle *settle)
{
	if (settle->share.cut == NIL)
		return;
	cut_nameless(call, settle);
	if (settle->refund->status == REFUND_SUCCEEDED)
		resolve_cured(call, settle);
	if (settle->receipt->excess > settle->excess)
		settle_open_over_refund(call, settle);
}

/* Make what is booked of the latest sum be just that */
static void
meet_sum(IdemCall *call, Settle *settle)
{
	if (settle->is_sum_new)
	{
		refund_sum_surplus(call, settle->receipt, &settle->share);
		if (settle->share.cut != NIL)
			cut_nameless(call, settle);
	}
	book_nameless(call, settle, refund_sum_gap(call, settle->receipt), false);
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
	{
		take_share(call, &settle);
		meet_sum(call, &settle);
	}
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
