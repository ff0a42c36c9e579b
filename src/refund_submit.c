/*-------------------------------------------------------------------------
 * refund_submit.c
 *	  Driving a refund on: submit, cancel, retry.
 *
 * As with payments, the decision to call the channel is recorded, and
 * committed, before the call: from then on the money may be on its way, the
 * refund cannot be cancelled, and only the channel's word ends it.  Two workers
 * that submit the same refund hear so, and both may call the channel, which
 * takes the same number once.
 *
 * At this moment the money is still here.  If the receipt's refunds and
 * disputes exceed it by now (a bank took the money back, or somebody refunded
 * it at the channel's console), sending this one too would pay twice: it is
 * refused, and what is left to do is to cancel it.
 *
 * Who changes a refund locks its receipt first.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "refund.h"

/* Columns of the result of submit and retry */
enum
{
	SUBMIT_STATUS = 1, SUBMIT_REFUND_NO, SUBMIT_PAYMENT_NO, SUBMIT_AMOUNT, SUBMIT_CURRENCY,
	SUBMIT_CHANNEL, SUBMIT_ACCOUNT, SUBMIT_TRADE_NO
};

/* Columns of the result of cancel */
enum
{
	CANCEL_STATUS = 1, CANCEL_REMAINDER
};

/* What may be said of a refund and its receipt; NULL: it can be done */
typedef const char *(*Judge) (const Refund *refund, const Receipt *receipt);

typedef struct Drive
{
	Refund	   *refund;
	Receipt    *receipt;
} Drive;

/*
 * Judge, and only where there is something to do, lock and judge again.  What
 * is said without a lock is said of what is committed now: who hears it acts.
 * A retry that came between the looks at the refund and at its receipt would be
 * taken for money that is gone.
 */
static const char *
prepare(IdemCall *call, Datum refund_no, Judge judge, Drive *drive)
{
	const char *outcome;

	idem_hold_moment(call);
	drive->refund = refund_look(call, refund_no, IDEM_SIGHT_LATEST);
	if (drive->refund == NULL)
		refund_not_found(refund_no);
	drive->receipt = receipt_look(call, drive->refund->receipt_no, IDEM_SIGHT_LATEST);
	idem_let_moment_go(call);
	outcome = judge(drive->refund, drive->receipt);
	if (outcome != NULL)
		return outcome;

	drive->receipt = receipt_lock(call, drive->refund->receipt_no);
	if (!call->busy)
		drive->refund = refund_lock(call, refund_no);
	if (call->busy)
		return "in_progress";
	return judge(drive->refund, drive->receipt);
}

/* Is more promised of the receipt than there is? */
static bool
is_overdrawn(const Receipt *receipt)
{
	return receipt->excess > 0;
}


/* ---------- submit and retry ---------- */

static const char *
judge_submit(const Refund *refund, const Receipt *receipt)
{
	if (refund->status == REFUND_PROCESSING)
		return "already_processing";
	if (refund->status != REFUND_REQUESTED)
		return "refused";
	if (refund->held)
		return "held";
	return is_overdrawn(receipt) ? "refused" : NULL;
}

static const char *
judge_retry(const Refund *refund, const Receipt *receipt)
{
	switch (refund->status)
	{
		case REFUND_PROCESSING:
			return "already_processing";
		case REFUND_FAILED:
			return refund->amount > refund_remainder(receipt) ? "exceeds" : NULL;
		case REFUND_ABNORMAL:
			return is_overdrawn(receipt) ? "exceeds" : NULL;
		case REFUND_REQUESTED:
		case REFUND_SUCCEEDED:
		case REFUND_CLOSED:
		case REFUND_CANCELLED:
		case REFUND_REVERSED:
			break;
	}
	return "refused";
}

/* On its way to the channel */
static const char *
send_off(IdemCall *call, Drive *drive)
{
	Refund	   *refund = drive->refund;

	refund->submitted_at = IDEM_VALUE(TimestampTzGetDatum(call->now));
	refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now + REFUND_FIRST_CHECK_US));
	refund_move(call, refund, REFUND_PROCESSING);
	return "processing";
}

/* What the channel has to be told, while it may be told */
static Datum
leave_sent(IdemCall *call, const Drive *drive, const char *outcome)
{
	const Refund *refund = drive->refund;

	if (call->busy)
		return idem_leave(call, outcome);
	idem_put_text(call, SUBMIT_STATUS, refund_status_names[refund->status]);
	if (refund->status == REFUND_PROCESSING)
	{
		idem_put(call, SUBMIT_REFUND_NO, refund->refund_no);
		idem_put_nullable(call, SUBMIT_PAYMENT_NO, refund->payment_no);
		idem_put(call, SUBMIT_AMOUNT, Int64GetDatum(refund->amount));
		idem_put(call, SUBMIT_CURRENCY, refund->currency);
		idem_put(call, SUBMIT_CHANNEL, refund->channel);
		idem_put(call, SUBMIT_ACCOUNT, refund->account);
		idem_put(call, SUBMIT_TRADE_NO, drive->receipt->trade_no);
	}
	return idem_leave(call, outcome);
}

/* Say to whoever submits or retries the refund that argument 1 names what came of it */
static Datum
drive_on(IdemCall *call, Judge judge, const char *(*go) (IdemCall *call, Drive *drive))
{
	Drive		drive;
	const char *outcome = prepare(call, idem_arg_key(call, 1), judge, &drive);

	if (outcome == NULL)
		outcome = go(call, &drive);
	return leave_sent(call, &drive, outcome);
}

/*
 * idem_submit_refund(tenant_id, refund_no)
 *	 -> (outcome, status, refund_no, payment_no, amount, currency, channel,
 *		 account, trade_no)
 *
 * Outcomes: processing, already_processing, held, refused, in_progress.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_submit_refund);
Datum
idem_submit_refund(PG_FUNCTION_ARGS)
{
	return drive_on(idem_enter(fcinfo), judge_submit, send_off);
}

/* With everything locked: take the reserve again where it was freed, and send */
static const char *
send_again(IdemCall *call, Drive *drive)
{
	bool		was_abnormal = drive->refund->status == REFUND_ABNORMAL;
	const char *outcome;

	if (was_abnormal &&
		!anomaly_lock(call, "refund_abnormal", "refund", drive->refund->refund_no))
		return "in_progress";
	if (!refund_holds_reserve(drive->refund))
		receipt_reserve(call, drive->receipt, drive->refund->amount);
	outcome = send_off(call, drive);
	if (was_abnormal)
		anomaly_resolve(call, "refund_abnormal", "refund", drive->refund->refund_no, "retry",
						IDEM_NULL);
	return outcome;
}

/*
 * idem_retry_refund(tenant_id, refund_no) -> the row of idem_submit_refund
 *
 * Outcomes: processing, already_processing, exceeds, refused, in_progress.
 * Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_retry_refund);
Datum
idem_retry_refund(PG_FUNCTION_ARGS)
{
	return drive_on(idem_enter(fcinfo), judge_retry, send_again);
}


/* ---------- cancel ---------- */

static const char *
judge_cancel(const Refund *refund, const Receipt *receipt pg_attribute_unused())
{
	if (refund->status == REFUND_CANCELLED)
		return "already_cancelled";
	return refund->status == REFUND_REQUESTED ? NULL : "refused";
}

/*
 * idem_cancel_refund(tenant_id, refund_no) -> (outcome, status, remainder)
 *
 * Outcomes: cancelled, already_cancelled, refused, in_progress.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_cancel_refund);
Datum
idem_cancel_refund(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Drive		drive;
	const char *outcome = prepare(call, idem_arg_key(call, 1), judge_cancel, &drive);

	if (call->busy)
		return idem_leave(call, outcome);
	if (outcome == NULL)
	{
		drive.refund->next_check_at = IDEM_NULL;
		receipt_book(call, drive.receipt, -drive.refund->amount, 0, 0);
		refund_move(call, drive.refund, REFUND_CANCELLED);
		outcome = "cancelled";
	}
	idem_put_text(call, CANCEL_STATUS, refund_status_names[drive.refund->status]);
	idem_put(call, CANCEL_REMAINDER, Int64GetDatum(refund_remainder(drive.receipt)));
	return idem_leave(call, outcome);
}
