/*-------------------------------------------------------------------------
 * refund_request.c
 *	  Asking for a refund.
 *
 * Two clerks refund the same order, or one clicks twice.  Twice the same
 * number is one refund: found by a look, nothing is written.  Two numbers are
 * two refunds, and together they must not exceed what came.  So who asks locks
 * the receipt first: whoever comes second sees the first one's reserve, or that
 * it was taken back, never neither.
 *
 * Between the look and the insert another call may insert the same number for
 * another receipt, whose lock does not stop us.  The insert is therefore done
 * under the number's name, after a dirty look.
 *-------------------------------------------------------------------------
 */
#include "refund.h"

#include "access/transam.h"

/* The arguments of idem_request_refund, by position */
enum
{
	ARG_TENANT_ID, ARG_PAYMENT_NO, ARG_REFUND_NO, ARG_AMOUNT, ARG_CURRENCY, ARG_REASON,
	ARG_RECEIPT_NO
};

/* Columns of the result */
enum
{
	OUT_REFUND_NO = 1, OUT_STATUS, OUT_AMOUNT, OUT_REMAINDER
};

typedef struct Request
{
	Datum		payment_no;
	Datum		refund_no;
	int64		amount;
	Datum		currency;
	NullableDatum reason;
	NullableDatum receipt_no;	/* NULL: the applied one */
} Request;

static void
read_request(IdemCall *call, Request *request)
{
	request->payment_no = idem_arg_key(call, ARG_PAYMENT_NO);
	request->refund_no = idem_arg_key(call, ARG_REFUND_NO);
	request->amount = idem_arg_amount(call, ARG_AMOUNT, 1);
	request->currency = idem_arg_currency(call, ARG_CURRENCY);
	request->reason = idem_arg(call, ARG_REASON);
	request->receipt_no = idem_arg_optional_key(call, ARG_RECEIPT_NO);
	if (refund_is_automatic_no(request->refund_no))
		idem_bad_argument(call, ARG_REFUND_NO, "A and digits are the numbers of automatic refunds.");
}


/* ---------- known before ---------- */

static void
raise_conflict(const Request *request, const char *field)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_KEY_CONFLICT),
			 errmsg("refund \"%s\" is there, and is another one",
					TextDatumGetCString(request->refund_no)),
			 errdetail("The first field that differs is %s.", field),
			 errhint("A further refund needs a number of its own; one that failed goes on with idem_retry_refund().")));
}

/* Compare with the refund of that number: payment_no, receipt_no, amount, currency */
static void
compare(const Request *request, const Refund *refund)
{
	if (refund->payment_no.isnull ||
		!idem_same_text(request->payment_no, refund->payment_no.value))
		raise_conflict(request, "payment_no");
	if (!request->receipt_no.isnull &&
		!idem_same_text(request->receipt_no.value, refund->receipt_no))
		raise_conflict(request, "receipt_no");
	if (request->amount != refund->amount)
		raise_conflict(request, "amount");
	if (!idem_same_text(request->currency, refund->currency))
		raise_conflict(request, "currency");
}

static void
put_refund(IdemCall *call, const Refund *refund, const Receipt *receipt)
{
	if (refund_allows_act(refund))
		idem_put(call, OUT_REFUND_NO, refund->refund_no);
	idem_put_text(call, OUT_STATUS, refund_status_names[refund->status]);
	idem_put(call, OUT_AMOUNT, Int64GetDatum(refund->amount));
	idem_put(call, OUT_REMAINDER, Int64GetDatum(refund_remainder(receipt)));
}

static const char *
replay(IdemCall *call, const Request *request, const Refund *refund, IdemSight sight)
{
	compare(request, refund);
	put_refund(call, refund, receipt_look(call, refund->receipt_no, sight));
	return "replayed";
}


/* ---------- the receipt ---------- */

/* The receipt that was named, if it is one of the payment's */
static Receipt *
named_receipt(IdemCall *call, const Request *request)
{
	Receipt    *receipt = receipt_look(call, request->receipt_no.value, IDEM_SIGHT_LATEST);

	if (receipt == NULL)
		receipt_not_found(request->receipt_no.value);
	if (receipt->payment_no.isnull ||
		!idem_same_text(receipt->payment_no.value, request->payment_no))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_NOT_FOUND),
				 errmsg("receipt \"%s\" is not one of payment \"%s\"",
						TextDatumGetCString(receipt->receipt_no),
						TextDatumGetCString(request->payment_no)),
				 errdetail("The money came for another payment, or for none."),
				 errhint("idem_get_receipts() shows the payment's; idem_refund_receipt() sends back money without a payment.")));
	return receipt;
}

/* The receipt that the money is to come from; NULL: the payment is not paid */
static Receipt *
find_receipt(IdemCall *call, const Request *request)
{
	Payment    *payment = payment_look(call, request->payment_no, IDEM_SIGHT_LATEST);

	if (payment == NULL)
		payment_not_found(request->payment_no);
	if (!request->receipt_no.isnull)
		return named_receipt(call, request);
	if (payment->status != PAYMENT_PAID)
		return NULL;
	return receipt_look_applied(call, payment->order_id, payment->purchase_no,
								IDEM_SIGHT_LATEST);
}

/* With the receipt locked: is there that much left of it? */
static bool
is_left(IdemCall *call, const Request *request, const Receipt *receipt)
{
	if (!receipt_makes_sense(receipt))
		return false;
	if (!idem_same_text(receipt->currency.value, request->currency))
		idem_bad_argument(call, ARG_CURRENCY, "Money goes back in the currency in which it arrived.");
	return request->amount <= refund_remainder(receipt);
}


/* ---------- request ---------- */

/* With receipt and name locked, and the number free; NULL: it is not any more */
static const char *
make_refund(IdemCall *call, const Request *request, Receipt *receipt)
{
	Refund	   *refund;

	if (!is_left(call, request, receipt))
	{
		idem_put(call, OUT_REMAINDER, Int64GetDatum(refund_remainder(receipt)));
		return "exceeds";
	}
	refund = refund_of_receipt(receipt, request->refund_no, request->amount, "request",
							   request->reason);
	refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now + REFUND_FIRST_CHECK_US));
	if (!refund_insert(call, refund))
		return NULL;
	receipt_reserve(call, receipt, request->amount);
	idem_unlock_names(call);
	put_refund(call, refund, receipt);
	return "requested";
}

/* One attempt; NULL: begin again */
static const char *
try_request(IdemCall *call, const Request *request)
{
	const char *outcome = NULL;
	Receipt    *receipt = find_receipt(call, request);
	Refund	   *refund;

	if (receipt == NULL)
		return "not_paid";
	receipt = receipt_lock(call, receipt->receipt_no);
	if (receipt == NULL)
		return "in_progress";

	idem_lock_name(call, IDEM_NAME_REFUND, call->tenant_id, request->refund_no);
	refund = refund_look(call, request->refund_no, IDEM_SIGHT_DIRTY);
	if (!TransactionIdIsValid(call->rival))
		outcome = refund != NULL ? replay(call, request, refund, IDEM_SIGHT_LATEST) :
			make_refund(call, request, receipt);
	if (outcome == NULL && !scene_step_back(call))
		return "in_progress";
	return outcome;
}

/*
 * idem_request_refund(tenant_id, payment_no, refund_no, amount, currency,
 *	 reason, receipt_no)
 *	 -> (outcome, refund_no, status, amount, remainder)
 *
 * Outcomes: requested, replayed, exceeds, not_paid, in_progress.  Errors:
 * ID001, ID006, 22023 for a number that looks automatic or another currency.
 */
PG_FUNCTION_INFO_V1(idem_request_refund);
Datum
idem_request_refund(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	const char *outcome = NULL;
	Request		request;
	Refund	   *refund;

	read_request(call, &request);
	idem_because(call, request.reason);

	refund = refund_look(call, request.refund_no, IDEM_SIGHT_FIRST);
	if (refund != NULL)
		outcome = replay(call, &request, refund, IDEM_SIGHT_FIRST);
	while (outcome == NULL)
		outcome = try_request(call, &request);
	return idem_leave(call, outcome);
}
