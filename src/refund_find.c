/*-------------------------------------------------------------------------
 * refund_find.c
 *	  Which refund a channel means, and which money.
 *
 * Channels name a refund by our number, by their own, by both, or not at all
 * and only say how much of a trade went back so far.  A number means something
 * only together with where it was said: ours within the tenant, theirs within
 * the channel and the merchant's account there.  What a fact says beside the
 * number must agree with what we know, else it is about something else.
 *
 * An account that one side does not know agrees with any.
 *-------------------------------------------------------------------------
 */
#include "refund.h"

#include "utils/fmgrprotos.h"

static bool
agrees(NullableDatum said, Datum ours)
{
	return said.isnull || idem_same_text(said.value, ours);
}

bool
refund_fact_fits(const RefundFact *fact, const Receipt *receipt)
{
	return agrees(fact->channel, receipt->channel) &&
		agrees(fact->trade_no, receipt->trade_no) &&
		(!idem_is_given(fact->account) || receipt_is_empty(receipt->account) ||
		 agrees(fact->account, receipt->account)) &&
		(fact->payment_no.isnull || receipt_is_for(receipt, fact->payment_no.value));
}


/* ---------- the money ---------- */

/* Of a payment's receipts, or its orphans, that fit: the only one, else the applied one */
static Receipt *
find_by_payment(IdemCall *call, const RefundFact *fact, const IdemIndex *index, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, fact->payment_no.value};
	Receipt    *only = NULL;
	Receipt    *applied = NULL;
	int			n = 0;
	ListCell   *cell;

	foreach(cell, idem_look_all(call, index, keys, lengthof(keys), sight))
	{
		Receipt    *receipt = receipt_of_row((IdemRow *) lfirst(cell));

		if (!refund_fact_fits(fact, receipt))
			continue;
		n++;
		only = receipt;
		if (receipt->disposition == RECEIPT_APPLIED)
			applied = receipt;
	}
	return n == 1 ? only : applied;
}

Receipt *
refund_find_receipt(IdemCall *call, const RefundFact *fact, IdemSight sight)
{
	Receipt    *receipt = NULL;

	if (idem_is_given(fact->payment_no))
		receipt = find_by_payment(call, fact, &receipt_by_payment, sight);
	if (receipt == NULL && idem_is_given(fact->payment_no))
		receipt = find_by_payment(call, fact, &receipt_orphans, sight);
	if (receipt == NULL)
		receipt = receipt_look_trade(call, fact->channel, fact->account, fact->trade_no, sight);
	return receipt != NULL && refund_fact_fits(fact, receipt) ? receipt : NULL;
}


/* ---------- the refund ---------- */

Refund *
refund_find(IdemCall *call, const RefundFact *fact, const Receipt *receipt, IdemSight sight)
{
	Refund	   *refund = NULL;

	if (idem_is_given(fact->refund_no))
		refund = refund_look(call, fact->refund_no.value, sight);
	if (refund != NULL || !idem_is_given(fact->channel_refund_no))
		return refund;
	if (receipt != NULL)
		return refund_look_at_channel(call, receipt->channel, receipt->account,
									  fact->channel_refund_no.value, sight);
	if (idem_is_given(fact->channel) && idem_is_given(fact->account))
		refund = refund_look_at_channel(call, fact->channel.value, fact->account.value,
										fact->channel_refund_no.value, sight);
	if (refund == NULL && idem_is_given(fact->channel))
		refund = refund_look_at_channel(call, fact->channel.value, CStringGetTextDatum(""),
										fact->channel_refund_no.value, sight);
	return refund;
}

/* C and the channel's number, or its digest where that would be too long */
static Datum
number_of_channels(Datum channel_refund_no)
{
	const char *no = TextDatumGetCString(channel_refund_no);
	char	   *digest;

	if (strlen(no) < IDEM_KEY_BYTES)
		return CStringGetTextDatum(psprintf("C%s", no));
	digest = DatumGetCString(DirectFunctionCall1(byteaout,
												 DirectFunctionCall1(sha256_bytea,
																	 channel_refund_no)));
	/* without the \x in front */
	return CStringGetTextDatum(psprintf("C%s", digest + 2));
}

char *
refund_sum_prefix(const Receipt *receipt)
{
	return psprintf("C%s-", TextDatumGetCString(receipt->receipt_no));
}

Datum
refund_number_of_sum(const Receipt *receipt, int64 sum)
{
	return CStringGetTextDatum(psprintf("%s" INT64_FORMAT, refund_sum_prefix(receipt), sum));
}

NullableDatum
refund_number_of(const RefundFact *fact, const Receipt *receipt)
{
	if (idem_is_given(fact->refund_no))
		return fact->refund_no;
	if (idem_is_given(fact->channel_refund_no))
		return IDEM_VALUE(number_of_channels(fact->channel_refund_no.value));
	if (fact->cumulative && receipt != NULL && !fact->amount.isnull)
		return IDEM_VALUE(refund_number_of_sum(receipt, DatumGetInt64(fact->amount.value)));
	return IDEM_NULL;
}
