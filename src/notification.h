/*-------------------------------------------------------------------------
 * notification.h
 *	  Notifications: what channels tell us, as it came.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_NOTIFICATION_H
#define IDEM_NOTIFICATION_H

#include "channel.h"

/* Where those are recorded that are nobody's, or cannot be routed yet */
#define UNROUTED_TENANT "unrouted"

/* What a channel tells; whatever it did not tell is NULL */
typedef struct Notification
{
	Datum		channel;
	NullableDatum notify_id;	/* NULL: a digest of the rest stands for it */
	NullableDatum payment_no;
	NullableDatum trade_no;
	NullableDatum event;
	NullableDatum amount;		/* int8, minor units */
	NullableDatum currency;
	NullableDatum account;		/* NULL: the payment's own at this channel */
	NullableDatum biz_no;		/* of the refund or dispute at the channel */
	NullableDatum refund_amount;	/* int8, minor units */
	NullableDatum occurred_at;
	NullableDatum payload;		/* jsonb */
	NullableDatum channel_refund_no;
	NullableDatum refund_currency;
	const char *problem;		/* why it cannot be read, a whole sentence; NULL: it can */
} Notification;

typedef struct NotificationAnswer
{
	const char *outcome;
	bool		ack;			/* may the channel stop repeating it? */
	const char *status;			/* of what it is about; NULL: unknown */
	NullableDatum payment_no;	/* only where it may be acted on */
	NullableDatum receipt_no;
	NullableDatum refund_no;	/* likewise */
} NotificationAnswer;

/* One that says nothing yet */
extern Notification notification_of_nothing(void);

/* Receive it, and leave the call with what is to be answered */
extern Datum notification_leave(IdemCall *call, Notification *said);

/*
 * What was recorded as unroutable has found its tenant: note it.  Does nothing
 * if it was not recorded.
 */
extern void notification_note_route(IdemCall *call, Notification *said, Datum tenant_id);


/* ---------- notification_judge.c ---------- */

/* What is answered to an event of this kind, if all is as it should be */
extern const char *notification_expected(const Notification *said, FactKind kind);

/* Do what the event says: all but ack */
extern void notification_judge(IdemCall *call, const Notification *said,
							   const ChannelEvent *event, NotificationAnswer *answer);

/* The same for one that was heard before and is settled: what may still be acted on */
extern void notification_recall(IdemCall *call, const Notification *said,
								const ChannelEvent *event, NotificationAnswer *answer);

/* The notification's anomaly of this kind */
extern void notification_open_anomaly(IdemCall *call, const char *kind,
									  const Notification *said, NullableDatum order_id);

/* The key of its anomalies */
extern Datum notification_key(const Notification *said);

#endif							/* IDEM_NOTIFICATION_H */
