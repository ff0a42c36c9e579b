/*-------------------------------------------------------------------------
 * payment_end.c
 *	  What a channel says of a payment that ended unpaid: it failed, or the
 *	  channel closed it.
 *
 * Both are facts, and both are only the channel's word: money may have arrived
 * before, or arrive still.  So they end what is pending or closing and leave
 * alone whatever else the payment has become, and a payment that ended is
 * looked at once more.  Two such facts can contradict each other; the first
 * holds.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "payment_close.h"

#include "access/transam.h"
#include "miscadmin.h"

static StatusOutcomes fail_outcomes = {
	[PAYMENT_PENDING] = NULL,
	[PAYMENT_CLOSING] = NULL,
	[PAYMENT_REVIEW] = "stale",
	[PAYMENT_PAID] = "stale",
	[PAYMENT_PAID_LATE] = "stale",
	[PAYMENT_FAILED] = "duplicate",
	[PAYMENT_CLOSED] = "stale"
};

static StatusOutcomes shut_outcomes = {
	[PAYMENT_PENDING] = NULL,
	[PAYMENT_CLOSING] = NULL,
	[PAYMENT_REVIEW] = "stale",
	[PAYMENT_PAID] = "stale",
	[PAYMENT_PAID_LATE] = "stale",
	[PAYMENT_FAILED] = "stale",
	[PAYMENT_CLOSED] = "duplicate"
};

Payment *
payment_lock_told(IdemCall *call, Datum payment_no)
{
	for (;;)
	{
		Payment    *payment = payment_lock(call, payment_no);

		if (payment != NULL)
			return payment;
		idem_lock_name(call, IDEM_NAME_PAYMENT, call->tenant_id, payment_no);
		payment = payment_look(call, payment_no, IDEM_SIGHT_DIRTY);
		idem_unlock_names(call);
		if (TransactionIdIsValid(call->rival))
			idem_await_rival(call);
		else if (payment == NULL)
			return NULL;
		CHECK_FOR_INTERRUPTS();
	}
}

/* End the payment in this status, if its own does not say otherwise */
static void
end(IdemCall *call, Datum payment_no, Payment *payment, PaymentStatus to,
	StatusOutcomes outcomes, PaymentAnswer *answer)
{
	answer->payment = payment;
	if (payment == NULL)
	{
		anomaly_open(call, "orphan", "payment", payment_no, IDEM_NULL, IDEM_NULL);
		answer->outcome = "orphan";
		return;
	}
	answer->outcome = outcomes[payment->status];
	if (answer->outcome != NULL)
		return;
	payment->next_check_at = payment_last_check_at(call, payment);
	payment_move(call, payment, to);
	answer->outcome = payment_status_names[to];
}

void
payment_fail(IdemCall *call, Datum payment_no, Payment *payment, PaymentAnswer *answer)
{
	end(call, payment_no, payment, PAYMENT_FAILED, fail_outcomes, answer);
}

void
payment_shut(IdemCall *call, Datum payment_no, Payment *payment, PaymentAnswer *answer)
{
	end(call, payment_no, payment, PAYMENT_CLOSED, shut_outcomes, answer);
}

/*
 * idem_fail_payment(tenant_id, payment_no, reason) -> (outcome, status, version)
 *
 * A fact.  Outcomes: failed, duplicate, stale, orphan.
 */
PG_FUNCTION_INFO_V1(idem_fail_payment);
Datum
idem_fail_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	Datum		payment_no = idem_arg_fact_key(call, 1);
	Payment    *payment = payment_look(call, payment_no, IDEM_SIGHT_LATEST);
	PaymentAnswer answer;

	idem_because(call, idem_arg(call, 2));
	if (payment == NULL || fail_outcomes[payment->status] == NULL)
		payment = payment_lock_told(call, payment_no);
	payment_fail(call, payment_no, payment, &answer);
	return payment_leave(call, answer.payment, answer.outcome);
}
