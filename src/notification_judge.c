/*-------------------------------------------------------------------------
 * notification_judge.c
 *	  What a notification means, and doing it.
 *
 * Nothing is decided here about money.  Each kind of fact is told to the module
 * that owns it, by the same function that SQL and reconciliation call, and
 * that judges it against the state in which the payment, the refund or the
 * dispute is now.  So it does not matter in which order facts come, how often
 * they are told, and under how many ids.
 *
 * What those functions are not asked is whether the notification may speak for
 * this merchant at all, unless it is about money that arrived: a channel signs
 * for every merchant it has.  The payment that it names may be on its way to
 * another channel at this moment, or be born; so this is judged of a payment
 * that is locked, or that nothing can change any more in this respect.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "dispute.h"
#include "notification.h"
#include "payment_close.h"
#include "receipt.h"
#include "refund.h"

static Datum
or_empty(NullableDatum value)
{
	return value.isnull ? CStringGetTextDatum("") : value.value;
}

/* NULL for empty: nothing was named */
static NullableDatum
named(NullableDatum value)
{
	return !value.isnull && receipt_is_empty(value.value) ? IDEM_NULL : value;
}


/* ---------- anomalies ---------- */

Datum
notification_key(const Notification *said)
{
	return CStringGetTextDatum(psprintf("%s/%s/%s", TextDatumGetCString(said->channel),
										TextDatumGetCString(or_empty(said->account)),
										TextDatumGetCString(said->notify_id.value)));
}

static NullableDatum
detail_of(IdemCall *call, const Notification *said)
{
	AnomalyDetail *detail = anomaly_detail(call);

	anomaly_detail_text(detail, "notify_id", said->notify_id);
	anomaly_detail_text(detail, "payment_no", said->payment_no);
	anomaly_detail_text(detail, "trade_no", said->trade_no);
	anomaly_detail_text(detail, "event", said->event);
	anomaly_detail_amount(detail, "amount", said->amount);
	anomaly_detail_text(detail, "currency", said->currency);
	anomaly_detail_text(detail, "biz_no", said->biz_no);
	anomaly_detail_amount(detail, "refund_amount", said->refund_amount);
	if (said->problem != NULL)
		anomaly_detail_text(detail, "problem", IDEM_TEXT(said->problem));
	return anomaly_detail_done(detail);
}

void
notification_open_anomaly(IdemCall *call, const char *kind, const Notification *said,
						  NullableDatum order_id)
{
	anomaly_open(call, kind, "notification", notification_key(said), order_id,
				 detail_of(call, said));
}

/* One for an event that nobody has mapped, not one for each time it is told */
static void
open_unmapped(IdemCall *call, const Notification *said)
{
	char	   *key = psprintf("%s/%s%s", TextDatumGetCString(said->channel),
							   TextDatumGetCString(or_empty(said->event)),
							   said->refund_amount.isnull ? "" : "/refund");

	anomaly_open(call, "unmapped_event", "channel_event", CStringGetTextDatum(key), IDEM_NULL,
				 detail_of(call, said));
}


/* ---------- may it speak for this payment? ---------- */

/*
 * Another merchant's word, or another channel's, about one of our payments.
 * Money is not judged by this: idem_confirm_payment has rules of its own.
 */
static bool
is_foreign(IdemCall *call, const Notification *said, const Payment *payment)
{
	if (payment != NULL && !payment->channel.isnull &&
		!idem_same_text(payment->channel.value, said->channel))
		return true;
	return !said->account.isnull &&
		receipt_account_refused(call, payment, true, said->channel, said->account.value);
}

/* Can the payment not become another's any more?  Its channel and account are set once. */
static bool
is_bound(const Notification *said, const Payment *payment)
{
	return !payment->channel.isnull && (said->account.isnull || !payment->account.isnull);
}

/*
 * The payment that is named, locked, and its order before it, as for the money
 * that is told of next.  NULL: there is none, not even in a transaction that is
 * still open.
 */
static Payment *
lock_named(IdemCall *call, Datum payment_no)
{
	Scene		scene;
	bool		stands;

	do
	{
		(void) scene_lock(call, payment_no, &scene);
		if (scene.payment != NULL)
			return scene.payment;
		idem_lock_name(call, IDEM_NAME_PAYMENT, call->tenant_id, payment_no);
		stands = scene_stands(call, payment_no, &scene);
		(void) scene_step_back(call);
	} while (!stands);
	return NULL;
}

/* Money that the named payment has, or had reported for it, through this channel */
static bool
is_of_money(IdemCall *call, const Notification *said)
{
	RefundFact	fact = {
		.refund_no = IDEM_NULL,
		.payment_no = named(said->payment_no),
		.channel = IDEM_VALUE(said->channel),
		.account = said->account,
		.trade_no = named(said->trade_no),
		.channel_refund_no = IDEM_NULL,
		.amount = IDEM_NULL,
		.currency = IDEM_NULL,
		.occurred_at = IDEM_NULL,
		.result = NULL
	};

	return refund_find_receipt(call, &fact, IDEM_SIGHT_LATEST) != NULL;
}

/*
 * The same about a refund or a dispute.  Money can have come through another
 * channel than its payment went to, and goes back there: the channel speaks for
 * it.  What is said of a payment that cannot become another's is said without a
 * lock, unless it is that it is foreign.
 */
static bool
is_foreign_to_money(IdemCall *call, const Notification *said, Payment **payment)
{
	NullableDatum number = named(said->payment_no);
	bool		not_ours = is_foreign(call, said, NULL);

	*payment = number.isnull ? NULL : payment_look(call, number.value, IDEM_SIGHT_LATEST);
	if (number.isnull || not_ours)
		return not_ours;
	if (*payment != NULL && is_bound(said, *payment) && !is_foreign(call, said, *payment))
		return false;
	*payment = lock_named(call, number.value);
	return is_foreign(call, said, *payment) && !is_of_money(call, said);
}

static void
reject(IdemCall *call, const Notification *said, const Payment *payment, NotificationAnswer *answer)
{
	notification_open_anomaly(call, "rejected", said,
							  payment == NULL ? IDEM_NULL : IDEM_VALUE(payment->order_id));
	answer->outcome = "rejected";
	answer->status = payment == NULL ? NULL : payment_status_names[payment->status];
}


/* ---------- one kind of fact each ---------- */

/* The outcomes that let the caller go on with what the fact was about */
static bool
may_be_acted_on(const char *outcome)
{
	static const char *const done[] = {"paid", "failed", "closed", "applied"};

	for (size_t i = 0; i < lengthof(done); i++)
	{
		if (strcmp(outcome, done[i]) == 0)
			return true;
	}
	return false;
}

static ReceiptFact
money_of(const Notification *said)
{
	return (ReceiptFact) {
		.payment_no = or_empty(said->payment_no),
		.channel = said->channel,
		.trade_no = or_empty(said->trade_no),
		.amount = said->amount,
		.currency = said->currency,
		.account = said->account,
		.paid_at = said->occurred_at
	};
}

static void
answer_money(const ReceiptAnswer *told, NotificationAnswer *answer)
{
	answer->status = told->status;
	answer->receipt_no = told->receipt_no;
	answer->refund_no = told->refund_no;
}

static void
tell_money(IdemCall *call, const Notification *said, NotificationAnswer *answer)
{
	ReceiptFact fact = money_of(said);
	ReceiptAnswer told;

	receipt_confirm(call, &fact, &told);
	answer_money(&told, answer);
	answer->outcome = told.outcome;
	answer->payment_no = said->payment_no;
}

static void
tell_end(IdemCall *call, const Notification *said, bool failed, NotificationAnswer *answer)
{
	Datum		payment_no = or_empty(said->payment_no);
	Payment    *payment = payment_lock_told(call, payment_no);
	PaymentAnswer told;

	if (is_foreign(call, said, payment))
	{
		reject(call, said, payment, answer);
		return;
	}
	if (failed)
		payment_fail(call, payment_no, payment, &told);
	else
		payment_shut(call, payment_no, payment, &told);
	answer->outcome = told.outcome;
	answer->payment_no = said->payment_no;
	if (told.payment != NULL)
		answer->status = payment_status_names[told.payment->status];
}

/* The currency of a refund or a dispute, in upper case if it is one */
static NullableDatum
currency_of(const Notification *said)
{
	NullableDatum currency = said->refund_currency.isnull ?
		said->currency : said->refund_currency;
	Datum		upper_case;

	if (!currency.isnull && idem_is_currency(currency.value, &upper_case))
		return IDEM_VALUE(upper_case);
	return currency;
}

static void
tell_refund(IdemCall *call, const Notification *said, const ChannelEvent *event,
			const char *result, NotificationAnswer *answer)
{
	RefundFact	fact = {
		.refund_no = named(said->biz_no),
		.payment_no = named(said->payment_no),
		.channel = IDEM_VALUE(said->channel),
		.account = said->account,
		.trade_no = named(said->trade_no),
		.channel_refund_no = named(said->channel_refund_no),
		.amount = said->refund_amount,
		.currency = currency_of(said),
		.occurred_at = said->occurred_at,
		.result = result,
		.cumulative = event->cumulative,
		.reversing = event->reversing
	};
	RefundAnswer told;

	refund_settle(call, &fact, &told);
	answer->outcome = told.outcome;
	answer->status = told.status;
	answer->payment_no = told.payment_no;
	answer->receipt_no = told.receipt_no;
	answer->refund_no = told.refund_no;
}

/*
 * A dispute names its money by the trade alone, which is known on the account that
 * the money was reported on: none that was named was the payment's own at the channel.
 */
static void
tell_dispute(IdemCall *call, const Notification *said, const Payment *payment,
			 const char *stage, NotificationAnswer *answer)
{
	DisputeFact fact = {
		.channel = IDEM_VALUE(said->channel),
		.account = said->account.isnull && payment != NULL ?
			payment_account_at(payment, said->channel) : said->account,
		.trade_no = named(said->trade_no),
		.dispute_no = named(said->biz_no),
		.amount = said->refund_amount.isnull ? said->amount : said->refund_amount,
		.currency = currency_of(said),
		.occurred_at = said->occurred_at,
		.stage = stage
	};
	DisputeAnswer told;

	dispute_record(call, &fact, &told);
	answer->outcome = told.outcome;
	answer->status = told.stage;
	answer->payment_no = told.payment_no;
	answer->receipt_no = told.receipt_no;
}

/* What a kind of fact says of a refund, and of a dispute */
static const char *const results[] = {
	[FACT_REFUNDED] = "succeeded",
	[FACT_REFUND_FAILED] = "failed",
	[FACT_REFUND_CLOSED] = "closed",
	[FACT_REFUND_ABNORMAL] = "abnormal",
	[FACT_REFUND_REVERSED] = "reversed"
};

static const char *const stages[] = {
	[FACT_DISPUTE_OPENED] = "opened",
	[FACT_DISPUTE_WON] = "won",
	[FACT_DISPUTE_LOST] = "lost"
};

static void
tell(IdemCall *call, const Notification *said, const ChannelEvent *event,
	 NotificationAnswer *answer)
{
	Payment    *payment;

	switch (event->kind)
	{
		case FACT_PAID:
			tell_money(call, said, answer);
			break;
		case FACT_FAILED:
		case FACT_CLOSED:
			tell_end(call, said, event->kind == FACT_FAILED, answer);
			break;
		case FACT_REFUNDED:
		case FACT_REFUND_FAILED:
		case FACT_REFUND_CLOSED:
		case FACT_REFUND_ABNORMAL:
		case FACT_REFUND_REVERSED:
			if (is_foreign_to_money(call, said, &payment))
				reject(call, said, payment, answer);
			else
				tell_refund(call, said, event, results[event->kind], answer);
			break;
		case FACT_DISPUTE_OPENED:
		case FACT_DISPUTE_WON:
		case FACT_DISPUTE_LOST:
			if (is_foreign_to_money(call, said, &payment))
				reject(call, said, payment, answer);
			else
				tell_dispute(call, said, payment, stages[event->kind], answer);
			break;
		case FACT_UNMAPPED:
			open_unmapped(call, said);
			answer->outcome = "ignored";
			break;
		case FACT_NONE:
			answer->outcome = "ignored";
			break;
	}
}


/* ---------- what was told before ---------- */

static void
recall_money(IdemCall *call, const Notification *said, NotificationAnswer *answer)
{
	ReceiptFact fact = money_of(said);
	ReceiptAnswer told;

	receipt_recall(call, &fact, &told);
	answer_money(&told, answer);
}

static void
recall_refund(IdemCall *call, const Notification *said, NotificationAnswer *answer)
{
	Refund	   *refund = NULL;

	if (!named(said->biz_no).isnull)
		refund = refund_look(call, said->biz_no.value, IDEM_SIGHT_LATEST);
	if (refund == NULL)
		return;
	answer->status = refund_status_names[refund->status];
	answer->receipt_no = IDEM_VALUE(refund->receipt_no);
	if (refund_allows_act(refund))
		answer->refund_no = IDEM_VALUE(refund->refund_no);
}

void
notification_recall(IdemCall *call, const Notification *said, const ChannelEvent *event,
					NotificationAnswer *answer)
{
	switch (event->kind)
	{
		case FACT_PAID:
		case FACT_FAILED:
		case FACT_CLOSED:
			recall_money(call, said, answer);
			break;
		case FACT_REFUNDED:
		case FACT_REFUND_FAILED:
		case FACT_REFUND_CLOSED:
		case FACT_REFUND_ABNORMAL:
		case FACT_REFUND_REVERSED:
			recall_refund(call, said, answer);
			break;
		default:
			break;
	}
}


/* ---------- the whole ---------- */

const char *
notification_expected(const Notification *said, FactKind kind)
{
	if (said->problem != NULL)
		return "rejected";
	switch (kind)
	{
		case FACT_PAID:
		case FACT_FAILED:
		case FACT_CLOSED:
			return fact_kind_names[kind];
		case FACT_NONE:
		case FACT_UNMAPPED:
			return "ignored";
		default:
			return "applied";
	}
}

void
notification_judge(IdemCall *call, const Notification *said, const ChannelEvent *event,
				   NotificationAnswer *answer)
{
	if (said->problem != NULL)
	{
		notification_open_anomaly(call, "rejected", said, IDEM_NULL);
		answer->outcome = "rejected";
	}
	else if (idem_text_is(call->tenant_id, UNROUTED_TENANT) &&
			 event->kind != FACT_NONE && event->kind != FACT_UNMAPPED)
	{
		notification_open_anomaly(call, "unrouted", said, IDEM_NULL);
		answer->outcome = "orphan";
	}
	else
	{
		idem_because(call, said->event);
		tell(call, said, event, answer);
	}
	if (!may_be_acted_on(answer->outcome))
		answer->payment_no = IDEM_NULL;
}
