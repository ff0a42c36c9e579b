/*-------------------------------------------------------------------------
 * campaign.h
 *	  Campaigns: how much may be granted in all, and to one user.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CAMPAIGN_H
#define IDEM_CAMPAIGN_H

#include "look.h"

/* A row of idem_campaign */
typedef struct Campaign
{
	ItemPointerData tid;
	Datum		campaign;
	NullableDatum total;		/* int8; NULL: no limit */
	NullableDatum per_user;		/* likewise */
	int64		granted;		/* and not revoked */
	IdemRow    *user;			/* of the user last asked about; NULL: he has none */
	bool		knows_user;		/* whether he was looked at */
} Campaign;

/* Look up, or lock, a campaign of the call's tenant; NULL: none, or call->busy */
extern Campaign *campaign_look(IdemCall *call, Datum campaign, IdemSight sight);
extern Campaign *campaign_lock(IdemCall *call, Datum campaign);
pg_noreturn extern void campaign_not_found(Datum campaign);

/*
 * How many units it still has for a user.  Final while the campaign is locked.
 */
extern int64 campaign_available(IdemCall *call, Campaign *campaign, Datum user_id);

/* Count units that were granted to a user or, negative, revoked; it is locked */
extern void campaign_count(IdemCall *call, Campaign *campaign, Datum user_id, int64 units);

#endif							/* IDEM_CAMPAIGN_H */
