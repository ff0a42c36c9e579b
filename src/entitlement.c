/*-------------------------------------------------------------------------
 * entitlement.c
 *	  Entitlements: what a user may have, granted once.
 *
 * A grant is made when money has arrived, by whoever hears of it first, and
 * often by several at once.  The grant key makes it one, for all time: a grant
 * that was revoked is not granted again by a repetition.  What a grant hands
 * out, quantity, stands in the answer "granted" alone.
 *
 * The money can go back while the grant is being made.  So both lock the
 * receipt first: a refund finds the grant and takes back its share, or the
 * grant finds the refund and withholds that share.  Either way the same
 * remains, since the share is counted from the whole:
 *
 *		floor(quantity * refunded / paid), less what was taken before
 *
 * A grant is tied to the receipt that paid the payment's purchase, so that a
 * refund of the first purchase leaves alone what the second one granted.
 *
 * Order of locks: receipt, campaign (which counts), then the grant key's name
 * for the look and the insert.  A refusal is judged by looks alone where they
 * suffice; but whoever is about to be refused looks once more for the grant
 * itself, which may have been what took the last unit.
 *-------------------------------------------------------------------------
 */
#include "campaign.h"
#include "direct.h"
#include "entitlement.h"
#include "receipt.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

/* Column numbers of idem_entitlement */
enum
{
	TENANT_ID = 1, GRANT_KEY, USER_ID, BENEFIT, QUANTITY, WITHHELD, REVOKED, STATUS, VERSION,
	PAYMENT_NO, RECEIPT_NO, ORDER_ID, PURCHASE_NO, CAMPAIGN, ON_REFUND, FREE, GRANTED_AT,
	NATTS = GRANTED_AT
};

const IdemIndex entitlement_by_key = {"idem_entitlement", "idem_entitlement_pkey", NATTS};
const IdemIndex entitlement_by_receipt = {"idem_entitlement", "idem_entitlement_receipt", NATTS};

const char *const entitlement_status_names[] = {"granted", "partly_revoked", "revoked"};

static const char *const on_refund_names[] = {"proportional", "full", "none"};

static IdemTable entitlements = {
	"idem_entitlement", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_entitlement (tenant_id, grant_key, user_id, benefit,"
			   " quantity, withheld, revoked, status, version, payment_no, receipt_no, order_id,"
			   " purchase_no, campaign, on_refund, free, granted_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
			   " ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID, TEXTOID, INT4OID,
			   TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, BOOLOID, TIMESTAMPTZOID)
};

/* TID scan: nothing can lead it astray */
static IdemChange store_revoked = {
	&entitlements, {REVOKED, STATUS, IDEM_ADDS(VERSION)},
	IDEM_QUERY("UPDATE @schema@.idem_entitlement SET revoked = $2, status = $3, version = version + $4"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID, TEXTOID, INT4OID)
};

/* Columns of the result */
enum
{
	OUT_QUANTITY = 1, OUT_STATUS, OUT_REMAINING, OUT_GRANTED_AT, OUT_AVAILABLE
};

static const char granted[] = "granted";
static const char duplicate[] = "duplicate";
static const char not_allowed[] = "not_allowed";
static const char limit_reached[] = "limit_reached";
static const char in_progress[] = "in_progress";


/* ---------- rows ---------- */

Entitlement *
entitlement_of_row(const IdemRow *row)
{
	Entitlement *entitlement;

	if (row == NULL)
		return NULL;
	entitlement = palloc(sizeof(Entitlement));
	entitlement->tid = row->tid;
	entitlement->grant_key = IDEM_COLUMN(row, GRANT_KEY);
	entitlement->user_id = IDEM_COLUMN(row, USER_ID);
	entitlement->benefit = IDEM_COLUMN(row, BENEFIT);
	entitlement->quantity = DatumGetInt64(IDEM_COLUMN(row, QUANTITY));
	entitlement->withheld = DatumGetInt64(IDEM_COLUMN(row, WITHHELD));
	entitlement->revoked = DatumGetInt64(IDEM_COLUMN(row, REVOKED));
	entitlement->status = (EntitlementStatus)
		idem_word_index(IDEM_COLUMN(row, STATUS), entitlement_status_names, ENTITLEMENT_REVOKED + 1);
	entitlement->payment_no = IDEM_NULLABLE(row, PAYMENT_NO);
	entitlement->receipt_no = IDEM_NULLABLE(row, RECEIPT_NO);
	entitlement->order_id = IDEM_NULLABLE(row, ORDER_ID);
	entitlement->purchase_no = IDEM_NULLABLE(row, PURCHASE_NO).isnull ? 0 :
		DatumGetInt32(IDEM_COLUMN(row, PURCHASE_NO));
	entitlement->campaign = IDEM_NULLABLE(row, CAMPAIGN);
	entitlement->on_refund = (OnRefund)
		idem_word_index(IDEM_COLUMN(row, ON_REFUND), on_refund_names, ON_REFUND_NONE + 1);
	entitlement->free = DatumGetBool(IDEM_COLUMN(row, FREE));
	entitlement->granted_at = DatumGetTimestampTz(IDEM_COLUMN(row, GRANTED_AT));
	return entitlement;
}

Entitlement *
entitlement_look(IdemCall *call, Datum grant_key, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, grant_key};

	return entitlement_of_row(idem_look(call, &entitlement_by_key, keys, lengthof(keys), sight));
}

int64
entitlement_remaining(const Entitlement *entitlement)
{
	return entitlement->quantity - entitlement->withheld - entitlement->revoked;
}

/* floor(quantity * part / whole); the product may not fit 64 bits */
static int64
share_of(int64 quantity, int64 part, int64 whole)
{
	Datum		product;
	Datum		quotient;

	product = DirectFunctionCall2(numeric_mul,
								  DirectFunctionCall1(int8_numeric, Int64GetDatum(quantity)),
								  DirectFunctionCall1(int8_numeric, Int64GetDatum(part)));
	quotient = DirectFunctionCall2(numeric_div_trunc, product,
								   DirectFunctionCall1(int8_numeric, Int64GetDatum(whole)));
	return DatumGetInt64(DirectFunctionCall1(numeric_int8, quotient));
}

int64
entitlement_due(const Entitlement *entitlement, int64 refunded, int64 paid)
{
	if (refunded <= 0 || entitlement->on_refund == ON_REFUND_NONE)
		return 0;
	if (entitlement->on_refund == ON_REFUND_FULL || refunded >= paid)
		return entitlement->quantity;
	return share_of(entitlement->quantity, refunded, paid);
}

static bool
insert(IdemCall *call, const Entitlement *entitlement)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(entitlement->grant_key),
		IDEM_VALUE(entitlement->user_id),
		IDEM_VALUE(entitlement->benefit),
		IDEM_VALUE(Int64GetDatum(entitlement->quantity)),
		IDEM_VALUE(Int64GetDatum(entitlement->withheld)),
		IDEM_VALUE(Int64GetDatum(entitlement->revoked)),
		IDEM_TEXT(entitlement_status_names[entitlement->status]),
		IDEM_VALUE(Int32GetDatum(1)),	/* version */
		entitlement->payment_no,
		entitlement->receipt_no,
		entitlement->order_id,
		entitlement->purchase_no == 0 ? IDEM_NULL : IDEM_VALUE(Int32GetDatum(entitlement->purchase_no)),
		entitlement->campaign,
		IDEM_TEXT(on_refund_names[entitlement->on_refund]),
		IDEM_VALUE(BoolGetDatum(entitlement->free)),
		IDEM_VALUE(TimestampTzGetDatum(entitlement->granted_at))
	};

	return idem_insert(call, &entitlements, row);
}

void
entitlement_take(IdemCall *call, Entitlement *entitlement, int64 units)
{
	Assert(units > 0 && units <= entitlement_remaining(entitlement));
	entitlement->revoked += units;
	entitlement->status = entitlement_remaining(entitlement) == 0 ?
		ENTITLEMENT_REVOKED : ENTITLEMENT_PARTLY_REVOKED;
	if (!idem_change(call, &store_revoked, &entitlement->tid, (NullableDatum[]) {
		IDEM_VALUE(Int64GetDatum(entitlement->revoked)),
		IDEM_TEXT(entitlement_status_names[entitlement->status]),
		IDEM_VALUE(Int32GetDatum(1))
	}))
		elog(ERROR, "locked entitlement \"%s\" could not be updated",
			 TextDatumGetCString(entitlement->grant_key));
}


/* ---------- the same key for something else ---------- */

static void
demand_same(bool same, const Entitlement *asked, const char *field)
{
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_KEY_CONFLICT),
				 errmsg("grant key \"%s\" was used for something else",
						TextDatumGetCString(asked->grant_key)),
				 errdetail("The first field that differs is %s.", field),
				 errhint("See what was granted with idem_get_entitlement(); another grant needs a key of its own.")));
}

static void
compare(const Entitlement *asked, const Entitlement *found)
{
	demand_same(idem_same_text(asked->user_id, found->user_id), asked, "user_id");
	demand_same(idem_same_text(asked->benefit, found->benefit), asked, "benefit");
	demand_same(asked->quantity == found->quantity, asked, "quantity");
	demand_same(idem_same_nullable(asked->payment_no, found->payment_no), asked, "payment_no");
	demand_same(idem_same_nullable(asked->campaign, found->campaign), asked, "campaign");
	demand_same(asked->on_refund == found->on_refund, asked, "on_refund");
	demand_same(asked->free == found->free, asked, "free");
}


/* ---------- what stands in the way ---------- */

/* A grant on its way */
typedef struct Grant
{
	Entitlement *asked;
	Entitlement *found;			/* the grant of this key; NULL: none */
	Campaign   *campaign;		/* locked; NULL: none is named */
	int64		available;		/* what it has for the user */
} Grant;

/*
 * What the receipt leaves to be granted, into asked->withheld; false: nothing,
 * or there is no receipt.
 */
static bool
money_allows(Entitlement *asked, const Receipt *receipt)
{
	int64		paid;

	if (receipt == NULL)
		return false;
	paid = DatumGetInt64(receipt->amount.value);
	if (receipt->refunded >= paid)
		return false;
	asked->withheld = entitlement_due(asked, receipt->refunded, paid);
	asked->receipt_no = IDEM_VALUE(receipt->receipt_no);
	return asked->withheld < asked->quantity;
}

/*
 * Find and lock the money behind a grant.  Returns what stands in the way;
 * NULL: nothing.
 */
static const char *
demand_money(IdemCall *call, Entitlement *asked)
{
	Payment    *payment = payment_look(call, asked->payment_no.value, IDEM_SIGHT_LATEST);
	Receipt    *receipt;

	if (payment == NULL)
		payment_not_found(asked->payment_no.value);
	asked->order_id = IDEM_VALUE(payment->order_id);
	asked->purchase_no = payment->purchase_no;

	receipt = receipt_look_applied(call, payment->order_id, payment->purchase_no,
								   IDEM_SIGHT_LATEST);
	if (!money_allows(asked, receipt))
		return not_allowed;
	receipt = receipt_lock_applied(call, payment->order_id, payment->purchase_no);
	if (call->busy)
		return in_progress;
	return money_allows(asked, receipt) ? NULL : not_allowed;
}

/* The same for the limits of its campaign */
static const char *
demand_units(IdemCall *call, Grant *grant)
{
	Entitlement *asked = grant->asked;
	int64		units = asked->quantity - asked->withheld;

	grant->campaign = campaign_look(call, asked->campaign.value, IDEM_SIGHT_LATEST);
	if (grant->campaign == NULL)
		campaign_not_found(asked->campaign.value);
	grant->available = campaign_available(call, grant->campaign, asked->user_id);
	if (grant->available < units)
		return limit_reached;

	grant->campaign = campaign_lock(call, asked->campaign.value);
	if (grant->campaign == NULL)
		return in_progress;
	grant->available = campaign_available(call, grant->campaign, asked->user_id);
	return grant->available < units ? limit_reached : NULL;
}

/*
 * Insert, unless the key is taken.  Returns the outcome; NULL: a rival was in
 * the way and is gone.
 */
static const char *
claim_key(IdemCall *call, Grant *grant, int *pause_ms)
{
	const char *outcome = NULL;

	idem_lock_name(call, IDEM_NAME_ENTITLEMENT, call->tenant_id, grant->asked->grant_key);
	grant->found = entitlement_look(call, grant->asked->grant_key, IDEM_SIGHT_DIRTY);
	if (!TransactionIdIsValid(call->rival))
	{
		grant->asked->granted_at = call->now;
		if (grant->found != NULL)
			outcome = duplicate;
		else if (insert(call, grant->asked))
			outcome = granted;
	}
	if (outcome == NULL)
		return idem_step_back(call, pause_ms) ? NULL : in_progress;
	idem_unlock_names(call);
	return outcome;
}

/* One attempt to grant; NULL: again */
static const char *
try_grant(IdemCall *call, Grant *grant, int *pause_ms)
{
	Entitlement *asked = grant->asked;
	const char *outcome = NULL;

	if (!asked->payment_no.isnull)
		outcome = demand_money(call, asked);
	if (outcome == NULL && !asked->campaign.isnull)
		outcome = demand_units(call, grant);
	if (outcome == NULL)
		outcome = claim_key(call, grant, pause_ms);
	if (outcome == granted && grant->campaign != NULL)
		campaign_count(call, grant->campaign, asked->user_id, asked->quantity - asked->withheld);

	if (outcome == not_allowed || outcome == limit_reached)
	{
		grant->found = entitlement_look(call, asked->grant_key, IDEM_SIGHT_LATEST);
		if (grant->found != NULL)
			outcome = duplicate;
	}
	return outcome;
}


/* ---------- grant ---------- */

static int64
arg_quantity(IdemCall *call, int n)
{
	int64		quantity = DatumGetInt64(idem_arg_required(call, n).value);

	if (quantity <= 0)
		idem_bad_argument(call, n, "A quantity is a number of units, greater than zero.");
	return quantity;
}

static OnRefund
arg_on_refund(IdemCall *call, int n)
{
	char	   *word = idem_arg_word(call, n);

	for (int i = 0; i < (int) lengthof(on_refund_names); i++)
	{
		if (strcmp(word, on_refund_names[i]) == 0)
			return (OnRefund) i;
	}
	idem_bad_argument(call, n, "It must be \"proportional\", \"full\" or \"none\".");
}

/* Enumerate the arguments, checked */
enum
{
	ARG_GRANT_KEY = 1, ARG_USER_ID, ARG_BENEFIT, ARG_QUANTITY, ARG_PAYMENT_NO, ARG_CAMPAIGN,
	ARG_ON_REFUND, ARG_FREE
};

static Entitlement *
take_arguments(IdemCall *call)
{
	Entitlement *asked = palloc0(sizeof(Entitlement));

	asked->grant_key = idem_arg_key(call, ARG_GRANT_KEY);
	asked->user_id = idem_arg_key(call, ARG_USER_ID);
	asked->benefit = idem_arg_key(call, ARG_BENEFIT);
	asked->quantity = arg_quantity(call, ARG_QUANTITY);
	asked->payment_no = idem_arg_optional_key(call, ARG_PAYMENT_NO);
	asked->campaign = idem_arg_optional_key(call, ARG_CAMPAIGN);
	asked->on_refund = arg_on_refund(call, ARG_ON_REFUND);
	asked->free = idem_arg_bool(call, ARG_FREE);
	asked->receipt_no = IDEM_NULL;
	asked->order_id = IDEM_NULL;

	if (asked->payment_no.isnull && asked->campaign.isnull && !asked->free)
		idem_bad_argument(call, ARG_FREE, "A grant without payment_no needs a campaign, or must be said to be free.");
	if (!asked->payment_no.isnull && asked->free)
		idem_bad_argument(call, ARG_FREE, "A grant that a payment pays for is not free.");
	return asked;
}

/* What stands of a grant; its quantity only for whoever made it */
static void
put_entitlement(IdemCall *call, const Entitlement *entitlement)
{
	idem_put_text(call, OUT_STATUS, entitlement_status_names[entitlement->status]);
	idem_put(call, OUT_REMAINING, Int64GetDatum(entitlement_remaining(entitlement)));
	idem_put(call, OUT_GRANTED_AT, TimestampTzGetDatum(entitlement->granted_at));
}

static Datum
leave_with_grant(IdemCall *call, const Grant *grant, const char *outcome)
{
	if (outcome == duplicate)
	{
		compare(grant->asked, grant->found);
		put_entitlement(call, grant->found);
	}
	else if (outcome == granted)
	{
		put_entitlement(call, grant->asked);
		idem_put(call, OUT_QUANTITY, Int64GetDatum(entitlement_remaining(grant->asked)));
	}
	else if (outcome == limit_reached)
		idem_put(call, OUT_AVAILABLE, Int64GetDatum(grant->available));
	return idem_leave(call, outcome);
}

/*
 * idem_grant_entitlement(tenant_id, grant_key, user_id, benefit, quantity,
 *	 payment_no, campaign, on_refund, free)
 *	 -> (outcome, quantity, status, remaining, granted_at, available)
 *
 * Outcomes: granted, duplicate, not_allowed, limit_reached, in_progress.
 * Errors: ID001, ID006.
 */
PG_FUNCTION_INFO_V1(idem_grant_entitlement);
Datum
idem_grant_entitlement(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Grant		grant = {0};
	const char *outcome = duplicate;
	int			pause_ms = 1;

	grant.asked = take_arguments(call);
	grant.found = entitlement_look(call, grant.asked->grant_key, IDEM_SIGHT_FIRST);
	if (grant.found == NULL)
	{
		while ((outcome = try_grant(call, &grant, &pause_ms)) == NULL)
			 /* again */ ;
	}
	return leave_with_grant(call, &grant, outcome);
}

/*
 * idem_get_entitlement(tenant_id, grant_key) -> the row of idem_entitlement, if there is one
 */
PG_FUNCTION_INFO_V1(idem_get_entitlement);
Datum
idem_get_entitlement(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1)};
	IdemRow    *row = idem_look(call, &entitlement_by_key, keys, lengthof(keys), IDEM_SIGHT_FIRST);

	idem_begin_rows(call);
	if (row != NULL)
		idem_emit_row(call, row, NATTS);
	return idem_leave_rows(call);
}
