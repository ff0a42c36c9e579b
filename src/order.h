/*-------------------------------------------------------------------------
 * order.h
 *	  Orders: what is bought.  A row is optional and follows purchase 1.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ORDER_H
#define IDEM_ORDER_H

#include "look.h"

/* In the order of order_status_names */
typedef enum OrderStatus
{
	ORDER_PENDING,
	ORDER_PAID,
	ORDER_SHIPPED,
	ORDER_COMPLETED,
	ORDER_CANCELLED,
	ORDER_EXPIRED,
	ORDER_REFUNDED
} OrderStatus;

extern const char *const order_status_names[];

/* A row of idem_order */
typedef struct Order
{
	ItemPointerData tid;
	Datum		order_id;
	OrderStatus status;
	int32		version;
	int64		amount;			/* minor units */
	Datum		currency;
	NullableDatum buyer_id;
	NullableDatum metadata;
	TimestampTz created_at;
	NullableDatum expires_at;
	NullableDatum refunded_from;	/* while refunded: the status before */
} Order;

struct Receipt;

extern const IdemIndex order_by_id;			/* tenant_id, order_id */

extern Order *order_of_row(const IdemRow *row);
extern Order *order_look(IdemCall *call, Datum order_id, IdemSight sight);
extern Order *order_lock(IdemCall *call, Datum order_id);

/*
 * Lock what everybody locks first who judges the order's money: its row or, if
 * it has none (*order is NULL then), its oldest payment.  While that is locked
 * nobody gives the order a row.  false: call->busy.
 */
extern bool order_lock_gate(IdemCall *call, Datum order_id, Order **order);
pg_noreturn extern void order_not_found(Datum order_id);

/* May the order be paid?  NULL, an order without a row, may. */
extern bool order_is_payable(const Order *order, TimestampTz now);

/*
 * Insert an order, pending, while IDEM_NAME_ORDER is locked.  false: somebody
 * inserted it past the name; look again.
 */
extern bool order_insert(IdemCall *call, Order *order);

/* Write back status, amount and currency of a locked order, bump its version */
extern void order_store(IdemCall *call, Order *order);
extern void order_move(IdemCall *call, Order *order, OrderStatus to);

/*
 * Move a locked order as the money of purchase 1 has moved: to refunded when
 * all of it went back, and back to where it was when some of that came again.
 */
extern void order_follow_money(IdemCall *call, Order *order, const struct Receipt *applied);

#endif							/* IDEM_ORDER_H */
