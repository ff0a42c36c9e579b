/*-------------------------------------------------------------------------
 * campaign.c
 *	  Campaigns: how much may be granted in all, and to one user.
 *
 * Sixty-four sessions want the last unit, and each sees that it is there.  So
 * the campaign's row is the one place where units are counted: who grants
 * locks it, decides by what it says then, and adds to it, until he commits.
 * The counters of its users stand behind the same lock.  Checks on the rows
 * hold for those who write past it.
 *
 * The row is hot while there is something to be had, and cold once it is
 * exhausted: whoever comes too late is told so by a look, without any lock.
 * It is the last row that a call locks, after receipt and entitlement; several
 * are locked in the order of their names.
 *
 * What is revoked can be granted again.  A limit may be set below what is
 * already granted: that stays, and nothing is added.
 *-------------------------------------------------------------------------
 */
#include "campaign.h"
#include "direct.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

/* Column numbers of idem_campaign */
enum
{
	TENANT_ID = 1, CAMPAIGN, TOTAL, PER_USER, GRANTED, CEILING, CREATED_AT, NATTS = CREATED_AT
};

/* and of idem_campaign_user */
enum
{
	USER_TENANT_ID = 1, USER_CAMPAIGN, USER_USER_ID, USER_GRANTED, USER_CEILING,
	USER_NATTS = USER_CEILING
};

static const IdemIndex campaign_by_name = {"idem_campaign", "idem_campaign_pkey", NATTS};
static const IdemIndex user_by_id = {"idem_campaign_user", "idem_campaign_user_pkey", USER_NATTS};

static IdemTable campaigns = {
	"idem_campaign", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_campaign (tenant_id, campaign, total, per_user, granted,"
			   " ceiling, created_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID)
};

static IdemTable users = {
	"idem_campaign_user", USER_NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_campaign_user (tenant_id, campaign, user_id, granted, ceiling)"
			   " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID)
};

/* TID scans: nothing can lead them astray */
static IdemQuery store_limits = IDEM_QUERY(
	"UPDATE @schema@.idem_campaign SET total = $2, per_user = $3,"
	" ceiling = CASE WHEN $2 IS NOT NULL THEN greatest($2, granted) END WHERE ctid = $1",
	TIDOID, INT8OID, INT8OID);

static IdemChange count_units = {
	&campaigns, {IDEM_ADDS(GRANTED)},
	IDEM_QUERY("UPDATE @schema@.idem_campaign SET granted = granted + $2 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID)
};

static IdemChange count_users_units = {
	&users, {IDEM_ADDS(USER_GRANTED), USER_CEILING},
	IDEM_QUERY("UPDATE @schema@.idem_campaign_user SET granted = granted + $2, ceiling = $3"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID, INT8OID)
};


/* ---------- rows ---------- */

static Campaign *
campaign_of_row(const IdemRow *row)
{
	Campaign   *campaign;

	if (row == NULL)
		return NULL;
	campaign = palloc(sizeof(Campaign));
	campaign->tid = row->tid;
	campaign->campaign = IDEM_COLUMN(row, CAMPAIGN);
	campaign->total = IDEM_NULLABLE(row, TOTAL);
	campaign->per_user = IDEM_NULLABLE(row, PER_USER);
	campaign->granted = DatumGetInt64(IDEM_COLUMN(row, GRANTED));
	campaign->knows_user = false;
	return campaign;
}

Campaign *
campaign_look(IdemCall *call, Datum campaign, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, campaign};

	return campaign_of_row(idem_look(call, &campaign_by_name, keys, lengthof(keys), sight));
}

Campaign *
campaign_lock(IdemCall *call, Datum campaign)
{
	Datum		keys[] = {call->tenant_id, campaign};

	return campaign_of_row(idem_lock_row(call, &campaign_by_name, keys, lengthof(keys)));
}

void
campaign_not_found(Datum campaign)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("campaign \"%s\" does not exist", TextDatumGetCString(campaign)),
			 errdetail("The tenant has no campaign of this name."),
			 errhint("Set its limits with idem_set_campaign().")));
	pg_unreachable();
}

/* What a user has of the campaign */
static void
look_at_user(IdemCall *call, Campaign *campaign, Datum user_id)
{
	Datum		keys[] = {call->tenant_id, campaign->campaign, user_id};

	campaign->user = idem_look(call, &user_by_id, keys, lengthof(keys), IDEM_SIGHT_LATEST);
	campaign->knows_user = true;
}


/* ---------- count ---------- */

/* What a limit leaves; where there is none, the counter's own */
static int64
left_of(NullableDatum limit, int64 granted)
{
	if (limit.isnull)
		return PG_INT64_MAX - granted;
	return Max(DatumGetInt64(limit.value) - granted, 0);
}

int64
campaign_available(IdemCall *call, Campaign *campaign, Datum user_id)
{
	int64		left = left_of(campaign->total, campaign->granted);

	if (left == 0 || campaign->per_user.isnull)
		return left;
	look_at_user(call, campaign, user_id);
	return Min(left, left_of(campaign->per_user, campaign->user == NULL ? 0 :
							 DatumGetInt64(IDEM_COLUMN(campaign->user, USER_GRANTED))));
}

/* Who had nothing before gets a row; revoking needs no room below a limit */
static bool
count_for_user(IdemCall *call, Campaign *campaign, Datum user_id, int64 units)
{
	IdemRow    *user;

	if (!campaign->knows_user)
		look_at_user(call, campaign, user_id);
	user = campaign->user;
	if (user != NULL)
		return idem_change(call, &count_users_units, &user->tid, (NullableDatum[]) {
			IDEM_VALUE(Int64GetDatum(units)),
			units < 0 ? IDEM_NULLABLE(user, USER_CEILING) : campaign->per_user
		});
	return idem_insert(call, &users, (NullableDatum[]) {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(campaign->campaign),
		IDEM_VALUE(user_id),
		IDEM_VALUE(Int64GetDatum(units)),
		campaign->per_user
	});
}

void
campaign_count(IdemCall *call, Campaign *campaign, Datum user_id, int64 units)
{
	NullableDatum values[] = {IDEM_VALUE(Int64GetDatum(units))};

	Assert(units < 0 || units <= left_of(campaign->total, campaign->granted));
	if (!idem_change(call, &count_units, &campaign->tid, values) ||
		!count_for_user(call, campaign, user_id, units))
		elog(ERROR, "units of locked campaign \"%s\" could not be counted",
			 TextDatumGetCString(campaign->campaign));
	campaign->granted += units;
}


/* ---------- set ---------- */

static bool
same_limit(NullableDatum a, NullableDatum b)
{
	if (a.isnull || b.isnull)
		return a.isnull == b.isnull;
	return DatumGetInt64(a.value) == DatumGetInt64(b.value);
}

static bool
has_limits(const Campaign *campaign, const Campaign *asked)
{
	return same_limit(campaign->total, asked->total) &&
		same_limit(campaign->per_user, asked->per_user);
}

/* The first limits of a campaign.  NULL: somebody is at it; he is awaited. */
static const char *
create_campaign(IdemCall *call, Campaign *asked, int *pause_ms)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(asked->campaign),
		asked->total,
		asked->per_user,
		IDEM_VALUE(Int64GetDatum(0)),
		asked->total,			/* ceiling */
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	idem_lock_name(call, IDEM_NAME_CAMPAIGN, call->tenant_id, asked->campaign);
	if (campaign_look(call, asked->campaign, IDEM_SIGHT_DIRTY) == NULL &&
		!TransactionIdIsValid(call->rival) &&
		idem_insert(call, &campaigns, row))
	{
		idem_unlock_names(call);
		return "created";
	}
	return idem_step_back(call, pause_ms) ? NULL : "in_progress";
}

/* One attempt; NULL: again */
static const char *
try_set(IdemCall *call, Campaign *asked, int *pause_ms)
{
	Campaign   *campaign = campaign_look(call, asked->campaign, IDEM_SIGHT_LATEST);

	if (campaign == NULL)
		return create_campaign(call, asked, pause_ms);
	if (!has_limits(campaign, asked))
		campaign = campaign_lock(call, asked->campaign);
	if (campaign == NULL)
		return "in_progress";
	asked->granted = campaign->granted;
	if (has_limits(campaign, asked))
		return "unchanged";
	if (idem_run(call, &store_limits, (NullableDatum[]) {
		IDEM_VALUE(PointerGetDatum(&campaign->tid)), asked->total, asked->per_user
	}) != 1)
		elog(ERROR, "locked campaign \"%s\" could not be updated",
			 TextDatumGetCString(asked->campaign));
	return "updated";
}

/* A limit: a number of units, or NULL for none */
static NullableDatum
arg_limit(IdemCall *call, int n)
{
	NullableDatum limit = idem_arg(call, n);

	if (!limit.isnull && DatumGetInt64(limit.value) < 0)
		idem_bad_argument(call, n, "A limit is a number of units, not negative; NULL is no limit.");
	return limit;
}

/*
 * idem_set_campaign(tenant_id, campaign, total, per_user) -> (outcome, granted)
 *
 * Outcomes: created, updated, unchanged, in_progress.
 */
PG_FUNCTION_INFO_V1(idem_set_campaign);
Datum
idem_set_campaign(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Campaign	asked = {0};
	const char *outcome;
	int			pause_ms = 1;

	asked.campaign = idem_arg_key(call, 1);
	asked.total = arg_limit(call, 2);
	asked.per_user = arg_limit(call, 3);

	while ((outcome = try_set(call, &asked, &pause_ms)) == NULL)
		 /* again */ ;
	if (strcmp(outcome, "in_progress") != 0)
		idem_put(call, 1, Int64GetDatum(asked.granted));
	return idem_leave(call, outcome);
}
