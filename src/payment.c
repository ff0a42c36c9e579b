/*-------------------------------------------------------------------------
 * payment.c
 *	  Rows of idem_payment: look at them, lock them, write them back.
 *
 * What may happen to a payment stands in the files named after it:
 * payment_create.c, payment_batch.c, payment_submit.c, payment_close.c,
 * payment_find.c, and confirm.c for the money.
 *-------------------------------------------------------------------------
 */
#include "payment.h"

#include "direct.h"

#include "catalog/pg_type.h"

/* Column numbers of idem_payment */
enum
{
	TENANT_ID = PAYMENT_TENANT_ID, PAYMENT_NO, ORDER_ID, PURCHASE_NO, AMOUNT, CURRENCY, STATUS,
	VERSION, REQUEST_KEY, REPURCHASE, CHANNEL, ACCOUNT, CHANNEL_DATA, METADATA, CREATED_AT,
	EXPIRES_AT, SUBMITTED_AT, NEXT_CHECK_AT, NATTS = NEXT_CHECK_AT
};

const IdemIndex payment_by_no = {"idem_payment", "idem_payment_pkey", NATTS};
const IdemIndex payment_active = {"idem_payment", "idem_payment_active", NATTS};
const IdemIndex payment_by_order = {"idem_payment", "idem_payment_order", NATTS};
const IdemIndex payment_by_request_key = {"idem_payment", "idem_payment_request_key", NATTS};
const IdemIndex payment_key_by_key = {"idem_payment_key", "idem_payment_key_pkey", PAYMENT_KEY_NATTS};

const char *const payment_status_names[] = {
	"pending", "closing", "review", "paid", "paid_late", "failed", "closed"
};

/* Three unique rules can be hit, so no conflict target is named */
static IdemTable payments = {
	"idem_payment", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_payment (tenant_id, payment_no, order_id, purchase_no,"
			   " amount, currency, status, version, request_key, repurchase, channel, account,"
			   " channel_data, metadata, created_at, expires_at, submitted_at, next_check_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
			   " $17, $18) ON CONFLICT DO NOTHING",
			   TEXTOID, TEXTOID, TEXTOID, INT4OID, INT8OID, TEXTOID, TEXTOID, INT4OID, TEXTOID,
			   BOOLOID, TEXTOID, TEXTOID, JSONBOID, JSONBOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
			   TIMESTAMPTZOID, TIMESTAMPTZOID)
};

/* TID scan: nothing can lead it astray */
static IdemChange store_payment = {
	&payments, {STATUS, CHANNEL, ACCOUNT, CHANNEL_DATA, SUBMITTED_AT, NEXT_CHECK_AT, IDEM_ADDS(VERSION)},
	IDEM_QUERY("UPDATE @schema@.idem_payment SET status = $2, channel = $3, account = $4,"
			   " channel_data = $5, submitted_at = $6, next_check_at = $7,"
			   " version = version + $8"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, TEXTOID, TEXTOID, JSONBOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID)
};

/* The payment in a row; NULL for no row */
Payment *
payment_of_row(const IdemRow *row)
{
	Payment    *payment;

	if (row == NULL)
		return NULL;
	payment = palloc(sizeof(Payment));
	payment->tid = row->tid;
	payment->payment_no = IDEM_COLUMN(row, PAYMENT_NO);
	payment->order_id = IDEM_COLUMN(row, ORDER_ID);
	payment->purchase_no = DatumGetInt32(IDEM_COLUMN(row, PURCHASE_NO));
	payment->amount = DatumGetInt64(IDEM_COLUMN(row, AMOUNT));
	payment->currency = IDEM_COLUMN(row, CURRENCY);
	payment->status = (PaymentStatus)
		idem_word_index(IDEM_COLUMN(row, STATUS), payment_status_names, PAYMENT_CLOSED + 1);
	payment->version = DatumGetInt32(IDEM_COLUMN(row, VERSION));
	payment->request_key = IDEM_NULLABLE(row, REQUEST_KEY);
	payment->repurchase = DatumGetBool(IDEM_COLUMN(row, REPURCHASE));
	payment->channel = IDEM_NULLABLE(row, CHANNEL);
	payment->account = IDEM_NULLABLE(row, ACCOUNT);
	payment->channel_data = IDEM_NULLABLE(row, CHANNEL_DATA);
	payment->metadata = IDEM_NULLABLE(row, METADATA);
	payment->created_at = DatumGetTimestampTz(IDEM_COLUMN(row, CREATED_AT));
	payment->expires_at = IDEM_NULLABLE(row, EXPIRES_AT);
	payment->submitted_at = IDEM_NULLABLE(row, SUBMITTED_AT);
	payment->next_check_at = IDEM_NULLABLE(row, NEXT_CHECK_AT);
	return payment;
}

/* Does it hold the order's slot? */
bool
payment_is_active(const Payment *payment)
{
	return payment->status == PAYMENT_PENDING ||
		payment->status == PAYMENT_CLOSING ||
		payment->status == PAYMENT_REVIEW;
}

bool
payment_is_expired(const Payment *payment, TimestampTz now)
{
	return !payment->expires_at.isnull &&
		DatumGetTimestampTz(payment->expires_at.value) <= now;
}

/* An account belongs to its channel: at another one it is nobody's, or a stranger's */
NullableDatum
payment_account_at(const Payment *payment, Datum channel)
{
	return payment->channel.isnull || idem_same_text(payment->channel.value, channel) ?
		payment->account : IDEM_NULL;
}

IdemRow *
payment_look_row(IdemCall *call, Datum payment_no, IdemSight sight)
{
	Datum		keys[] = {payment_no, call->tenant_id};

	return idem_look(call, &payment_by_no, keys, 2, sight);
}

Payment *
payment_look(IdemCall *call, Datum payment_no, IdemSight sight)
{
	return payment_of_row(payment_look_row(call, payment_no, sight));
}

/* The payment that a request key made */
Payment *
payment_look_by_key(IdemCall *call, Datum request_key, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, request_key};

	return payment_of_row(idem_look(call, &payment_by_request_key, keys, 2, sight));
}

/* The payment that holds the order's slot */
Payment *
payment_look_active(IdemCall *call, Datum order_id, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, order_id};

	return payment_of_row(idem_look(call, &payment_active, keys, 2, sight));
}

/* The youngest payment of the order: its purchase is the current one */
Payment *
payment_look_latest(IdemCall *call, Datum order_id, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, order_id};

	return payment_of_row(idem_look_last(call, &payment_by_order, keys, 2, sight));
}

Payment *
payment_lock(IdemCall *call, Datum payment_no)
{
	Datum		keys[] = {payment_no, call->tenant_id};

	return payment_of_row(idem_lock_row(call, &payment_by_no, keys, 2));
}

/* All payments of an order, ascending by number; a list of Payment */
List *
payment_lock_order(IdemCall *call, Datum order_id)
{
	Datum		keys[] = {call->tenant_id, order_id};
	List	   *rows = idem_lock_all(call, &payment_by_order, keys, 2, PAYMENT_NO);
	List	   *payments = NIL;
	ListCell   *cell;

	foreach(cell, rows)
		payments = lappend(payments, payment_of_row((IdemRow *) lfirst(cell)));
	return payments;
}

void
payment_not_found(Datum payment_no)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("payment \"%s\" does not exist", TextDatumGetCString(payment_no)),
			 errdetail("The tenant has no payment of this number.")));
	pg_unreachable();
}

void
payment_store(IdemCall *call, Payment *payment)
{
	NullableDatum values[] = {
		IDEM_TEXT(payment_status_names[payment->status]),
		payment->channel,
		payment->account,
		payment->channel_data,
		payment->submitted_at,
		payment->next_check_at,
		IDEM_VALUE(Int32GetDatum(1))
	};

	if (!idem_change(call, &store_payment, &payment->tid, values))
		elog(ERROR, "locked payment \"%s\" could not be updated",
			 TextDatumGetCString(payment->payment_no));
	payment->version++;
}

/* The same, when nothing but the status changes */
void
payment_move(IdemCall *call, Payment *payment, PaymentStatus to)
{
	payment->status = to;
	payment_store(call, payment);
}

/* Insert a payment; false: it met a raw INSERT */
bool
payment_insert(IdemCall *call, const Payment *payment)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(payment->payment_no),
		IDEM_VALUE(payment->order_id),
		IDEM_VALUE(Int32GetDatum(payment->purchase_no)),
		IDEM_VALUE(Int64GetDatum(payment->amount)),
		IDEM_VALUE(payment->currency),
		IDEM_TEXT(payment_status_names[payment->status]),
		IDEM_VALUE(Int32GetDatum(payment->version)),
		payment->request_key,
		IDEM_VALUE(BoolGetDatum(payment->repurchase)),
		payment->channel,
		payment->account,
		payment->channel_data,
		payment->metadata,
		IDEM_VALUE(TimestampTzGetDatum(payment->created_at)),
		payment->expires_at,
		payment->submitted_at,
		payment->next_check_at
	};

	return idem_insert(call, &payments, row);
}
