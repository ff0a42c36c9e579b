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
 * time of it, and each refund that T may contain accounts for its amount of it:
 *
 * - one that succeeded, unless it is somebody else's and younger than T;
 * - one that is on its way, since T may have counted it before we hear of it;
 * - one that came back later than T was told, or who knows when, unless its
 *	 success is somebody else's and younger than T.
 *
 * What of T nothing accounts for is the gap, and no transaction leaves one: it is
 * booked, as the refund that was named with the sum, if nobody knows it, else as
 * one without a name.  A gap comes of a new sum; of a refund that was on its way
 * and fails; of one that came back earlier than T was told.  Requests make none:
 * what was not sent accounts for nothing, and who sends it adds to what does.
 *
 * The other way round, a nameless refund stands for refunds that T contains and
 * that are not known yet.  One that becomes known takes the place of the one of
 * just its amount, where it brings no number but the channel's; else it stays
 * contained in them, if they are enough.  Only where it has to be told from them
 * they give way: it came back, or they are too little, or it is one of ours.  Then
 * they are reversed as far as it needs, and what is left of them is booked anew.
 * They never happened, and account for nothing.  The same is done where a new sum
 * is certainly less than all that it contains.
 *
 * So what the books say in the end does not depend on what was told first, as far
 * as the channel tells its times.  All of this is done under the lock of the
 * receipt, which is taken where refund_settle takes it: behind the order.
 *-------------------------------------------------------------------------
 */
#include "refund_settle.h"

/* Is it known to have happened after the sum was told? */
static bool
is_younger(NullableDatum at, const Receipt *receipt)
{
	return !at.isnull && !receipt->refund_told_at.isnull &&
		DatumGetTimestampTz(at.value) > DatumGetTimestampTz(receipt->refund_told_at.value);
}

/* The same, or unknown? */
static bool
may_be_younger(NullableDatum at, const Receipt *receipt)
{
	return at.isnull || receipt->refund_told_at.isnull || is_younger(at, receipt);
}


/* ---------- the gap ---------- */

/*
 * Is it none that the sum contains?  Of ours we do not believe the time: who
 * settles a refund by what a call answered tells the time of that call.
 */
static bool
is_beside_sum(const Refund *refund, const Receipt *receipt)
{
	if (!idem_text_is(refund->cause, "channel") || refund->succeeded_at.isnull)
		return false;
	return TIMESTAMP_IS_NOEND(DatumGetTimestampTz(refund->succeeded_at.value)) ||
		is_younger(refund->succeeded_at, receipt);
}

bool
refund_sum_may_contain(const Refund *refund, const Receipt *receipt)
{
	switch (refund->status)
	{
		case REFUND_PROCESSING:
		case REFUND_ABNORMAL:
			return true;
		case REFUND_SUCCEEDED:
			return !is_beside_sum(refund, receipt);
		case REFUND_REVERSED:
			return !is_beside_sum(refund, receipt) && may_be_younger(refund->settled_at, receipt);
		case REFUND_REQUESTED:
		case REFUND_FAILED:
		case REFUND_CLOSED:
		case REFUND_CANCELLED:
			break;
	}
	return refund->takes_back && may_be_younger(refund->settled_at, receipt);
}

int64
refund_sum_gap(IdemCall *call, const Receipt *receipt)
{
	int64		gap = receipt->refund_told;
	ListCell   *cell;

	if (gap == 0)
		return 0;
	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		/* one after the other: their sum may be more than a bigint holds */
		if (refund_sum_may_contain(refund, receipt))
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

	return times_known && !same_time ? is_younger(fact->occurred_at, receipt) :
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

bool
refund_sum_note(IdemCall *call, const RefundFact *fact, Receipt *receipt)
{
	if (!refund_sum_is_news(fact, receipt))
		return false;
	receipt_note_told(call, receipt, DatumGetInt64(fact->amount.value), fact->occurred_at);
	return true;
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

static int
compare_numbers(const ListCell *a, const ListCell *b)
{
	return idem_compare_text(((Refund *) lfirst(a))->refund_no, ((Refund *) lfirst(b))->refund_no);
}

/* Those that stand, by number */
static List *
look_nameless(IdemCall *call, const Receipt *receipt)
{
	const char *prefix = refund_sum_prefix(receipt);
	List	   *nameless = NIL;
	ListCell   *cell;

	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		if (refund->status == REFUND_SUCCEEDED && is_nameless(refund, prefix))
			nameless = lappend(nameless, refund);
	}
	list_sort(nameless, compare_numbers);
	return nameless;
}

static Refund *
find_amount(List *refunds, int64 amount)
{
	ListCell   *cell;

	foreach(cell, refunds)
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		if (refund->amount == amount)
			return refund;
	}
	return NULL;
}

/*
 * Can the sum contain a refund of which this is told?  One that comes back
 * accounts for the sum if it is told first, and it must be the same if it is
 * told afterwards.
 */
static bool
can_be_part(const RefundFact *fact, RefundResult result, const Receipt *receipt)
{
	if (result == RESULT_REVERSED || (refund_is_failure(result) && fact->reversing))
		return may_be_younger(fact->occurred_at, receipt);
	return result == RESULT_SUCCEEDED && !is_younger(fact->occurred_at, receipt);
}

/* That much of the nameless refunds: one of just that amount, else the first ones */
static void
take_nameless(IdemCall *call, const Receipt *receipt, int64 amount, RefundShare *share)
{
	List	   *nameless = look_nameless(call, receipt);
	int64		sum = 0;
	ListCell   *cell;

	share->same = find_amount(nameless, amount);
	if (share->same != NULL)
		nameless = list_make1(share->same);
	foreach(cell, nameless)
	{
		if (sum >= amount)
			break;
		sum += ((Refund *) lfirst(cell))->amount;
		share->cut = lappend(share->cut, lfirst(cell));
	}
	share->amount = Min(sum, amount);
	share->rest = sum - share->amount;
}

void
refund_sum_share(IdemCall *call, const RefundFact *fact, RefundResult result, int64 amount,
				 const Receipt *receipt, RefundShare *share)
{
	memset(share, 0, sizeof(RefundShare));
	if (receipt->refund_told > 0 && can_be_part(fact, result, receipt))
		take_nameless(call, receipt, amount, share);
}

/* Is it certain that the sum contains it? */
static bool
is_in_sum(const Refund *refund, const Receipt *receipt, const char *prefix)
{
	if (refund->status != REFUND_SUCCEEDED || !idem_text_is(refund->cause, "channel"))
		return false;
	return is_nameless(refund, prefix) ||
		!may_be_younger(refund->succeeded_at, receipt);
}

void
refund_sum_surplus(IdemCall *call, const Receipt *receipt, RefundShare *share)
{
	const char *prefix = refund_sum_prefix(receipt);
	int64		surplus = -receipt->refund_told;
	ListCell   *cell;

	memset(share, 0, sizeof(RefundShare));
	foreach(cell, refund_look_all(call, receipt->receipt_no))
	{
		Refund	   *refund = (Refund *) lfirst(cell);

		if (is_in_sum(refund, receipt, prefix))
			surplus += refund->amount;
	}
	if (surplus > 0)
		take_nameless(call, receipt, surplus, share);
}

void
refund_sum_cut(IdemCall *call, Receipt *receipt, const RefundShare *share)
{
	ListCell   *cell;

	foreach(cell, share->cut)
	{
		Refund	   *refund = refund_lock(call, ((Refund *) lfirst(cell))->refund_no);

		receipt_book(call, receipt, -refund->amount, -refund->amount, 0);
		refund->succeeded_at = IDEM_VALUE(TimestampTzGetDatum(DT_NOEND));
		refund_move(call, refund, REFUND_REVERSED);
	}
}
