/*-------------------------------------------------------------------------
 * refund_sum.c
 *	  Refunds that a channel tells as a sum.
 *
 * Some channels tell how much of a trade was refunded so far, some tell each
 * refund, and some tell both, in any order.  A sum says nothing of whose it is:
 * it can contain a refund that we have sent and not yet heard of, one that will
 * be told by name later, one that was told before.  Booking what it exceeds our
 * books by counts such money twice.
 *
 * So the latest sum that was told stands in the receipt, and
 *
 * - what it exceeds the booked refunds by is booked only so far as nothing else
 *	 explains it: a refund that is on its way, or one that was reversed since.
 *	 Should what was on its way fail, the rest is booked then;
 * - a refund that is told by name, and is not ours, is part of the sum if it is
 *	 not younger: it is the one that was booked in its place, or one of several.
 *
 * Either way the books reach the sum, and never pass it for its own sake; which
 * refund of the channel's they say it is, depends on what was told first.
 *
 * All of this is decided under the lock of the receipt, which is taken where
 * refund_settle takes it: behind the order.
 *-------------------------------------------------------------------------
 */
#include "refund.h"

static bool
is_success(const RefundFact *fact)
{
	return strcmp(fact->result, "succeeded") == 0;
}

/* Can it be reckoned with: an amount, in the currency that the money came in? */
static bool
is_reckonable(const RefundFact *fact, const Receipt *receipt)
{
	return !fact->amount.isnull && DatumGetInt64(fact->amount.value) > 0 &&
		(fact->currency.isnull || idem_same_nullable(fact->currency, receipt->currency));
}

/* Lock a payment's money as refund_settle does; NULL: it is not there any more */
static Receipt *
lock_money(IdemCall *call, const Receipt *seen)
{
	Order	   *order;

	if (seen->purchase_no == 1)
		(void) order_lock_gate(call, seen->order_id.value, &order);
	return receipt_lock(call, seen->receipt_no);
}

/* Did it happen after the sum was told, or is that unknown? */
static bool
is_later(NullableDatum at, const Receipt *receipt)
{
	return at.isnull || receipt->refund_told_at.isnull ||
		DatumGetTimestampTz(at.value) > DatumGetTimestampTz(receipt->refund_told_at.value);
}

/*
 * What the sum may contain beside what is booked: what is on its way, and what
 * was taken back since it was told.
 */
static int64
explained(IdemCall *call, const Receipt *receipt)
{
	int64		sum = 0;
	ListCell   *cell;

	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);
		bool		taken_back = refund->status == REFUND_REVERSED || refund->takes_back;

		if (refund->status == REFUND_PROCESSING || refund->status == REFUND_ABNORMAL ||
			(taken_back && refund->status != REFUND_SUCCEEDED &&
			 is_later(refund->settled_at, receipt)))
			sum += refund->amount;
	}
	return sum;
}

/* What of the sum has to be booked */
static int64
unbooked(IdemCall *call, const Receipt *receipt)
{
	int64		rest = receipt->refund_told - receipt->refunded;

	return rest <= 0 ? 0 : rest - explained(call, receipt);
}

/* Book that much, under the numbers of the fact */
static void
book(IdemCall *call, const RefundFact *fact, const Receipt *receipt, int64 amount,
	 RefundAnswer *answer)
{
	RefundFact	news = *fact;

	news.cumulative = true;
	news.amount = IDEM_VALUE(Int64GetDatum(receipt->refunded + amount));
	refund_settle(call, &news, answer);
}

/* The same as a refund that nobody has named */
static void
book_nameless(IdemCall *call, const RefundFact *fact, const Receipt *receipt, int64 amount,
			  RefundAnswer *answer)
{
	RefundFact	news = *fact;

	news.refund_no = news.channel_refund_no = IDEM_NULL;
	book(call, &news, receipt, amount, answer);
}

static void
answer_without_refund(const Receipt *receipt, const char *outcome, RefundAnswer *answer)
{
	memset(answer, 0, sizeof(RefundAnswer));
	answer->outcome = outcome;
	answer->refund_no = IDEM_NULL;
	answer->receipt_no = IDEM_VALUE(receipt->receipt_no);
	answer->payment_no = receipt->payment_no;
	answer->order_id = receipt->order_id;
	answer->remainder = refund_remainder(receipt);
}


/* ---------- a sum ---------- */

/* Is the sum news, or is a later one known? */
static bool
is_news(const RefundFact *fact, const Receipt *receipt)
{
	bool		times_known = !fact->occurred_at.isnull && !receipt->refund_told_at.isnull;
	bool		same_time = times_known && DatumGetTimestampTz(fact->occurred_at.value) ==
		DatumGetTimestampTz(receipt->refund_told_at.value);

	return times_known && !same_time ? is_later(fact->occurred_at, receipt) :
		DatumGetInt64(fact->amount.value) > receipt->refund_told;
}

static void
note_sum(IdemCall *call, const RefundFact *fact, Receipt *receipt)
{
	if (is_news(fact, receipt))
		receipt_note_told(call, receipt, DatumGetInt64(fact->amount.value), fact->occurred_at);
}

/* What of the sum has to be booked once it is noted */
static int64
unbooked_then(IdemCall *call, const RefundFact *fact, const Receipt *receipt)
{
	Receipt		then = *receipt;

	if (is_news(fact, receipt))
	{
		then.refund_told = DatumGetInt64(fact->amount.value);
		then.refund_told_at = fact->occurred_at;
	}
	return unbooked(call, &then);
}

/* A sum told with the success of a refund that we know */
static void
settle_known_sum(IdemCall *call, const RefundFact *fact, Receipt *receipt, RefundAnswer *answer)
{
	RefundAnswer rest_answer;
	int64		rest;

	note_sum(call, fact, receipt);
	refund_settle(call, fact, answer);
	receipt = receipt_lock(call, receipt->receipt_no);
	rest = unbooked(call, receipt);
	if (rest > 0)
		book_nameless(call, fact, receipt, rest, &rest_answer);
}

/*
 * A sum told with a refund that we do not know, or with none.  It is noted only
 * if it could be booked: at this moment somebody may make its number known, of
 * other money.
 */
static void
settle_unknown_sum(IdemCall *call, const RefundFact *fact, Receipt *receipt,
				   RefundAnswer *answer)
{
	int64		rest = unbooked_then(call, fact, receipt);

	if (rest > 0)
	{
		book(call, fact, receipt, rest, answer);
		if (strcmp(answer->outcome, "applied") == 0)
			note_sum(call, fact, receipt_lock(call, receipt->receipt_no));
		return;
	}
	note_sum(call, fact, receipt);
	answer_without_refund(receipt, receipt->refund_told > receipt->refunded ? "kept" : "duplicate",
						  answer);
}


/* ---------- part of a sum ---------- */

/*
 * The refunds that were booked for a sum and have no name: how much they are,
 * and the one of just this amount.
 */
static int64
find_nameless(IdemCall *call, const Receipt *receipt, int64 amount, Refund **same)
{
	const char *prefix = refund_sum_prefix(receipt);
	int64		sum = 0;
	ListCell   *cell;

	*same = NULL;
	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		if (refund->status != REFUND_SUCCEEDED || !refund->channel_refund_no.isnull ||
			strncmp(TextDatumGetCString(refund->refund_no), prefix, strlen(prefix)) != 0)
			continue;
		sum += refund->amount;
		if (refund->amount == amount && *same == NULL)
			*same = refund;
	}
	return sum;
}

/* A refund that we do not know, told by name */
static void
settle_part(IdemCall *call, const RefundFact *fact, Receipt *receipt, RefundAnswer *answer)
{
	int64		amount = DatumGetInt64(fact->amount.value);
	Refund	   *same;
	int64		nameless = find_nameless(call, receipt, amount, &same);

	if (nameless == 0 ||
		(!fact->occurred_at.isnull && !receipt->refund_told_at.isnull &&
		 is_later(fact->occurred_at, receipt)))
		refund_settle(call, fact, answer);
	else if (same != NULL)
	{
		RefundFact	known = *fact;

		known.refund_no = IDEM_VALUE(same->refund_no);
		refund_settle(call, &known, answer);
	}
	else if (nameless >= amount)
		answer_without_refund(receipt, "duplicate", answer);
	else
		book(call, fact, receipt, amount - nameless, answer);
}


/* ---------- both ---------- */

void
refund_settle_told(IdemCall *call, const RefundFact *fact, RefundAnswer *answer)
{
	Refund	   *known = refund_find(call, fact, NULL, IDEM_SIGHT_LATEST);
	Receipt    *seen;
	Receipt    *receipt = NULL;

	if (!is_success(fact) || (known != NULL && !fact->cumulative))
	{
		refund_settle(call, fact, answer);
		return;
	}
	seen = known != NULL ? receipt_look(call, known->receipt_no, IDEM_SIGHT_LATEST) :
		refund_find_receipt(call, fact, IDEM_SIGHT_LATEST);
	if (seen != NULL && !seen->payment_no.isnull && refund_fact_fits(fact, seen) &&
		is_reckonable(fact, seen))
		receipt = lock_money(call, seen);
	if (receipt == NULL)
	{
		refund_settle(call, fact, answer);
		return;
	}

	/* it may have become known while we waited, perhaps as another receipt's */
	known = refund_find(call, fact, receipt, IDEM_SIGHT_LATEST);
	if (known != NULL && !idem_same_text(known->receipt_no, receipt->receipt_no))
		refund_settle(call, fact, answer);
	else if (fact->cumulative && known != NULL)
		settle_known_sum(call, fact, receipt, answer);
	else if (fact->cumulative)
		settle_unknown_sum(call, fact, receipt, answer);
	else if (known != NULL)
		refund_settle(call, fact, answer);
	else
		settle_part(call, fact, receipt, answer);
}

void
refund_cover_told(IdemCall *call, const Receipt *seen)
{
	RefundFact	fact = {
		.refund_no = IDEM_NULL,
		.payment_no = seen->payment_no,
		.channel = IDEM_VALUE(seen->channel),
		.account = IDEM_NULL,
		.trade_no = IDEM_VALUE(seen->trade_no),
		.channel_refund_no = IDEM_NULL,
		.currency = seen->currency,
		.occurred_at = seen->refund_told_at,
		.result = "succeeded",
		.cumulative = true
	};
	RefundAnswer answer;
	Receipt    *receipt = lock_money(call, seen);
	int64		rest = unbooked(call, receipt);

	if (rest > 0)
		book(call, &fact, receipt, rest, &answer);
}
