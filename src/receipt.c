/*-------------------------------------------------------------------------
 * receipt.c
 *	  Receipts: money that really arrived.
 *
 * A receipt is what a channel reported, kept as it was said.  Three unique
 * rules make it count once, whatever the code above does: one row for a
 * channel's trade, one for a trade on a payment, one applied receipt for a
 * purchase.  Money that cannot be matched to a payment, an orphan, or that
 * came where it should not, a rejected one, is a row without a payment; a
 * later report of the same trade uses it again.
 *
 * The danger is two reports of one trade at once, and a report that arrives
 * while its payment is being created.  So who inserts or takes such a row does
 * it under names: the trade's, and the payment's that the money was reported
 * for.  Only under the names is a receipt without a payment written, and then
 * before they are unlocked: who locks the name and looks dirty misses nothing.
 * What was reported stays as it was; payment and disposition are what we make
 * of it.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "direct.h"
#include "key.h"
#include "receipt.h"

#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/fmgrprotos.h"

/* Column numbers of idem_receipt */
enum
{
	TENANT_ID = 1, RECEIPT_NO, PAYMENT_NO, ORDER_ID, PURCHASE_NO, CHANNEL, ACCOUNT,
	TRADE_NO, REPORTED_PAYMENT_NO, AMOUNT, CURRENCY, DISPOSITION, REFUND_RESERVED,
	REFUNDED, DISPUTED, EXCESS, PAID_AT, CREATED_AT, REFUND_TOLD,
	REFUND_TOLD_AT, NATTS = REFUND_TOLD_AT
};

const IdemIndex receipt_by_no = {"idem_receipt", "idem_receipt_pkey", NATTS};
const IdemIndex receipt_by_trade = {"idem_receipt", "idem_receipt_trade", NATTS};
const IdemIndex receipt_by_payment = {"idem_receipt", "idem_receipt_payment", NATTS};
const IdemIndex receipt_applied = {"idem_receipt", "idem_receipt_applied", NATTS};
const IdemIndex receipt_orphans = {"idem_receipt", "idem_receipt_reported", NATTS};

/* tenant_id, order_id, purchase_no; in disposition mismatch */
static const IdemIndex receipt_mismatches = {"idem_receipt", "idem_receipt_mismatch", NATTS};

/* tenant_id, channel, account */
static const IdemIndex channel_accounts = {"idem_channel_account", "idem_channel_account_pkey", 3};

const char *const receipt_disposition_names[] = {
	"applied", "late", "surplus", "mismatch", "orphan", "rejected"
};

/* Three unique rules can be hit, so no conflict target is named */
static IdemTable receipts = {
	"idem_receipt", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_receipt (tenant_id, receipt_no, payment_no, order_id,"
			   " purchase_no, channel, account, trade_no, reported_payment_no, amount, currency,"
			   " disposition, refund_reserved, refunded, disputed, excess, paid_at, created_at,"
			   " refund_told, refund_told_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
			   " $17, $18, $19, $20) ON CONFLICT DO NOTHING RETURNING ctid",
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID,
			   INT8OID, TEXTOID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID,
			   TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID)
};

/* TID scans: nothing can lead them astray */
static IdemChange store_receipt = {
	&receipts, {PAYMENT_NO, ORDER_ID, PURCHASE_NO, DISPOSITION},
	IDEM_QUERY("UPDATE @schema@.idem_receipt SET payment_no = $2, order_id = $3, purchase_no = $4,"
			   " disposition = $5 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, TEXTOID, INT4OID, TEXTOID)
};

static IdemChange note_told = {
	&receipts, {REFUND_TOLD, REFUND_TOLD_AT},
	IDEM_QUERY("UPDATE @schema@.idem_receipt SET refund_told = $2, refund_told_at = $3"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID, TIMESTAMPTZOID)
};

static IdemChange reserve_refund = {
	&receipts, {IDEM_ADDS(REFUND_RESERVED)},
	IDEM_QUERY("UPDATE @schema@.idem_receipt SET refund_reserved = refund_reserved + $2"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID)
};

static IdemChange book_receipt = {
	&receipts, {IDEM_ADDS(REFUND_RESERVED), IDEM_ADDS(REFUNDED), IDEM_ADDS(DISPUTED), EXCESS},
	IDEM_QUERY("UPDATE @schema@.idem_receipt SET refund_reserved = refund_reserved + $2,"
			   " refunded = refunded + $3, disputed = disputed + $4, excess = $5"
			   " WHERE ctid = $1 RETURNING ctid",
			   TIDOID, INT8OID, INT8OID, INT8OID, INT8OID)
};


/* ---------- rows ---------- */

/* The receipt in a row; NULL for no row */
Receipt *
receipt_of_row(const IdemRow *row)
{
	Receipt    *receipt;

	if (row == NULL)
		return NULL;
	receipt = palloc(sizeof(Receipt));
	receipt->tid = row->tid;
	receipt->receipt_no = IDEM_COLUMN(row, RECEIPT_NO);
	receipt->payment_no = IDEM_NULLABLE(row, PAYMENT_NO);
	receipt->order_id = IDEM_NULLABLE(row, ORDER_ID);
	receipt->purchase_no = IDEM_NULLABLE(row, PURCHASE_NO).isnull ? 0 :
		DatumGetInt32(IDEM_COLUMN(row, PURCHASE_NO));
	receipt->channel = IDEM_COLUMN(row, CHANNEL);
	receipt->account = IDEM_COLUMN(row, ACCOUNT);
	receipt->trade_no = IDEM_COLUMN(row, TRADE_NO);
	receipt->reported_payment_no = IDEM_COLUMN(row, REPORTED_PAYMENT_NO);
	receipt->amount = IDEM_NULLABLE(row, AMOUNT);
	receipt->currency = IDEM_NULLABLE(row, CURRENCY);
	receipt->disposition = (ReceiptDisposition)
		idem_word_index(IDEM_COLUMN(row, DISPOSITION), receipt_disposition_names, RECEIPT_REJECTED + 1);
	receipt->refund_reserved = DatumGetInt64(IDEM_COLUMN(row, REFUND_RESERVED));
	receipt->refunded = DatumGetInt64(IDEM_COLUMN(row, REFUNDED));
	receipt->disputed = DatumGetInt64(IDEM_COLUMN(row, DISPUTED));
	receipt->excess = DatumGetInt64(IDEM_COLUMN(row, EXCESS));
	receipt->paid_at = IDEM_NULLABLE(row, PAID_AT);
	receipt->created_at = DatumGetTimestampTz(IDEM_COLUMN(row, CREATED_AT));
	receipt->refund_told = DatumGetInt64(IDEM_COLUMN(row, REFUND_TOLD));
	receipt->refund_told_at = IDEM_NULLABLE(row, REFUND_TOLD_AT);
	return receipt;
}

Receipt *
receipt_look(IdemCall *call, Datum receipt_no, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, receipt_no};

	return receipt_of_row(idem_look(call, &receipt_by_no, keys, lengthof(keys), sight));
}

/*
 * Look dirty, but do not mind who is at work on a receipt that has its
 * payment: it will not lose it.
 */
Receipt *
receipt_look_settled(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys)
{
	TransactionId known_rival = call->rival;
	Receipt    *receipt = receipt_of_row(idem_look(call, index, keys, nkeys, IDEM_SIGHT_DIRTY));

	if (call->rival == known_rival)
		return receipt;
	receipt = receipt_of_row(idem_look(call, index, keys, nkeys, IDEM_SIGHT_LATEST));
	if (receipt != NULL && !receipt->payment_no.isnull)
		call->rival = known_rival;
	return receipt;
}

/* A channel's trade that was already received on this payment */
Receipt *
receipt_look_own(IdemCall *call, Datum payment_no, Datum channel, Datum trade_no,
				 IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, payment_no, channel, trade_no};

	if (sight == IDEM_SIGHT_DIRTY)
		return receipt_look_settled(call, &receipt_by_payment, keys, lengthof(keys));
	return receipt_of_row(idem_look(call, &receipt_by_payment, keys, lengthof(keys), sight));
}

static Receipt *
find_by_trade(IdemCall *call, Datum channel, Datum account, Datum trade_no, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, channel, account, trade_no};

	return receipt_of_row(idem_look(call, &receipt_by_trade, keys, lengthof(keys), sight));
}

/* The receipt of a trade; one whose account is unknown may be on any */
Receipt *
receipt_look_trade(IdemCall *call, NullableDatum channel, NullableDatum account,
				   NullableDatum trade_no, IdemSight sight)
{
	Datum		nowhere = CStringGetTextDatum("");
	Receipt    *receipt = NULL;

	if (!idem_is_given(channel) || !idem_is_given(trade_no))
		return NULL;
	if (idem_is_given(account))
		receipt = find_by_trade(call, channel.value, account.value, trade_no.value, sight);
	if (receipt == NULL)
		receipt = find_by_trade(call, channel.value, nowhere, trade_no.value, sight);
	return receipt;
}

/* The receipt that paid this purchase of the order */
Receipt *
receipt_look_applied(IdemCall *call, Datum order_id, int32 purchase_no, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, order_id, Int32GetDatum(purchase_no)};

	return receipt_of_row(idem_look(call, &receipt_applied, keys, lengthof(keys), sight));
}

/* NULL: none, or call->busy */
Receipt *
receipt_lock_applied(IdemCall *call, Datum order_id, int32 purchase_no)
{
	Datum		keys[] = {call->tenant_id, order_id, Int32GetDatum(purchase_no)};

	return receipt_of_row(idem_lock_row(call, &receipt_applied, keys, lengthof(keys)));
}

/* NULL: none, or call->busy */
Receipt *
receipt_lock(IdemCall *call, Datum receipt_no)
{
	Datum		keys[] = {call->tenant_id, receipt_no};

	return receipt_of_row(idem_lock_row(call, &receipt_by_no, keys, lengthof(keys)));
}

Receipt *
receipt_take(IdemCall *call, const Receipt *seen)
{
	Datum		keys[] = {call->tenant_id, seen->receipt_no};
	ItemPointerData tid = seen->tid;
	IdemRow    *row = idem_try_lock(call, &receipt_by_no, &tid);

	if (row == NULL)
	{
		/* its holders can be several: wait for the row, not for one of them */
		idem_unlock_names(call);
		call->rival = InvalidTransactionId;
		(void) idem_lock_row(call, &receipt_by_no, keys, lengthof(keys));
	}
	return receipt_of_row(row);
}

void
receipt_lock_apart(IdemCall *call, const Receipt *seen)
{
	idem_lock_name(call, IDEM_NAME_PAYMENT, call->tenant_id, seen->reported_payment_no);
	receipt_lock_trade(call, seen->channel, seen->trade_no);
}

Receipt *
receipt_take_apart(IdemCall *call, const Receipt *seen)
{
	Receipt    *receipt = receipt_look(call, seen->receipt_no, IDEM_SIGHT_DIRTY);

	if (receipt == NULL || TransactionIdIsValid(call->rival) ||
		!idem_same_text(receipt->reported_payment_no, seen->reported_payment_no))
	{
		(void) scene_step_back(call);
		return NULL;
	}
	return receipt_take(call, receipt);
}

Receipt *
receipt_lock_seen(IdemCall *call, const Receipt *seen)
{
	Receipt    *receipt;

	if (!seen->payment_no.isnull)
		return receipt_lock(call, seen->receipt_no);
	receipt_lock_apart(call, seen);
	receipt = receipt_take_apart(call, seen);
	idem_unlock_names(call);
	/* one that was adopted meanwhile has an order, which would have come first */
	return receipt == NULL || !receipt->payment_no.isnull ? NULL : receipt;
}

void
receipt_not_found(Datum receipt_no)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("receipt \"%s\" does not exist", TextDatumGetCString(receipt_no)),
			 errdetail("The tenant has no receipt of this number.")));
	pg_unreachable();
}

bool
receipt_is_empty(Datum value)
{
	return VARSIZE_ANY_EXHDR(DatumGetPointer(value)) == 0;
}

static Datum
payment_no_of(const Receipt *receipt)
{
	return receipt->payment_no.isnull ? receipt->reported_payment_no : receipt->payment_no.value;
}

bool
receipt_is_for(const Receipt *receipt, Datum payment_no)
{
	return idem_same_text(payment_no, payment_no_of(receipt));
}

bool
receipt_makes_sense(const Receipt *receipt)
{
	Datum		upper_case;

	return !receipt->amount.isnull && DatumGetInt64(receipt->amount.value) > 0 &&
		!receipt->currency.isnull && idem_is_currency(receipt->currency.value, &upper_case) &&
		!receipt_is_empty(receipt->channel) && !receipt_is_empty(receipt->trade_no);
}

bool
receipt_is_refunded(const Receipt *receipt)
{
	return receipt->refunded > 0 && !receipt->amount.isnull &&
		receipt->refunded >= DatumGetInt64(receipt->amount.value);
}

bool
receipt_is_spoken_for(const Receipt *receipt)
{
	return receipt->refund_reserved > 0 || receipt->disputed > 0;
}


/* ---------- write ---------- */

static NullableDatum
purchase_of(const Receipt *receipt)
{
	return receipt->purchase_no == 0 ? IDEM_NULL :
		IDEM_VALUE(Int32GetDatum(receipt->purchase_no));
}

static bool
insert(IdemCall *call, Receipt *receipt)
{
	NullableDatum none = IDEM_VALUE(Int64GetDatum(0));
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(receipt->receipt_no),
		receipt->payment_no,
		receipt->order_id,
		purchase_of(receipt),
		IDEM_VALUE(receipt->channel),
		IDEM_VALUE(receipt->account),
		IDEM_VALUE(receipt->trade_no),
		IDEM_VALUE(receipt->reported_payment_no),
		receipt->amount,
		receipt->currency,
		IDEM_TEXT(receipt_disposition_names[receipt->disposition]),
		none, none, none, none, /* refund_reserved, refunded, disputed, excess */
		receipt->paid_at,
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		none,					/* refund_told */
		IDEM_NULL
	};

	if (!idem_insert_at(call, &receipts, row, &receipt->tid))
		return false;
	receipt->created_at = call->now;
	return true;
}

static void
change(IdemCall *call, IdemChange *what, Receipt *receipt, const NullableDatum *values)
{
	if (!idem_change(call, what, &receipt->tid, values))
		elog(ERROR, "locked receipt \"%s\" could not be updated",
			 TextDatumGetCString(receipt->receipt_no));
}

bool
receipt_write(IdemCall *call, Receipt *receipt)
{
	NullableDatum values[] = {
		receipt->payment_no,
		receipt->order_id,
		purchase_of(receipt),
		IDEM_TEXT(receipt_disposition_names[receipt->disposition])
	};

	if (!ItemPointerIsValid(&receipt->tid))
		return insert(call, receipt);
	change(call, &store_receipt, receipt, values);
	return true;
}

void
receipt_reserve(IdemCall *call, Receipt *receipt, int64 amount)
{
	NullableDatum values[] = {IDEM_VALUE(Int64GetDatum(amount))};

	change(call, &reserve_refund, receipt, values);
	receipt->refund_reserved += amount;
}

void
receipt_note_told(IdemCall *call, Receipt *receipt, int64 sum, NullableDatum at)
{
	NullableDatum values[] = {IDEM_VALUE(Int64GetDatum(sum)), at};

	change(call, &note_told, receipt, values);
	receipt->refund_told = sum;
	receipt->refund_told_at = at;
}

bool
receipt_can_book(const Receipt *receipt, int64 reserved, int64 disputed)
{
	int64		sum;

	return !pg_add_s64_overflow(receipt->refund_reserved, reserved, &sum) &&
		!pg_add_s64_overflow(sum, receipt->disputed, &sum) &&
		!pg_add_s64_overflow(sum, disputed, &sum);
}

/* What is promised or disputed beyond what came */
static int64
excess_of(const Receipt *receipt)
{
	int64		came = receipt->amount.isnull ? 0 : Max(DatumGetInt64(receipt->amount.value), 0);

	return Max(receipt->refund_reserved + receipt->disputed - came, 0);
}

void
receipt_book(IdemCall *call, Receipt *receipt, int64 reserved, int64 refunded, int64 disputed)
{
	receipt->refund_reserved += reserved;
	receipt->refunded += refunded;
	receipt->disputed += disputed;
	receipt->excess = excess_of(receipt);
	change(call, &book_receipt, receipt, (NullableDatum[]) {
		IDEM_VALUE(Int64GetDatum(reserved)),
		IDEM_VALUE(Int64GetDatum(refunded)),
		IDEM_VALUE(Int64GetDatum(disputed)),
		IDEM_VALUE(Int64GetDatum(receipt->excess))
	});
}


/* ---------- anomalies ---------- */

NullableDatum
receipt_detail(IdemCall *call, const Receipt *receipt, Datum payment_no)
{
	AnomalyDetail *detail = anomaly_detail(call);

	anomaly_detail_text(detail, "payment_no", IDEM_VALUE(payment_no));
	anomaly_detail_text(detail, "channel", IDEM_VALUE(receipt->channel));
	anomaly_detail_text(detail, "account", IDEM_VALUE(receipt->account));
	anomaly_detail_text(detail, "trade_no", IDEM_VALUE(receipt->trade_no));
	anomaly_detail_amount(detail, "amount", receipt->amount);
	anomaly_detail_text(detail, "currency", receipt->currency);
	return anomaly_detail_done(detail);
}

void
receipt_open_anomaly(IdemCall *call, const char *kind, const Receipt *receipt)
{
	anomaly_open(call, kind, "receipt", receipt->receipt_no, receipt->order_id,
				 receipt_detail(call, receipt, payment_no_of(receipt)));
}

void
receipt_resolve_anomaly(IdemCall *call, const char *kind, const Receipt *receipt,
						const char *resolution, NullableDatum reason)
{
	anomaly_resolve(call, kind, "receipt", receipt->receipt_no, resolution, reason);
}

void
receipt_open_over_refund(IdemCall *call, const Receipt *receipt, NullableDatum detail)
{
	anomaly_open(call, "over_refund", "receipt", receipt->receipt_no, receipt->order_id, detail);
}


/* ---------- names and accounts ---------- */

void
receipt_lock_trade(IdemCall *call, Datum channel, Datum trade_no)
{
	char	   *name = psprintf("%s/%s", TextDatumGetCString(channel),
								TextDatumGetCString(trade_no));

	idem_lock_name(call, IDEM_NAME_TRADE, call->tenant_id, CStringGetTextDatum(name));
}

bool
receipt_account_refused(IdemCall *call, const Payment *payment, bool given,
						Datum channel, Datum account)
{
	Datum		keys[] = {call->tenant_id, channel, account};

	if (given && payment != NULL && !payment->account.isnull &&
		!idem_same_text(payment->account.value, account))
		return true;
	if (idem_look(call, &channel_accounts, keys, 2, IDEM_SIGHT_FIRST) == NULL)
		return false;
	return idem_look(call, &channel_accounts, keys, 3, IDEM_SIGHT_FIRST) == NULL;
}


/* ---------- several ---------- */

/* In the order of arrival; two that arrived at once, by number */
static int
compare_rows(const ListCell *a, const ListCell *b)
{
	IdemRow    *x = (IdemRow *) lfirst(a);
	IdemRow    *y = (IdemRow *) lfirst(b);
	TimestampTz x_at = DatumGetTimestampTz(IDEM_COLUMN(x, CREATED_AT));
	TimestampTz y_at = DatumGetTimestampTz(IDEM_COLUMN(y, CREATED_AT));

	if (x_at != y_at)
		return x_at < y_at ? -1 : 1;
	return DatumGetInt32(DirectFunctionCall2Coll(bttextcmp, C_COLLATION_OID,
												 IDEM_COLUMN(x, RECEIPT_NO),
												 IDEM_COLUMN(y, RECEIPT_NO)));
}

void
receipt_sort(List *rows)
{
	list_sort(rows, compare_rows);
}

List *
receipt_lock_mismatches(IdemCall *call, Datum order_id, int32 purchase_no)
{
	Datum		keys[] = {call->tenant_id, order_id, Int32GetDatum(purchase_no)};
	List	   *rows = idem_lock_all(call, &receipt_mismatches, keys, lengthof(keys), RECEIPT_NO);
	List	   *receipts = NIL;
	ListCell   *cell;

	/* numbers of two backends need not be in the order of arrival */
	receipt_sort(rows);
	foreach(cell, rows)
		receipts = lappend(receipts, receipt_of_row((IdemRow *) lfirst(cell)));
	return receipts;
}

Receipt *
receipt_look_mismatch(IdemCall *call, Datum payment_no)
{
	Datum		keys[] = {call->tenant_id, payment_no};
	List	   *rows = idem_look_all(call, &receipt_by_payment, keys, lengthof(keys),
									 IDEM_SIGHT_LATEST);
	ListCell   *cell;

	receipt_sort(rows);
	foreach(cell, rows)
	{
		Receipt    *receipt = receipt_of_row((IdemRow *) lfirst(cell));

		if (receipt->disposition == RECEIPT_MISMATCH)
			return receipt;
	}
	return NULL;
}

bool
receipt_look_orphans(IdemCall *call, Datum payment_no, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, payment_no};
	List	   *rows = idem_look_all(call, &receipt_orphans, keys, lengthof(keys), sight);
	ListCell   *cell;

	if (sight == IDEM_SIGHT_DIRTY)
	{
		/* a repeated report writes to the anomaly alone */
		foreach(cell, rows)
			(void) anomaly_look(call, "orphan", "receipt",
								IDEM_COLUMN((IdemRow *) lfirst(cell), RECEIPT_NO), sight);
	}
	return rows != NIL;
}

/* Lock one of them, waiting if need be; NULL: it is none any more, or call->busy */
static Receipt *
lock_orphan(IdemCall *call, const Receipt *seen)
{
	Receipt    *receipt = receipt_take(call, seen);

	if (receipt == NULL && !call->busy)
		receipt = receipt_take(call, receipt_look(call, seen->receipt_no, IDEM_SIGHT_LATEST));
	return receipt != NULL && receipt->disposition == RECEIPT_ORPHAN ? receipt : NULL;
}

List *
receipt_lock_orphans(IdemCall *call, Datum payment_no)
{
	Datum		keys[] = {call->tenant_id, payment_no};
	List	   *rows = idem_look_all(call, &receipt_orphans, keys, lengthof(keys),
									 IDEM_SIGHT_LATEST);
	List	   *receipts = NIL;
	ListCell   *cell;

	receipt_sort(rows);
	foreach(cell, rows)
	{
		Receipt    *receipt = lock_orphan(call, receipt_of_row((IdemRow *) lfirst(cell)));

		if (receipt != NULL)
			receipts = lappend(receipts, receipt);
	}
	return receipts;
}

/*
 * idem_get_receipts(tenant_id, payment_no) -> SETOF idem_receipt
 *
 * The money that arrived for a payment, in the order of its arrival.
 */
PG_FUNCTION_INFO_V1(idem_get_receipts);
Datum
idem_get_receipts(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1)};
	List	   *rows = idem_look_all(call, &receipt_by_payment, keys, lengthof(keys),
									 IDEM_SIGHT_FIRST);
	ListCell   *cell;

	list_sort(rows, compare_rows);
	idem_begin_rows(call);
	foreach(cell, rows)
		idem_emit_row(call, (IdemRow *) lfirst(cell), NATTS);
	return idem_leave_rows(call);
}
