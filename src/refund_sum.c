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
 * So the latest sum that was told, T, stands in the receipt, with the channel's
 * time of it.  Beside it stand R, what is booked, and E, what explains the
 * rest: refunds that are on their way, and those that came back later than T was
 * told, or who knows when.  The gap is T - R - E, and the rule is that no
 * transaction leaves one.  What can make one, and what is done then, under the
 * lock of the receipt and in the same transaction:
 *
 * - A sum is told.  Is it the latest, T becomes that; with a refund that we know
 *	 this refund is settled first.  The gap is booked: as the refund that was
 *	 named with the sum if nobody knows it, else as one without a name.
 * - An older sum, or the same again, makes none.
 * - A refund was on its way and fails, or comes back earlier than T was told: E
 *	 or R is less by it.  The gap is booked without a name.
 * - A refund is sent, or sent again, or succeeds, or comes back later than T was
 *	 told: R + E is not less by it.  What is only requested was never in E, so
 *	 cancelling it makes none.
 *
 * The books reach the sum, then, and never pass it for its own sake.  A refund
 * that we do not know and that is told by name afterwards, not younger than the
 * sum, is part of it: it takes the place of the nameless one of just its amount,
 * if there is one; else it is booked as far as it exceeds all the nameless ones.
 * One that comes back later than T was told takes that place too, and is reversed
 * in it.  How an adopted sum is cut into refunds depends on what was told first.
 *-------------------------------------------------------------------------
 */
#include "refund_settle.h"

/* Did it happen after the sum was told, or is that unknown? */
static bool
is_later(NullableDatum at, const Receipt *receipt)
{
	return at.isnull || receipt->refund_told_at.isnull ||
		DatumGetTimestampTz(at.value) > DatumGetTimestampTz(receipt->refund_told_at.value);
}


/* ---------- the gap ---------- */

/* Can the sum contain it although it is not booked? */
static bool
explains(const Refund *refund, const Receipt *receipt)
{
	switch (refund->status)
	{
		case REFUND_PROCESSING:
		case REFUND_ABNORMAL:
			return true;
		case REFUND_REVERSED:
			return is_later(refund->settled_at, receipt);
		case REFUND_REQUESTED:
		case REFUND_FAILED:
		case REFUND_CLOSED:
		case REFUND_CANCELLED:
			return refund->takes_back && is_later(refund->settled_at, receipt);
		case REFUND_SUCCEEDED:
			break;
	}
	return false;
}

int64
refund_sum_gap(IdemCall *call, const Receipt *receipt)
{
	int64		gap = receipt->refund_told - receipt->refunded;
	ListCell   *cell;

	if (gap <= 0)
		return 0;
	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		/* one after the other: their sum may be more than a bigint holds */
		if (explains(refund, receipt))
			gap -= Min(gap, refund->amount);
	}
	return gap;
}


/* ---------- a sum ---------- */

bool
refund_sum_is_news(const RefundFact *fact, const Receipt *receipt)
{
	bool		times_known = !fact->occurred_at.isnull && !receipt->refund_told_at.isnull;
	bool		same_time = times_known && DatumGetTimestampTz(fact->occurred_at.value) ==
		DatumGetTimestampTz(receipt->refund_told_at.value);

	return times_known && !same_time ? is_later(fact->occurred_at, receipt) :
		DatumGetInt64(fact->amount.value) > receipt->refund_told;
}

int64
refund_sum_gap_told(IdemCall *call, const RefundFact *fact, const Receipt *receipt)
{
	Receipt		then = *receipt;

	if (refund_sum_is_news(fact, receipt))
	{
		then.refund_told = DatumGetInt64(fact->amount.value);
		then.refund_told_at = fact->occurred_at;
	}
	return refund_sum_gap(call, &then);
}

void
refund_sum_note(IdemCall *call, const RefundFact *fact, Receipt *receipt)
{
	if (refund_sum_is_news(fact, receipt))
		receipt_note_told(call, receipt, DatumGetInt64(fact->amount.value), fact->occurred_at);
}


/* ---------- nameless refunds ---------- */

/*
 * The books can reach the same sum once more: what reached it before came back,
 * and keeps its number.
 */
Datum
refund_sum_number(IdemCall *call, const Receipt *receipt, int64 sum)
{
	Datum		first = refund_number_of_sum(receipt, sum);
	Datum		number = first;

	for (int n = 2; refund_look(call, number, IDEM_SIGHT_LATEST) != NULL; n++)
		number = CStringGetTextDatum(psprintf("%s-%d", TextDatumGetCString(first), n));
	return number;
}

static bool
is_nameless(const Refund *refund, const char *prefix)
{
	return refund->channel_refund_no.isnull && idem_text_is(refund->cause, "channel") &&
		strncmp(TextDatumGetCString(refund->refund_no), prefix, strlen(prefix)) == 0;
}

/*
 * Can a refund that is told by name have been in the sum?  One that comes back
 * explains the sum if it is told first, and it must be the same if it is told
 * afterwards.
 */
static bool
can_be_part(const RefundFact *fact, RefundResult result, const Receipt *receipt)
{
	if (result == RESULT_REVERSED || (refund_is_failure(result) && fact->reversing))
		return is_later(fact->occurred_at, receipt);
	return result == RESULT_SUCCEEDED &&
		(fact->occurred_at.isnull || receipt->refund_told_at.isnull ||
		 !is_later(fact->occurred_at, receipt));
}

int64
refund_sum_nameless(IdemCall *call, const RefundFact *fact, RefundResult result,
					const Receipt *receipt, Refund **same)
{
	int64		amount = DatumGetInt64(fact->amount.value);
	const char *prefix = refund_sum_prefix(receipt);
	int64		sum = 0;
	ListCell   *cell;

	*same = NULL;
	if (!can_be_part(fact, result, receipt))
		return 0;
	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		if (refund->status != REFUND_SUCCEEDED || !is_nameless(refund, prefix))
			continue;
		sum += refund->amount;
		/* of several the first by number: who looks later finds the same */
		if (refund->amount == amount &&
			(*same == NULL || idem_compare_text(refund->refund_no, (*same)->refund_no) < 0))
			*same = refund;
	}
	return sum;
}
