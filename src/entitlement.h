/*-------------------------------------------------------------------------
 * entitlement.h
 *	  Entitlements: what a user may have, granted once and revoked with the
 *	  money.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ENTITLEMENT_H
#define IDEM_ENTITLEMENT_H

#include "look.h"

/* In the order of entitlement_status_names */
typedef enum EntitlementStatus
{
	ENTITLEMENT_GRANTED,
	ENTITLEMENT_PARTLY_REVOKED,
	ENTITLEMENT_REVOKED
} EntitlementStatus;

extern const char *const entitlement_status_names[];

/* What a refund takes, in the order of the words */
typedef enum OnRefund
{
	ON_REFUND_PROPORTIONAL,
	ON_REFUND_FULL,				/* all, whatever the refund's amount */
	ON_REFUND_NONE
} OnRefund;

/* A row of idem_entitlement */
typedef struct Entitlement
{
	ItemPointerData tid;
	Datum		grant_key;
	Datum		user_id;
	Datum		benefit;
	int64		quantity;		/* as asked for */
	int64		withheld;		/* what refunds had taken before it was granted */
	int64		revoked;
	EntitlementStatus status;
	NullableDatum payment_no;
	NullableDatum receipt_no;
	NullableDatum order_id;
	int32		purchase_no;	/* 0: NULL */
	NullableDatum campaign;
	OnRefund	on_refund;
	bool		free;
	TimestampTz granted_at;
} Entitlement;

extern const IdemIndex entitlement_by_key;	/* tenant_id, grant_key */
extern const IdemIndex entitlement_by_receipt;	/* tenant_id, receipt_no */

/* The column that several are locked in the order of */
#define ENTITLEMENT_GRANT_KEY 2

extern Entitlement *entitlement_of_row(const IdemRow *row);
extern Entitlement *entitlement_look(IdemCall *call, Datum grant_key, IdemSight sight);

/* What of it has not been taken back */
extern int64 entitlement_remaining(const Entitlement *entitlement);

/* Take units from a locked one, which has them */
extern void entitlement_take(IdemCall *call, Entitlement *entitlement, int64 units);

/* What refunds of that much of what was paid take of it */
extern int64 entitlement_due(const Entitlement *entitlement, int64 refunded, int64 paid);

/*
 * Revoke what a refund requires of the entitlements of a receipt: to be called
 * in the transaction in which the refund's success moved receipt.refunded,
 * with the receipt and the refund locked.  refunded is the new sum, paid what
 * the receipt brought; revoke_no is the refund's number.  Writes nothing where
 * nothing is to be revoked, so a second call does nothing; waits for locks as
 * long as it takes.
 */
extern void entitlement_follow_refund(IdemCall *call, Datum receipt_no, int64 refunded,
									  int64 paid, Datum revoke_no);

#endif							/* IDEM_ENTITLEMENT_H */
