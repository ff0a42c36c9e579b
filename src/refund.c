/*-------------------------------------------------------------------------
 * refund.c
 *	  Refunds: money that goes back.
 *
 * A refund is bound to one receipt and reserves its amount there from the
 * moment it is requested until it has definitely failed, so that two refunds
 * cannot promise the same money.  Who reserves has locked the receipt's row,
 * and the receipt's own check stands behind the arithmetic.  The receipt is
 * locked before the refund, always.
 *
 * Money that can pay nothing goes back by itself.  Its refund is numbered A +
 * receipt_no: however often its cause is met, there is one, and the number is
 * known before the row is.
 *-------------------------------------------------------------------------
 */
#include "brake.h"
#include "direct.h"
#include "refund.h"

#include "catalog/pg_type.h"

/* Column numbers of idem_refund */
enum
{
	TENANT_ID = 1, REFUND_NO, RECEIPT_NO, PAYMENT_NO, ORDER_ID, PURCHASE_NO, CHANNEL,
	ACCOUNT, CHANNEL_REFUND_NO, AMOUNT, CURRENCY, STATUS, VERSION, CAUSE, HELD, REASON,
	CREATED_AT, SUBMITTED_AT, NEXT_CHECK_AT, SETTLED_AT, TAKES_BACK, SUCCEEDED_AT,
	NATTS = SUCCEEDED_AT
};

const IdemIndex refund_by_no = {"idem_refund", "idem_refund_pkey", NATTS};
const IdemIndex refund_by_channel = {"idem_refund", "idem_refund_channel", NATTS};

/* tenant_id, receipt_no */
static const IdemIndex refund_by_receipt = {"idem_refund", "idem_refund_receipt", NATTS};

const char *const refund_status_names[] = {
	"requested", "processing", "succeeded", "failed", "closed", "abnormal", "cancelled", "reversed"
};

static IdemTable refunds = {
	"idem_refund", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_refund (tenant_id, refund_no, receipt_no, payment_no,"
			   " order_id, purchase_no, channel, account, channel_refund_no, amount, currency,"
			   " status, version, cause, held, reason, created_at, submitted_at, next_check_at,"
			   " settled_at, takes_back, succeeded_at)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
			   " $17, $18, $19, $20, $21, $22) ON CONFLICT DO NOTHING RETURNING ctid",
			   TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID,
			   INT8OID, TEXTOID, TEXTOID, INT4OID, TEXTOID, BOOLOID, TEXTOID, TIMESTAMPTZOID,
			   TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, BOOLOID, TIMESTAMPTZOID)
};

/* TID scan: nothing can lead it astray */
static IdemChange store_refund = {
	&refunds, {STATUS, CHANNEL_REFUND_NO, HELD, SUBMITTED_AT, NEXT_CHECK_AT, SETTLED_AT,
	TAKES_BACK, SUCCEEDED_AT, IDEM_ADDS(VERSION)},
	IDEM_QUERY("UPDATE @schema@.idem_refund SET status = $2, channel_refund_no = $3, held = $4,"
			   " submitted_at = $5, next_check_at = $6, settled_at = $7, takes_back = $8,"
			   " succeeded_at = $9,"
			   " version = version + $10 WHERE ctid = $1 RETURNING ctid",
			   TIDOID, TEXTOID, TEXTOID, BOOLOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
			   BOOLOID, TIMESTAMPTZOID, INT4OID)
};


/* ---------- rows ---------- */

/* The refund in a row; NULL for no row */
static Refund *
refund_of_row(const IdemRow *row)
{
	Refund	   *refund;

	if (row == NULL)
		return NULL;
	refund = palloc(sizeof(Refund));
	refund->tid = row->tid;
	refund->refund_no = IDEM_COLUMN(row, REFUND_NO);
	refund->receipt_no = IDEM_COLUMN(row, RECEIPT_NO);
	refund->payment_no = IDEM_NULLABLE(row, PAYMENT_NO);
	refund->order_id = IDEM_NULLABLE(row, ORDER_ID);
	refund->purchase_no = IDEM_NULLABLE(row, PURCHASE_NO).isnull ? 0 :
		DatumGetInt32(IDEM_COLUMN(row, PURCHASE_NO));
	refund->channel = IDEM_COLUMN(row, CHANNEL);
	refund->account = IDEM_COLUMN(row, ACCOUNT);
	refund->channel_refund_no = IDEM_NULLABLE(row, CHANNEL_REFUND_NO);
	refund->amount = DatumGetInt64(IDEM_COLUMN(row, AMOUNT));
	refund->currency = IDEM_COLUMN(row, CURRENCY);
	refund->status = (RefundStatus)
		idem_word_index(IDEM_COLUMN(row, STATUS), refund_status_names, REFUND_REVERSED + 1);
	refund->version = DatumGetInt32(IDEM_COLUMN(row, VERSION));
	refund->cause = IDEM_COLUMN(row, CAUSE);
	refund->held = DatumGetBool(IDEM_COLUMN(row, HELD));
	refund->reason = IDEM_NULLABLE(row, REASON);
	refund->created_at = DatumGetTimestampTz(IDEM_COLUMN(row, CREATED_AT));
	refund->submitted_at = IDEM_NULLABLE(row, SUBMITTED_AT);
	refund->next_check_at = IDEM_NULLABLE(row, NEXT_CHECK_AT);
	refund->settled_at = IDEM_NULLABLE(row, SETTLED_AT);
	refund->takes_back = DatumGetBool(IDEM_COLUMN(row, TAKES_BACK));
	refund->succeeded_at = IDEM_NULLABLE(row, SUCCEEDED_AT);
	return refund;
}

Refund *
refund_look(IdemCall *call, Datum refund_no, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, refund_no};

	return refund_of_row(idem_look(call, &refund_by_no, keys, lengthof(keys), sight));
}

Refund *
refund_look_at_channel(IdemCall *call, Datum channel, Datum account, Datum channel_refund_no,
					   IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, channel, account, channel_refund_no};

	return refund_of_row(idem_look(call, &refund_by_channel, keys, lengthof(keys), sight));
}

List *
refund_look_all(IdemCall *call, Datum receipt_no)
{
	Datum		keys[] = {call->tenant_id, receipt_no};
	List	   *refunds = NIL;
	ListCell   *cell;

	foreach(cell, idem_look_all(call, &refund_by_receipt, keys, lengthof(keys), IDEM_SIGHT_LATEST))
		refunds = lappend(refunds, refund_of_row((IdemRow *) lfirst(cell)));
	return refunds;
}

Refund *
refund_lock(IdemCall *call, Datum refund_no)
{
	Datum		keys[] = {call->tenant_id, refund_no};

	return refund_of_row(idem_lock_row(call, &refund_by_no, keys, lengthof(keys)));
}

void
refund_not_found(Datum refund_no)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("refund \"%s\" does not exist", TextDatumGetCString(refund_no)),
			 errdetail("The tenant has no refund of this number.")));
	pg_unreachable();
}

int64
refund_remainder(const Receipt *receipt)
{
	int64		amount = receipt->amount.isnull ? 0 : DatumGetInt64(receipt->amount.value);
	int64		taken = receipt->refund_reserved + receipt->disputed;

	return amount > taken ? amount - taken : 0;
}

bool
refund_allows_act(const Refund *refund)
{
	return refund->status == REFUND_REQUESTED || refund->status == REFUND_PROCESSING;
}

bool
refund_holds_reserve(const Refund *refund)
{
	return refund_allows_act(refund) || refund->status == REFUND_ABNORMAL ||
		refund->status == REFUND_SUCCEEDED;
}


/* ---------- write ---------- */

Refund *
refund_of_receipt(const Receipt *receipt, Datum refund_no, int64 amount, const char *cause,
				  NullableDatum reason)
{
	Refund	   *refund = palloc0(sizeof(Refund));

	ItemPointerSetInvalid(&refund->tid);
	refund->refund_no = refund_no;
	refund->receipt_no = receipt->receipt_no;
	refund->payment_no = receipt->payment_no;
	refund->order_id = receipt->order_id;
	refund->purchase_no = receipt->purchase_no;
	refund->channel = receipt->channel;
	refund->account = receipt->account;
	refund->channel_refund_no = IDEM_NULL;
	refund->amount = amount;
	refund->currency = receipt->currency.value;
	refund->status = REFUND_REQUESTED;
	refund->cause = CStringGetTextDatum(cause);
	refund->reason = reason;
	refund->submitted_at = IDEM_NULL;
	refund->next_check_at = IDEM_NULL;
	refund->settled_at = IDEM_NULL;
	refund->succeeded_at = IDEM_NULL;
	return refund;
}

bool
refund_insert(IdemCall *call, Refund *refund)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(refund->refund_no),
		IDEM_VALUE(refund->receipt_no),
		refund->payment_no,
		refund->order_id,
		refund->purchase_no == 0 ? IDEM_NULL : IDEM_VALUE(Int32GetDatum(refund->purchase_no)),
		IDEM_VALUE(refund->channel),
		IDEM_VALUE(refund->account),
		refund->channel_refund_no,
		IDEM_VALUE(Int64GetDatum(refund->amount)),
		IDEM_VALUE(refund->currency),
		IDEM_TEXT(refund_status_names[refund->status]),
		IDEM_VALUE(Int32GetDatum(1)),	/* version */
		IDEM_VALUE(refund->cause),
		IDEM_VALUE(BoolGetDatum(refund->held)),
		refund->reason,
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		refund->submitted_at,
		refund->next_check_at,
		refund->settled_at,
		IDEM_VALUE(BoolGetDatum(refund->takes_back)),
		refund->succeeded_at
	};

	if (!idem_insert_at(call, &refunds, row, &refund->tid))
		return false;
	refund->created_at = call->now;
	refund->version = 1;
	return true;
}

void
refund_store(IdemCall *call, Refund *refund)
{
	NullableDatum values[] = {
		IDEM_TEXT(refund_status_names[refund->status]),
		refund->channel_refund_no,
		IDEM_VALUE(BoolGetDatum(refund->held)),
		refund->submitted_at,
		refund->next_check_at,
		refund->settled_at,
		IDEM_VALUE(BoolGetDatum(refund->takes_back)),
		refund->succeeded_at,
		IDEM_VALUE(Int32GetDatum(1))
	};

	if (!idem_change(call, &store_refund, &refund->tid, values))
		elog(ERROR, "locked refund \"%s\" could not be updated",
			 TextDatumGetCString(refund->refund_no));
	refund->version++;
}

/* The same for a move; only what is still requested can be held */
void
refund_move(IdemCall *call, Refund *refund, RefundStatus to)
{
	refund->status = to;
	refund->held = false;
	refund_store(call, refund);
}


/* ---------- automatic refunds ---------- */

Datum
refund_automatic_no(Datum receipt_no)
{
	return CStringGetTextDatum(psprintf("A%s", TextDatumGetCString(receipt_no)));
}

/* A and digits, whether there is such a refund or not */
bool
refund_is_automatic_no(Datum refund_no)
{
	const char *no = TextDatumGetCString(refund_no);

	return no[0] == 'A' && no[1] != '\0' && strspn(no + 1, "0123456789") == strlen(no + 1);
}

Refund *
refund_look_automatic(IdemCall *call, Datum receipt_no)
{
	return refund_look(call, refund_automatic_no(receipt_no), IDEM_SIGHT_LATEST);
}

Refund *
refund_look_reserved(IdemCall *call, const Receipt *receipt)
{
	return receipt->refund_reserved == 0 ? NULL :
		refund_look_automatic(call, receipt->receipt_no);
}

Refund *
refund_request_automatic(IdemCall *call, Receipt *receipt, const char *cause,
						 NullableDatum reason)
{
	int64		amount = refund_remainder(receipt);
	Refund	   *refund;
	Brake		brake;

	if (!receipt_makes_sense(receipt))
		return NULL;
	if (amount == 0)
		return refund_look_automatic(call, receipt->receipt_no);
	refund = refund_of_receipt(receipt, refund_automatic_no(receipt->receipt_no), amount,
							   cause, reason);
	brake = brake_judge(call, receipt);
	refund->held = brake != BRAKE_OFF;
	if (!refund->held)
		refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now));
	if (!refund_insert(call, refund))
		return refund_look_automatic(call, receipt->receipt_no);
	receipt_reserve(call, receipt, amount);
	idem_unlock_names(call);
	brake_pull(call, brake);
	return refund;
}
