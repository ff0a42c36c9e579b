/*-------------------------------------------------------------------------
 * channel.h
 *	  Channels: what they call things, whose their accounts are.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CHANNEL_H
#define IDEM_CHANNEL_H

#include "look.h"

/* What an event means, in the order of fact_kind_names */
typedef enum FactKind
{
	FACT_PAID,
	FACT_FAILED,
	FACT_CLOSED,
	FACT_REFUNDED,
	FACT_REFUND_FAILED,
	FACT_REFUND_CLOSED,
	FACT_REFUND_ABNORMAL,
	FACT_REFUND_REVERSED,
	FACT_DISPUTE_OPENED,
	FACT_DISPUTE_WON,
	FACT_DISPUTE_LOST,
	FACT_NONE,
	FACT_UNMAPPED				/* no row says what it means */
} FactKind;

extern const char *const fact_kind_names[];

typedef struct ChannelEvent
{
	FactKind	kind;
	bool		cumulative;		/* its refund amount is the sum so far */
	bool		reversing;		/* failure after success is a reversal, not stale */
} ChannelEvent;

/* What an event of a channel means now */
extern ChannelEvent channel_event(IdemCall *call, Datum channel, Datum event, bool has_refund);

/* Has this tenant entered the account? */
extern bool channel_account_is_known(IdemCall *call, Datum tenant_id, Datum channel,
									 Datum account);

/*
 * Whose is what names this payment and this account?  Each may be NULL; NULL:
 * nobody's, or it cannot be said.
 */
extern NullableDatum channel_tenant_of(IdemCall *call, Datum channel, NullableDatum account,
									   NullableDatum payment_no, IdemSight sight);

#endif							/* IDEM_CHANNEL_H */
