/*-------------------------------------------------------------------------
 * payment_find.c
 *	  Showing payments.
 *
 * These functions show rows as the caller's statement sees them; they lock
 * nothing and permit nothing.  What may be done with a payment is answered by
 * the function that does it.
 *-------------------------------------------------------------------------
 */
#include "payment.h"

/*
 * idem_get_payment(tenant_id, payment_no)
 *	 -> the row of idem_payment, if there is one
 */
PG_FUNCTION_INFO_V1(idem_get_payment);
Datum
idem_get_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	IdemRow    *row = payment_look_row(call, idem_arg_key(call, 1), IDEM_SIGHT_FIRST);

	idem_begin_rows(call);
	if (row != NULL)
		idem_emit_row(call, row, payment_by_no.natts);
	return idem_leave_rows(call);
}

/*
 * Which of an order's payments, in the order of (purchase_no, created_at), to
 * show: the active one, else the paid one of the current purchase, else the
 * latest.
 */
static IdemRow *
choose_payment(List *rows)
{
	int32		purchase_no = payment_of_row((IdemRow *) llast(rows))->purchase_no;
	IdemRow    *paid = NULL;
	ListCell   *cell;

	foreach(cell, rows)
	{
		IdemRow    *row = (IdemRow *) lfirst(cell);
		Payment    *payment = payment_of_row(row);

		if (payment_is_active(payment))
			return row;
		if (payment->status == PAYMENT_PAID && payment->purchase_no == purchase_no)
			paid = row;
	}
	return paid != NULL ? paid : (IdemRow *) llast(rows);
}

/*
 * idem_find_payment(tenant_id, order_id)
 *	 -> the row of idem_payment that matters for the order, if it has any
 */
PG_FUNCTION_INFO_V1(idem_find_payment);
Datum
idem_find_payment(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1)};
	List	   *rows = idem_look_all(call, &payment_by_order, keys, lengthof(keys), IDEM_SIGHT_FIRST);

	idem_begin_rows(call);
	if (rows != NIL)
		idem_emit_row(call, choose_payment(rows), payment_by_order.natts);
	return idem_leave_rows(call);
}
