/*-------------------------------------------------------------------------
 * payment.h
 *	  Payments: one attempt to pay an order.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PAYMENT_H
#define IDEM_PAYMENT_H

#include "look.h"

/* In the order of payment_status_names */
typedef enum PaymentStatus
{
	PAYMENT_PENDING,
	PAYMENT_CLOSING,
	PAYMENT_REVIEW,
	PAYMENT_PAID,
	PAYMENT_PAID_LATE,
	PAYMENT_FAILED,
	PAYMENT_CLOSED
} PaymentStatus;

extern const char *const payment_status_names[];

/* A row of idem_payment */
typedef struct Payment
{
	ItemPointerData tid;
	Datum		payment_no;
	Datum		order_id;
	int32		purchase_no;
	int64		amount;			/* minor units */
	Datum		currency;
	PaymentStatus status;
	int32		version;
	NullableDatum request_key;	/* of the call that made it */
	bool		repurchase;		/* likewise */
	NullableDatum channel;
	NullableDatum account;
	NullableDatum channel_data;
	NullableDatum metadata;
	TimestampTz created_at;
	NullableDatum expires_at;
	NullableDatum submitted_at;
	NullableDatum next_check_at;
} Payment;

extern const IdemIndex payment_by_no;		/* payment_no, tenant_id */
extern const IdemIndex payment_active;		/* tenant_id, order_id; the active one */
extern const IdemIndex payment_by_order;	/* tenant_id, order_id, purchase_no, created_at */
extern const IdemIndex payment_by_request_key;	/* tenant_id, request_key */
extern const IdemIndex payment_key_by_key;	/* tenant_id, request_key */

/* Whose a row is, for those who look across tenants */
#define PAYMENT_TENANT_ID 1

/* Column numbers of idem_payment_key */
enum
{
	PAYMENT_KEY_TENANT_ID = 1, PAYMENT_KEY_REQUEST_KEY, PAYMENT_KEY_PAYMENT_NO,
	PAYMENT_KEY_REPURCHASE, PAYMENT_KEY_ASKED_PAYMENT_NO, PAYMENT_KEY_CREATED_AT,
	PAYMENT_KEY_NATTS = PAYMENT_KEY_CREATED_AT
};

extern Payment *payment_of_row(const IdemRow *row);
extern bool payment_is_active(const Payment *payment);
extern bool payment_is_expired(const Payment *payment, TimestampTz now);

/* Its account at this channel; NULL: it has none there that is known */
extern NullableDatum payment_account_at(const Payment *payment, Datum channel);

/* Look up, or lock, a payment of the call's tenant; NULL: none, or call->busy */
extern IdemRow *payment_look_row(IdemCall *call, Datum payment_no, IdemSight sight);
extern Payment *payment_look(IdemCall *call, Datum payment_no, IdemSight sight);
extern Payment *payment_look_by_key(IdemCall *call, Datum request_key, IdemSight sight);
extern Payment *payment_look_active(IdemCall *call, Datum order_id, IdemSight sight);
extern Payment *payment_look_latest(IdemCall *call, Datum order_id, IdemSight sight);
extern Payment *payment_lock(IdemCall *call, Datum payment_no);
extern List *payment_lock_order(IdemCall *call, Datum order_id);	/* ascending payment_no */
pg_noreturn extern void payment_not_found(Datum payment_no);

/* Insert a payment; false: it met a raw INSERT */
extern bool payment_insert(IdemCall *call, const Payment *payment);

/*
 * Write back status, channel, account, channel_data, submitted_at and
 * next_check_at of a payment that this call has locked, and bump its version.
 */
extern void payment_store(IdemCall *call, Payment *payment);
extern void payment_move(IdemCall *call, Payment *payment, PaymentStatus to);

#endif							/* IDEM_PAYMENT_H */
