/*-------------------------------------------------------------------------
 * entitlement_revoke.c
 *	  Take back what was granted: by hand, and when money goes back.
 *
 * A revocation has a number, and is made once for it.  A refund's number
 * revokes what the refund requires, counted from the sum of all refunds of the
 * receipt, less what is gone already; so partial refunds end in the same,
 * whatever order they settle in, and a refund that is told twice takes nothing
 * the second time.  Where somebody used a refund's number by hand before, that
 * revocation grows by what is missing.
 *
 * Order of locks: entitlements ascending, then their campaigns ascending.  The
 * row lock of an entitlement stands for all its revocations.
 *-------------------------------------------------------------------------
 */
#include "campaign.h"
#include "direct.h"
#include "entitlement.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

/* Column numbers of idem_revocation */
enum
{
	TENANT_ID = 1, GRANT_KEY, REVOKE_NO, ASKED, QUANTITY, BY_REFUND, REASON, CREATED_AT,
	NATTS = CREATED_AT
};

static const IdemIndex revocation_by_no = {"idem_revocation", "idem_revocation_pkey", NATTS};

#define INSERT_REVOCATION \
	"INSERT INTO @schema@.idem_revocation AS mine (tenant_id, grant_key, revoke_no, asked, quantity," \
	" by_refund, reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
#define REVOCATION_TYPES \
	TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, BOOLOID, TEXTOID, TIMESTAMPTZOID

static IdemTable revocations = {
	"idem_revocation", NATTS,
	IDEM_QUERY(INSERT_REVOCATION " ON CONFLICT DO NOTHING", REVOCATION_TYPES)
};

static IdemQuery grow_revocation = IDEM_QUERY(
	INSERT_REVOCATION " ON CONFLICT (tenant_id, grant_key, revoke_no)"
	" DO UPDATE SET quantity = mine.quantity + excluded.quantity, by_refund = true",
	REVOCATION_TYPES);

/* Columns of the result */
enum
{
	OUT_REMAINING = 1, OUT_STATUS
};

/* What is taken back at once, and why */
typedef struct Revocation
{
	Datum		revoke_no;
	NullableDatum asked;		/* int8; NULL: all that is left */
	bool		by_refund;
	NullableDatum reason;
} Revocation;


/* ---------- write ---------- */

/* Take units from a locked entitlement; a number that is there takes more, which is rare */
static void
take(IdemCall *call, Entitlement *entitlement, const Revocation *revocation, int64 units)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(entitlement->grant_key),
		IDEM_VALUE(revocation->revoke_no),
		revocation->asked,
		IDEM_VALUE(Int64GetDatum(units)),
		IDEM_VALUE(BoolGetDatum(revocation->by_refund)),
		revocation->reason,
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	entitlement_take(call, entitlement, units);
	if (!idem_insert(call, &revocations, row))
		(void) idem_run(call, &grow_revocation, row);
}


/* ---------- when money goes back ---------- */

/* Units to be given back to a campaign */
typedef struct GivenBack
{
	const Entitlement *entitlement;
	int64		units;
} GivenBack;

static int
compare_campaigns(const ListCell *a, const ListCell *b)
{
	return idem_compare_text(((GivenBack *) lfirst(a))->entitlement->campaign.value,
							 ((GivenBack *) lfirst(b))->entitlement->campaign.value);
}

/* Take what is missing; returns how much that is */
static int64
take_missing(IdemCall *call, Entitlement *entitlement, const Revocation *revocation,
			 int64 refunded, int64 paid)
{
	int64		missing = entitlement_due(entitlement, refunded, paid) -
		entitlement->withheld - entitlement->revoked;

	if (missing <= 0)
		return 0;
	take(call, entitlement, revocation, missing);
	return missing;
}

/* Give the campaigns back what was taken, in the order of their names */
static void
give_back(IdemCall *call, List *given_back)
{
	ListCell   *cell;

	list_sort(given_back, compare_campaigns);
	foreach(cell, given_back)
	{
		GivenBack  *given = (GivenBack *) lfirst(cell);
		Campaign   *campaign = campaign_lock(call, given->entitlement->campaign.value);

		if (campaign == NULL)
			campaign_not_found(given->entitlement->campaign.value);
		campaign_count(call, campaign, given->entitlement->user_id, -given->units);
	}
}

void
entitlement_follow_refund(IdemCall *call, Datum receipt_no, int64 refunded, int64 paid,
						  Datum revoke_no)
{
	Datum		keys[] = {call->tenant_id, receipt_no};
	Revocation	revocation = {revoke_no, IDEM_NULL, true, IDEM_NULL};
	List	   *given_back = NIL;
	bool		fact = call->fact;
	ListCell   *cell;

	/* whoever settles a refund has already written: too late to give up */
	call->fact = true;
	foreach(cell, idem_lock_all(call, &entitlement_by_receipt, keys, lengthof(keys),
								ENTITLEMENT_GRANT_KEY))
	{
		Entitlement *entitlement = entitlement_of_row((IdemRow *) lfirst(cell));
		int64		units = take_missing(call, entitlement, &revocation, refunded, paid);

		if (units > 0 && !entitlement->campaign.isnull)
		{
			GivenBack  *given = palloc(sizeof(GivenBack));

			given->entitlement = entitlement;
			given->units = units;
			given_back = lappend(given_back, given);
		}
	}
	give_back(call, given_back);
	call->fact = fact;
}


/* ---------- by hand ---------- */

static void
raise_not_found(Datum grant_key)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("entitlement \"%s\" does not exist", TextDatumGetCString(grant_key)),
			 errdetail("The tenant has granted nothing under this key.")));
}

/* Was this revocation made before?  ID001 if it was another. */
static bool
was_made(IdemCall *call, Datum grant_key, const Revocation *revocation, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, grant_key, revocation->revoke_no};
	IdemRow    *row = idem_look(call, &revocation_by_no, keys, lengthof(keys), sight);
	NullableDatum asked;

	if (row == NULL)
		return false;
	asked = IDEM_NULLABLE(row, ASKED);
	if (!DatumGetBool(IDEM_COLUMN(row, BY_REFUND)) &&
		(asked.isnull != revocation->asked.isnull ||
		 (!asked.isnull && DatumGetInt64(asked.value) != DatumGetInt64(revocation->asked.value))))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_KEY_CONFLICT),
				 errmsg("revoke number \"%s\" was used for something else",
						TextDatumGetCString(revocation->revoke_no)),
				 errdetail("The first field that differs is quantity."),
				 errhint("See what is left with idem_get_entitlement(); another revocation needs a number of its own.")));
	return true;
}

/* How much is to be taken; 0: more than there is */
static int64
units_to_take(const Entitlement *entitlement, const Revocation *revocation)
{
	int64		remaining = entitlement_remaining(entitlement);

	if (revocation->asked.isnull)
		return remaining;
	return DatumGetInt64(revocation->asked.value) > remaining ? 0 :
		DatumGetInt64(revocation->asked.value);
}

/*
 * Lock the entitlement, decide, write; *entitlement is as it is then.
 */
static const char *
revoke_by_hand(IdemCall *call, Entitlement **entitlement, const Revocation *revocation)
{
	Datum		keys[] = {call->tenant_id, (*entitlement)->grant_key};
	Campaign   *campaign = NULL;
	int64		units;

	*entitlement = entitlement_of_row(idem_lock_row(call, &entitlement_by_key, keys, lengthof(keys)));
	if (*entitlement == NULL)
		return "in_progress";
	if (was_made(call, (*entitlement)->grant_key, revocation, IDEM_SIGHT_LATEST))
		return "duplicate";
	units = units_to_take(*entitlement, revocation);
	if (units == 0)
		return "refused";
	if (!(*entitlement)->campaign.isnull)
	{
		campaign = campaign_lock(call, (*entitlement)->campaign.value);
		if (campaign == NULL)
			return "in_progress";
	}
	take(call, *entitlement, revocation, units);
	if (campaign != NULL)
		campaign_count(call, campaign, (*entitlement)->user_id, -units);
	return "revoked";
}

static Revocation
take_arguments(IdemCall *call)
{
	Revocation	revocation;

	revocation.revoke_no = idem_arg_key(call, 2);
	revocation.asked = idem_arg(call, 3);
	if (!revocation.asked.isnull && DatumGetInt64(revocation.asked.value) <= 0)
		idem_bad_argument(call, 3, "A quantity is a number of units, greater than zero.");
	revocation.by_refund = false;
	revocation.reason = idem_arg(call, 4);
	return revocation;
}

/*
 * idem_revoke_entitlement(tenant_id, grant_key, revoke_no, quantity, reason)
 *	 -> (outcome, remaining, status)
 *
 * Outcomes: revoked, duplicate, refused, in_progress.  Errors: ID001, ID006.
 */
PG_FUNCTION_INFO_V1(idem_revoke_entitlement);
Datum
idem_revoke_entitlement(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		grant_key = idem_arg_key(call, 1);
	Revocation	revocation = take_arguments(call);
	const char *outcome = "duplicate";
	Entitlement *entitlement;

	idem_because(call, revocation.reason);
	if (was_made(call, grant_key, &revocation, IDEM_SIGHT_FIRST))
		entitlement = entitlement_look(call, grant_key, IDEM_SIGHT_FIRST);
	else
	{
		entitlement = entitlement_look(call, grant_key, IDEM_SIGHT_LATEST);
		if (entitlement == NULL)
			raise_not_found(grant_key);
		outcome = revoke_by_hand(call, &entitlement, &revocation);
	}
	if (entitlement != NULL && strcmp(outcome, "in_progress") != 0)
	{
		idem_put(call, OUT_REMAINING, Int64GetDatum(entitlement_remaining(entitlement)));
		idem_put_text(call, OUT_STATUS, entitlement_status_names[entitlement->status]);
	}
	return idem_leave(call, outcome);
}
