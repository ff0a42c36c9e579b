/*-------------------------------------------------------------------------
 * order.c
 *	  Orders: what is bought.
 *
 * An order's row is optional.  Without it the order counts as payable, and
 * everything about it follows from its payments; with it, the row is what
 * all who touch the order lock first.  It follows purchase 1.
 *
 * So the moment a row is born is the dangerous one: a payment of the order may
 * be on its way at another amount, or its money may just be arriving, and
 * neither would see the row.  Who inserts an order, a payment or a receipt
 * does it under the order's name and looks dirty for the other two: whichever
 * comes second sees the first, waits for it, and begins again.
 *
 * Whoever judges money holds all payments of the order locked and may wait for
 * more.  Were a row born meanwhile, he would want its lock last and the next
 * one first: a deadlock, and a fact refused.  So an order without a row has
 * another gate, its oldest payment.  It is taken under the name, when no row is
 * there, and only tried, so that nothing is held while waiting for it; and who
 * inserts a row has to take it too.
 *
 * A row that exists is changed under its row lock.  To change its amount the
 * name is needed as well, since a payment is created without that lock.
 *-------------------------------------------------------------------------
 */
#include "direct.h"
#include "order.h"
#include "payment.h"
#include "receipt.h"
#include "refund.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"

/* Column numbers of idem_order */
enum
{
	TENANT_ID = 1, ORDER_ID, STATUS, VERSION, AMOUNT, CURRENCY, BUYER_ID,
	METADATA, CREATED_AT, EXPIRES_AT, REFUNDED_FROM, NATTS = REFUNDED_FROM
};

const IdemIndex order_by_id = {"idem_order", "idem_order_pkey", NATTS};

const char *const order_status_names[] = {
	"pending", "paid", "shipped", "completed", "cancelled", "expired", "refunded"
};

static IdemTable orders = {
	"idem_order", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_order (tenant_id, order_id, status, version, amount,"
			   " currency, buyer_id, metadata, created_at, expires_at, refunded_from)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
			   " ON CONFLICT DO NOTHING RETURNING ctid",
			   TEXTOID, TEXTOID, TEXTOID, INT4OID, INT8OID, TEXTOID, TEXTOID, JSONBOID,
			   TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID)
};

/* TID scan: nothing can lead it astray */
static IdemChange store_order = {
	&orders, {STATUS, AMOUNT, CURRENCY, REFUNDED_FROM, IDEM_ADDS(VERSION)},
	IDEM_QUERY("UPDATE @schema@.idem_order SET status = $2, amount = $3, currency = $4,"
			   " refunded_from = $5, version = version + $6 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, INT4OID)
};


/* ---------- rows ---------- */

/* The order in a row; NULL for no row */
Order *
order_of_row(const IdemRow *row)
{
	Order	   *order;

	if (row == NULL)
		return NULL;
	order = palloc(sizeof(Order));
	order->tid = row->tid;
	order->order_id = IDEM_COLUMN(row, ORDER_ID);
	order->status = (OrderStatus)
		idem_word_index(IDEM_COLUMN(row, STATUS), order_status_names, ORDER_REFUNDED + 1);
	order->version = DatumGetInt32(IDEM_COLUMN(row, VERSION));
	order->amount = DatumGetInt64(IDEM_COLUMN(row, AMOUNT));
	order->currency = IDEM_COLUMN(row, CURRENCY);
	order->buyer_id = IDEM_NULLABLE(row, BUYER_ID);
	order->metadata = IDEM_NULLABLE(row, METADATA);
	order->created_at = DatumGetTimestampTz(IDEM_COLUMN(row, CREATED_AT));
	order->expires_at = IDEM_NULLABLE(row, EXPIRES_AT);
	order->refunded_from = IDEM_NULLABLE(row, REFUNDED_FROM);
	return order;
}

Order *
order_look(IdemCall *call, Datum order_id, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, order_id};

	return order_of_row(idem_look(call, &order_by_id, keys, lengthof(keys), sight));
}

/* NULL: the order has no row, or call->busy */
Order *
order_lock(IdemCall *call, Datum order_id)
{
	Datum		keys[] = {call->tenant_id, order_id};

	return order_of_row(idem_lock_row(call, &order_by_id, keys, lengthof(keys)));
}

/*
 * Lock the gate of an order without a row, under its name.  false: somebody
 * holds it.  An order without payments needs none.
 */
static bool
try_gate(IdemCall *call, Datum order_id)
{
	Datum		keys[] = {call->tenant_id, order_id};
	IdemRow    *oldest = idem_look(call, &payment_by_order, keys, lengthof(keys),
								   IDEM_SIGHT_DIRTY);

	if (TransactionIdIsValid(call->rival))
		return false;
	return oldest == NULL || idem_try_lock(call, &payment_by_no, &oldest->tid) != NULL;
}

bool
order_lock_gate(IdemCall *call, Datum order_id, Order **order)
{
	int			pause_ms = 1;

	for (;;)
	{
		*order = order_lock(call, order_id);
		if (*order != NULL || call->busy)
			return !call->busy;

		idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, order_id);
		if (order_look(call, order_id, IDEM_SIGHT_DIRTY) == NULL && try_gate(call, order_id))
		{
			idem_unlock_names(call);
			return true;
		}
		if (!idem_step_back(call, &pause_ms))
		{
			call->busy = true;
			return false;
		}
	}
}

void
order_not_found(Datum order_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("order \"%s\" does not exist", TextDatumGetCString(order_id)),
			 errdetail("The tenant has no row for this order."),
			 errhint("Create it with idem_create_order().")));
	pg_unreachable();
}

bool
order_is_payable(const Order *order, TimestampTz now)
{
	if (order == NULL)
		return true;
	switch (order->status)
	{
		case ORDER_PENDING:
			return order->expires_at.isnull ||
				DatumGetTimestampTz(order->expires_at.value) > now;
		case ORDER_PAID:
		case ORDER_SHIPPED:
		case ORDER_COMPLETED:
			return true;		/* paid in time; a further purchase has its own */
		case ORDER_CANCELLED:
		case ORDER_EXPIRED:
		case ORDER_REFUNDED:
			break;
	}
	return false;
}

bool
order_insert(IdemCall *call, Order *order)
{
	order->status = ORDER_PENDING;
	order->version = 1;
	order->created_at = call->now;
	order->refunded_from = IDEM_NULL;
	return idem_insert_at(call, &orders, (NullableDatum[]) {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(order->order_id),
		IDEM_TEXT(order_status_names[order->status]),
		IDEM_VALUE(Int32GetDatum(order->version)),
		IDEM_VALUE(Int64GetDatum(order->amount)),
		IDEM_VALUE(order->currency),
		order->buyer_id,
		order->metadata,
		IDEM_VALUE(TimestampTzGetDatum(order->created_at)),
		order->expires_at,
		order->refunded_from
	}, &order->tid);
}

void
order_store(IdemCall *call, Order *order)
{
	NullableDatum values[] = {
		IDEM_TEXT(order_status_names[order->status]),
		IDEM_VALUE(Int64GetDatum(order->amount)),
		IDEM_VALUE(order->currency),
		order->refunded_from,
		IDEM_VALUE(Int32GetDatum(1))
	};

	if (!idem_change(call, &store_order, &order->tid, values))
		elog(ERROR, "locked order \"%s\" could not be updated",
			 TextDatumGetCString(order->order_id));
	order->version++;
}

/* The same, when nothing but the status changes */
void
order_move(IdemCall *call, Order *order, OrderStatus to)
{
	order->refunded_from = to == ORDER_REFUNDED ?
		IDEM_TEXT(order_status_names[order->status]) : IDEM_NULL;
	order->status = to;
	order_store(call, order);
}

/* Where a refunded order came from */
static OrderStatus
origin_of(const Order *order)
{
	if (order->refunded_from.isnull)
		return ORDER_PAID;		/* somebody moved it past this library */
	return (OrderStatus)
		idem_word_index(order->refunded_from.value, order_status_names, ORDER_REFUNDED + 1);
}

void
order_follow_money(IdemCall *call, Order *order, const Receipt *applied)
{
	switch (order->status)
	{
		case ORDER_PAID:
		case ORDER_SHIPPED:
		case ORDER_COMPLETED:
			if (receipt_is_refunded(applied))
				order_move(call, order, ORDER_REFUNDED);
			break;
		case ORDER_REFUNDED:
			if (!receipt_is_refunded(applied))
				order_move(call, order, origin_of(order));
			break;
		case ORDER_PENDING:
		case ORDER_CANCELLED:
		case ORDER_EXPIRED:
			break;
	}
}


/* ---------- create ---------- */

/* what: the order's row, or a payment of it, is something else */
static void
raise_conflict(Datum order_id, const char *what, const char *field)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_KEY_CONFLICT),
			 errmsg("order \"%s\" %s", TextDatumGetCString(order_id), what),
			 errdetail("The first field that differs is %s.", field),
			 errhint("See what it is with idem_get_order() and idem_find_payment(); idem_update_order() changes a pending order.")));
}

/*
 * Compare what is asked for with the order's row: amount, currency and, where
 * both name one, buyer_id.
 */
static void
compare_order(const Order *asked, const Order *order)
{
	static const char what[] = "is there, and is something else";

	if (asked->amount != order->amount)
		raise_conflict(asked->order_id, what, "amount");
	if (!idem_same_text(asked->currency, order->currency))
		raise_conflict(asked->order_id, what, "currency");
	if (!asked->buyer_id.isnull && !order->buyer_id.isnull &&
		!idem_same_text(asked->buyer_id.value, order->buyer_id.value))
		raise_conflict(asked->order_id, what, "buyer_id");
}

/* Compare with a payment that the order had before its row; NULL: none */
static void
compare_payment(const Order *asked, const Payment *payment)
{
	static const char what[] = "has a payment of something else";

	if (payment == NULL)
		return;
	if (asked->amount != payment->amount)
		raise_conflict(asked->order_id, what, "amount");
	if (!idem_same_text(asked->currency, payment->currency))
		raise_conflict(asked->order_id, what, "currency");
}

/*
 * The moves that a new order makes at once: paid, if there is nothing to pay
 * or purchase 1 was paid before; refunded, if all of that went back since.
 */
static void
catch_up(IdemCall *call, Order *order, const Receipt *applied)
{
	if (order->amount == 0 || applied != NULL)
		order_move(call, order, ORDER_PAID);
	if (applied != NULL)
		order_follow_money(call, order, applied);
}

/*
 * One attempt to create an order.  Returns the outcome, and the order in
 * *order; NULL: a rival was in the way and is gone, try again.
 */
static const char *
try_create(IdemCall *call, Order *asked, Order **order, int *pause_ms)
{
	Payment    *active;
	Payment    *paid = NULL;
	Receipt    *applied;

	idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, asked->order_id);
	*order = order_look(call, asked->order_id, IDEM_SIGHT_DIRTY);
	active = payment_look_active(call, asked->order_id, IDEM_SIGHT_DIRTY);
	if (*order != NULL && !TransactionIdIsValid(call->rival))
		return "existing";

	if (TransactionIdIsValid(call->rival) || !try_gate(call, asked->order_id))
	{
		*order = NULL;
		return idem_step_back(call, pause_ms) ? NULL : "in_progress";
	}
	/* whoever moves its money holds the gate: what was seen before it may have moved */
	applied = receipt_look_applied(call, asked->order_id, 1, IDEM_SIGHT_LATEST);
	if (applied != NULL)
		paid = payment_look(call, applied->payment_no.value, IDEM_SIGHT_LATEST);
	compare_payment(asked, active);
	compare_payment(asked, paid);
	if (!order_insert(call, asked))
		return idem_step_back(call, pause_ms) ? NULL : "in_progress";
	catch_up(call, asked, applied);
	*order = asked;
	return "created";
}

static Datum
leave_with_order(IdemCall *call, const Order *order, const char *outcome)
{
	idem_put(call, 1, order->order_id);
	idem_put_text(call, 2, order_status_names[order->status]);
	idem_put(call, 3, Int64GetDatum(order->amount));
	idem_put(call, 4, order->currency);
	idem_put(call, 5, Int32GetDatum(order->version));
	idem_put(call, 6, TimestampTzGetDatum(order->created_at));
	idem_put_nullable(call, 7, order->expires_at);
	return idem_leave(call, outcome);
}

/*
 * idem_create_order(tenant_id, order_id, amount, currency, buyer_id,
 *	 expires_in, metadata, wait)
 *	 -> (outcome, order_id, status, amount, currency, version, created_at,
 *		 expires_at)
 *
 * Outcomes: created, existing, in_progress.  Errors: ID001.
 */
PG_FUNCTION_INFO_V1(idem_create_order);
Datum
idem_create_order(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Order		asked = {0};
	Order	   *order;
	const char *outcome = "existing";
	int			pause_ms = 1;

	asked.order_id = idem_arg_key(call, 1);
	asked.amount = idem_arg_amount(call, 2, 0);
	asked.currency = idem_arg_currency(call, 3);
	asked.buyer_id = idem_arg_optional_key(call, 4);
	asked.expires_at = idem_arg_expiry(call, 5);
	asked.metadata = idem_arg(call, 6);
	idem_arg_wait(call, 7);

	order = order_look(call, asked.order_id, IDEM_SIGHT_FIRST);
	if (order == NULL)
	{
		while ((outcome = try_create(call, &asked, &order, &pause_ms)) == NULL)
			 /* again */ ;
		idem_unlock_names(call);
	}
	if (order == NULL)
		return idem_leave(call, outcome);
	if (order != &asked)
		compare_order(&asked, order);
	return leave_with_order(call, order, outcome);
}


/* ---------- update ---------- */

static int32
arg_version(IdemCall *call, int n)
{
	NullableDatum version = idem_arg(call, n);

	if (version.isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" of %s must not be null",
						call->function->argnames[n], NameStr(call->function->name)),
				 errdetail("Without the version that the caller read, another's change could be overwritten unseen."),
				 errhint("Pass the version that idem_create_order() or idem_get_order() returned.")));
	return DatumGetInt32(version.value);
}

/*
 * Change a locked order, whose wanted amount and currency differ.  Returns
 * the outcome.  The order's name, once no rival holds it up, stays locked
 * until the order is written: no payment can be created in between.
 */
static const char *
change_order(IdemCall *call, Order *order, int64 amount, Datum currency, int32 expected_version)
{
	Payment    *active;

	if (order->status != ORDER_PENDING)
		return "refused";
	for (;;)
	{
		idem_lock_name(call, IDEM_NAME_ORDER, call->tenant_id, order->order_id);
		active = payment_look_active(call, order->order_id, IDEM_SIGHT_DIRTY);
		if (!TransactionIdIsValid(call->rival))
			break;
		idem_unlock_names(call);
		if (!idem_await_rival(call))
			return "in_progress";
	}
	if (active != NULL)
		return "refused";
	if (order->version != expected_version)
		return "stale";

	order->amount = amount;
	order->currency = currency;
	order_store(call, order);
	catch_up(call, order, NULL);
	return "updated";
}

/*
 * idem_update_order(tenant_id, order_id, amount, currency, expected_version,
 *	 reason)
 *	 -> (outcome, version)
 *
 * Outcomes: updated, duplicate, stale, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_update_order);
Datum
idem_update_order(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		order_id = idem_arg_key(call, 1);
	int64		amount = idem_arg_amount(call, 2, 0);
	Datum		currency = idem_arg_currency(call, 3);
	int32		expected_version = arg_version(call, 4);
	const char *outcome = "duplicate";
	Order	   *order;

	idem_because(call, idem_arg(call, 5));
	order = order_look(call, order_id, IDEM_SIGHT_LATEST);
	if (order != NULL &&
		(order->amount != amount || !idem_same_text(order->currency, currency)))
		order = order_lock(call, order_id);
	if (call->busy)
		return idem_leave(call, "in_progress");
	if (order == NULL)
		order_not_found(order_id);

	if (order->amount != amount || !idem_same_text(order->currency, currency))
		outcome = change_order(call, order, amount, currency, expected_version);
	if (strcmp(outcome, "in_progress") != 0)
		idem_put(call, 1, Int32GetDatum(order->version));
	return idem_leave(call, outcome);
}


/* ---------- ship and complete ---------- */

/*
 * What may be said of an order without locking it, by status; NULL: lock it
 * and judge.  Said from what is committed now, not from an old snapshot: who
 * hears "refused" acts on it.
 */
static const char *const ship_outcomes[] = {
	[ORDER_PENDING] = "refused",
	[ORDER_PAID] = NULL,
	[ORDER_SHIPPED] = "already_shipped",
	[ORDER_COMPLETED] = "already_shipped",
	[ORDER_CANCELLED] = "refused",
	[ORDER_EXPIRED] = "refused",
	[ORDER_REFUNDED] = "refused"
};

static const char *const complete_outcomes[] = {
	[ORDER_PENDING] = "refused",
	[ORDER_PAID] = NULL,
	[ORDER_SHIPPED] = NULL,
	[ORDER_COMPLETED] = "already_completed",
	[ORDER_CANCELLED] = "refused",
	[ORDER_EXPIRED] = "refused",
	[ORDER_REFUNDED] = "refused"
};

/*
 * Is there money behind a locked order that is not on its way back?  Locks
 * the receipt, so that no refund can slip in between; false also if that was
 * busy.
 */
static bool
money_stays(IdemCall *call, const Order *order)
{
	Receipt    *applied;

	if (order->amount == 0)
		return true;
	applied = receipt_lock_applied(call, order->order_id, 1);
	return applied != NULL && refund_remainder(applied) > 0;
}

/* Ship or complete: the same story with other words */
static Datum
fulfil(FunctionCallInfo fcinfo, const char *const *outcomes, OrderStatus to)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		order_id = idem_arg_key(call, 1);
	Order	   *order = order_look(call, order_id, IDEM_SIGHT_LATEST);
	const char *outcome;

	if (order != NULL && outcomes[order->status] == NULL)
		order = order_lock(call, order_id);
	if (call->busy)
		return idem_leave(call, "in_progress");
	if (order == NULL)
		order_not_found(order_id);

	outcome = outcomes[order->status];
	if (outcome == NULL && order->status == ORDER_PAID && !money_stays(call, order))
		outcome = "refused";
	if (call->busy)
		return idem_leave(call, "in_progress");
	if (outcome == NULL)
	{
		order_move(call, order, to);
		outcome = order_status_names[to];
	}
	idem_put_text(call, 1, order_status_names[order->status]);
	idem_put(call, 2, Int32GetDatum(order->version));
	return idem_leave(call, outcome);
}

/*
 * idem_ship_order(tenant_id, order_id) -> (outcome, status, version)
 *
 * Outcomes: shipped, already_shipped, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_ship_order);
Datum
idem_ship_order(PG_FUNCTION_ARGS)
{
	return fulfil(fcinfo, ship_outcomes, ORDER_SHIPPED);
}

/*
 * idem_complete_order(tenant_id, order_id) -> (outcome, status, version)
 *
 * Outcomes: completed, already_completed, refused.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_complete_order);
Datum
idem_complete_order(PG_FUNCTION_ARGS)
{
	return fulfil(fcinfo, complete_outcomes, ORDER_COMPLETED);
}


/* ---------- get ---------- */

/*
 * idem_get_order(tenant_id, order_id) -> the row of idem_order, if there is one
 */
PG_FUNCTION_INFO_V1(idem_get_order);
Datum
idem_get_order(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1)};
	IdemRow    *row = idem_look(call, &order_by_id, keys, lengthof(keys), IDEM_SIGHT_FIRST);

	idem_begin_rows(call);
	if (row != NULL)
		idem_emit_row(call, row, NATTS);
	return idem_leave_rows(call);
}
