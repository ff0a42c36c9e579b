/*-------------------------------------------------------------------------
 * refund_judge.c
 *	  What a channel's word means for a refund.
 *
 * The same words come twice, late and out of order, and must lead to the same
 * end.  A word that leads where the refund is, is a duplicate.  Success is the
 * strongest: money that went back went back, whatever was said before.  Only a
 * reversal is stronger, and a failure of the kind that takes a success back,
 * as some channels say it.
 *
 * Time tells the rest, the channel's own time where it was told: a failure
 * older than our last submit is that of an earlier attempt, and a success older
 * than a failure that takes successes back was taken back.
 *-------------------------------------------------------------------------
 */
#include "refund_settle.h"

/* Channels tell the time in whole seconds */
#define CHANNEL_CLOCK_US USECS_PER_SEC

static const char *const result_names[] = {
	"succeeded", "failed", "closed", "abnormal", "timeout", "reversed"
};

static const RefundVerdict duplicate = {.outcome = "duplicate"};
static const RefundVerdict stale = {.outcome = "stale"};

RefundResult
refund_result(const char *word)
{
	for (int i = 0; i < (int) lengthof(result_names); i++)
	{
		if (strcmp(word, result_names[i]) == 0)
			return (RefundResult) i;
	}
	return RESULT_UNKNOWN;
}

RefundStatus
refund_failed_status(RefundResult result)
{
	switch (result)
	{
		case RESULT_FAILED:
			return REFUND_FAILED;
		case RESULT_CLOSED:
			return REFUND_CLOSED;
		default:
			return REFUND_ABNORMAL;
	}
}

bool
refund_is_failure(RefundResult result)
{
	return result == RESULT_FAILED || result == RESULT_CLOSED || result == RESULT_ABNORMAL;
}

/* Did it happen before a moment of ours, by more than the tolerance? */
static bool
is_older(const RefundFact *fact, NullableDatum moment, int64 tolerance_us)
{
	return !fact->occurred_at.isnull && !moment.isnull &&
		DatumGetTimestampTz(fact->occurred_at.value) <
		DatumGetTimestampTz(moment.value) - tolerance_us;
}

/* Is this success one that was taken back by what we heard before? */
static bool
is_taken_back(const Refund *refund, const RefundFact *fact)
{
	return refund->takes_back && is_older(fact, refund->settled_at, 0);
}

static RefundVerdict
judge_success(const Refund *refund, const RefundFact *fact)
{
	bool		taken_back = is_taken_back(refund, fact);

	switch (refund->status)
	{
		case REFUND_SUCCEEDED:
			return duplicate;
		case REFUND_REVERSED:
			return stale;
		case REFUND_FAILED:
		case REFUND_CLOSED:
			return (RefundVerdict) {.outcome = "applied", .succeeds = true, .reverses = taken_back};
		case REFUND_REQUESTED:
		case REFUND_PROCESSING:
		case REFUND_ABNORMAL:
		case REFUND_CANCELLED:
			break;
	}
	/* taken back, and sent once more since: that attempt has yet to end */
	if (taken_back && refund->status != REFUND_ABNORMAL)
		return stale;
	return (RefundVerdict) {.outcome = "applied", .succeeds = true, .reverses = taken_back};
}

static RefundVerdict
judge_reversal(const Refund *refund)
{
	if (refund->status == REFUND_REVERSED)
		return duplicate;
	return (RefundVerdict) {
		.outcome = "applied",
		.succeeds = refund->status != REFUND_SUCCEEDED,
		.reverses = true
	};
}

static RefundVerdict
judge_failure(const Refund *refund, const RefundFact *fact, RefundResult result)
{
	if (refund->status == refund_failed_status(result))
		return duplicate;
	switch (refund->status)
	{
		case REFUND_REQUESTED:
		case REFUND_PROCESSING:
		case REFUND_ABNORMAL:
			if (is_older(fact, refund->submitted_at, CHANNEL_CLOCK_US))
				return stale;
			return (RefundVerdict) {.outcome = "applied", .fails = true};
		case REFUND_SUCCEEDED:
			if (!fact->reversing || is_older(fact, refund->settled_at, 0) ||
				is_older(fact, refund->submitted_at, CHANNEL_CLOCK_US))
				return stale;
			return (RefundVerdict) {.outcome = "applied", .reverses = true};
		case REFUND_REVERSED:
			return fact->reversing ? duplicate : stale;
		case REFUND_FAILED:
		case REFUND_CLOSED:
		case REFUND_CANCELLED:
			break;
	}
	return stale;
}

/* A time-out is not a failure: the reserve stays, and the channel is asked again */
static RefundVerdict
judge_timeout(IdemCall *call, const Refund *refund)
{
	if (!refund_holds_reserve(refund) || refund->status == REFUND_SUCCEEDED)
		return stale;
	return (RefundVerdict) {
		.outcome = "kept",
		.asks_again = !refund->held &&
		(refund->next_check_at.isnull ||
		 DatumGetTimestampTz(refund->next_check_at.value) > call->now)
	};
}

RefundVerdict
refund_judge(IdemCall *call, const Refund *refund, const RefundFact *fact, RefundResult result)
{
	switch (result)
	{
		case RESULT_SUCCEEDED:
			return judge_success(refund, fact);
		case RESULT_REVERSED:
			return judge_reversal(refund);
		case RESULT_TIMEOUT:
			return judge_timeout(call, refund);
		case RESULT_FAILED:
		case RESULT_CLOSED:
		case RESULT_ABNORMAL:
			return judge_failure(refund, fact, result);
		case RESULT_UNKNOWN:
			break;
	}
	elog(ERROR, "unknown result of a refund was not kept");
}

bool
refund_is_move(const RefundVerdict *verdict)
{
	return verdict->succeeds || verdict->reverses || verdict->fails;
}
