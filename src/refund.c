/*-------------------------------------------------------------------------
 * refund.c
 *	  Refunds: money that goes back.
 *
 * A refund is bound to one receipt and reserves its amount there from the
 * moment it is requested until it has definitely failed, so that two refunds
 * cannot promise the same money.  Who reserves has locked the receipt's row,
 * and the receipt's own check stands behind the arithmetic.
 *
 * Money that can pay nothing goes back by itself.  Its refund is numbered A +
 * receipt_no: however often its cause is met, there is one, and the number is
 * known before the row is.
 *-------------------------------------------------------------------------
 */
#include "refund.h"

#include "catalog/pg_type.h"

/* Column numbers of idem_refund */
enum
{
	TENANT_ID = 1, REFUND_NO, RECEIPT_NO, PAYMENT_NO, ORDER_ID, PURCHASE_NO, CHANNEL,
	ACCOUNT, CHANNEL_REFUND_NO, AMOUNT, CURRENCY, STATUS, VERSION, CAUSE, HELD, REASON,
	CREATED_AT, SUBMITTED_AT, NEXT_CHECK_AT, NATTS = NEXT_CHECK_AT
};

const IdemIndex refund_by_no = {"idem_refund", "idem_refund_pkey", NATTS};

static IdemQuery insert_refund = IDEM_QUERY(
	"INSERT INTO @schema@.idem_refund (tenant_id, refund_no, receipt_no, payment_no,"
	" order_id, purchase_no, channel, account, amount, currency, status, cause, reason,"
	" created_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'requested', $11, $12, $13)"
	" ON CONFLICT DO NOTHING RETURNING ctid",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, TEXTOID, INT8OID,
	TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID);

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
	refund->amount = DatumGetInt64(IDEM_COLUMN(row, AMOUNT));
	refund->status = IDEM_COLUMN(row, STATUS);
	return refund;
}

int64
refund_remainder(const Receipt *receipt)
{
	int64		amount = receipt->amount.isnull ? 0 : DatumGetInt64(receipt->amount.value);
	int64		taken = receipt->refund_reserved + receipt->disputed;

	return amount > taken ? amount - taken : 0;
}

Datum
refund_automatic_no(Datum receipt_no)
{
	return CStringGetTextDatum(psprintf("A%s", TextDatumGetCString(receipt_no)));
}

Refund *
refund_look_automatic(IdemCall *call, Datum receipt_no)
{
	Datum		keys[] = {call->tenant_id, refund_automatic_no(receipt_no)};

	return refund_of_row(idem_look(call, &refund_by_no, keys, lengthof(keys),
								   IDEM_SIGHT_LATEST));
}

bool
refund_allows_act(const Refund *refund)
{
	return idem_text_is(refund->status, "requested") || idem_text_is(refund->status, "processing");
}

/* Insert the refund of that much of the receipt; NULL: the number is taken */
static Refund *
insert(IdemCall *call, const Receipt *receipt, int64 amount, const char *cause,
	   NullableDatum reason)
{
	Datum		refund_no = refund_automatic_no(receipt->receipt_no);
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(refund_no),
		IDEM_VALUE(receipt->receipt_no),
		receipt->payment_no,
		receipt->order_id,
		receipt->purchase_no == 0 ? IDEM_NULL : IDEM_VALUE(Int32GetDatum(receipt->purchase_no)),
		IDEM_VALUE(receipt->channel),
		IDEM_VALUE(receipt->account),
		IDEM_VALUE(Int64GetDatum(amount)),
		receipt->currency,
		IDEM_TEXT(cause),
		reason,
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};
	Refund	   *refund;

	if (idem_run(call, &insert_refund, args) != 1)
		return NULL;
	refund = palloc(sizeof(Refund));
	refund->tid = *(ItemPointer) DatumGetPointer(idem_result(call, 0, 1).value);
	refund->refund_no = refund_no;
	refund->receipt_no = receipt->receipt_no;
	refund->amount = amount;
	refund->status = CStringGetTextDatum("requested");
	return refund;
}

Refund *
refund_request_automatic(IdemCall *call, Receipt *receipt, const char *cause,
						 NullableDatum reason)
{
	int64		amount = refund_remainder(receipt);
	Refund	   *refund;

	if (amount == 0 || !receipt_makes_sense(receipt))
		return NULL;
	refund = insert(call, receipt, amount, cause, reason);
	if (refund == NULL)
		return refund_look_automatic(call, receipt->receipt_no);
	receipt_reserve(call, receipt, amount);
	return refund;
}
