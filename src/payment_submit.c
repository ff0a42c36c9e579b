/*-------------------------------------------------------------------------
 * payment_submit.c
 *	  Handing a payment to a channel.
 *
 * Between the decision to call the channel and its answer anything may
 * happen: the process dies, the customer opens a second tab, somebody closes
 * the payment.  So the decision is recorded, and committed, before the channel
 * is called: from then on the payment may be payable there, is closed only by
 * the channel's word, and never goes to a second channel.
 *
 * submit and the functions that close lock the payment's row, so one of them
 * is first: closed or closing, it is not submitted; submitted, it is not closed
 * without asking.  A repetition is answered from what is committed now, not
 * from an old snapshot, since it permits to call the channel once more.
 *-------------------------------------------------------------------------
 */
#include "payment.h"

#include "utils/jsonb.h"

/* When reconciliation first asks about a payment whose caller went silent */
#define FIRST_CHECK_US (60 * USECS_PER_SEC)


/* ---------- submit ---------- */

/*
 * Is the payment bound to another channel or account than these?  One that was
 * submitted without an account is at an account that only its caller knows.
 */
static bool
is_elsewhere(const Payment *payment, Datum channel, NullableDatum account)
{
	if (!payment->channel.isnull && !idem_same_text(payment->channel.value, channel))
		return true;
	if (account.isnull)
		return false;
	return payment->account.isnull ? !payment->submitted_at.isnull :
		!idem_same_text(payment->account.value, account.value);
}

/* What there is to say about submitting a payment; NULL: it can be done */
static const char *
submit_outcome(IdemCall *call, const Payment *payment, Datum channel, NullableDatum account)
{
	if (payment->status != PAYMENT_PENDING || payment_is_expired(payment, call->now))
		return "refused";
	if (is_elsewhere(payment, channel, account))
		return "other_channel";
	if (!payment->submitted_at.isnull)
		return "already_submitted";
	return NULL;
}

/*
 * idem_submit_payment(tenant_id, payment_no, channel, account)
 *	 -> (outcome, status, expires_at, channel_data)
 *
 * Outcomes: submitted, already_submitted, other_channel, refused.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_submit_payment);
Datum
idem_submit_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		payment_no = idem_arg_key(call, 1);
	Datum		channel = idem_arg_key(call, 2);
	NullableDatum account = idem_arg_optional_key(call, 3);
	Payment    *payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	const char *outcome = NULL;

	if (payment == NULL)
		payment_not_found(payment_no);
	outcome = submit_outcome(call, payment, channel, account);
	if (outcome == NULL)
	{
		payment = payment_lock(call, payment_no);
		if (payment == NULL)
			return idem_leave(call, "in_progress");
		outcome = submit_outcome(call, payment, channel, account);
	}
	if (outcome == NULL)
	{
		payment->channel = IDEM_VALUE(channel);
		if (!account.isnull)
			payment->account = account;
		payment->submitted_at = IDEM_VALUE(TimestampTzGetDatum(call->now));
		payment->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now + FIRST_CHECK_US));
		payment_store(call, payment);
		outcome = "submitted";
	}

	idem_put_text(call, 1, payment_status_names[payment->status]);
	idem_put_nullable(call, 2, payment->expires_at);
	if (strcmp(outcome, "submitted") == 0 || strcmp(outcome, "already_submitted") == 0)
		idem_put_nullable(call, 3, payment->channel_data);
	return idem_leave(call, outcome);
}


/* ---------- channel data ---------- */

static bool
same_data(NullableDatum a, Datum b)
{
	return !a.isnull &&
		compareJsonbContainers(&DatumGetJsonbP(a.value)->root, &DatumGetJsonbP(b)->root) == 0;
}

/* What there is to say about attaching the data; NULL: it can be done */
static const char *
attach_outcome(const Payment *payment, Datum data)
{
	if (same_data(payment->channel_data, data))
		return "duplicate";
	if (payment->status != PAYMENT_PENDING)
		return "refused";
	return NULL;
}

/*
 * idem_attach_channel_data(tenant_id, payment_no, data)
 *	 -> (outcome, status, version)
 *
 * Outcomes: attached, duplicate, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_attach_channel_data);
Datum
idem_attach_channel_data(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		payment_no = idem_arg_key(call, 1);
	NullableDatum data = idem_arg(call, 2);
	Payment    *payment;
	const char *outcome;

	if (data.isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of %s must not be null",
						call->function->argnames[2], NameStr(call->function->name)),
				 errdetail("Channel data that was attached is replaced, never taken away.")));

	payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	if (payment == NULL)
		payment_not_found(payment_no);
	outcome = attach_outcome(payment, data.value);
	if (outcome == NULL)
	{
		payment = payment_lock(call, payment_no);
		if (payment == NULL)
			return idem_leave(call, "in_progress");
		outcome = attach_outcome(payment, data.value);
	}
	if (outcome == NULL)
	{
		payment->channel_data = data;
		payment_store(call, payment);
		outcome = "attached";
	}
	idem_put_text(call, 1, payment_status_names[payment->status]);
	idem_put(call, 2, Int32GetDatum(payment->version));
	return idem_leave(call, outcome);
}
