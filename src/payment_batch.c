/*-------------------------------------------------------------------------
 * payment_batch.c
 *	  idem_create_payments: many payments in one call.
 *
 * The elements are sorted by order, so that batches that overlap meet in the
 * same order, and worked off in slices.  Most of a slice are orders that have
 * no payment yet: those are locked by name all at once, looked at dirtily and
 * inserted by one statement; the names are unlocked before the next slice, so
 * that no batch, however long, fills the lock table.  What needs more than an
 * insert (a rival to wait for, an expired payment to close, money that came
 * before, a token, a second element for the same order) goes the way of a
 * single call.
 *
 * A bad element has outcome error and its SQLSTATE, and stops no other.
 *-------------------------------------------------------------------------
 */
#include "payment_batch.h"

#include "key.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Names locked at once: two for an element */
#define SLICE 128

static IdemQuery insert_payments = IDEM_QUERY(
	"INSERT INTO @schema@.idem_payment (tenant_id, payment_no, order_id, purchase_no, amount,"
	" currency, status, request_key, repurchase, channel, account, metadata, created_at,"
	" expires_at)"
	" SELECT $1, p.payment_no, p.order_id, p.purchase_no, p.amount, p.currency, 'pending',"
	" p.request_key, p.repurchase, p.channel, p.account, p.metadata, $2, p.expires_at"
	" FROM unnest($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) AS p"
	" (payment_no, order_id, purchase_no, amount, currency, request_key, repurchase,"
	" channel, account, metadata, expires_at)"
	" ON CONFLICT DO NOTHING RETURNING payment_no",
	TEXTOID, TIMESTAMPTZOID, TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, INT8ARRAYOID,
	TEXTARRAYOID, TEXTARRAYOID, BOOLARRAYOID, TEXTARRAYOID, TEXTARRAYOID, JSONBARRAYOID,
	TIMESTAMPTZARRAYOID);

/* One column of a slice, as an array for unnest */
typedef struct Column
{
	Oid			type;
	Datum		values[SLICE];
	bool		nulls[SLICE];
} Column;

static NullableDatum
array_of(Column *column, int n)
{
	int16		len;
	bool		byval;
	char		align;
	int			lower = 1;

	get_typlenbyvalalign(column->type, &len, &byval, &align);
	return IDEM_VALUE(PointerGetDatum(construct_md_array(column->values, column->nulls, 1, &n,
														 &lower, column->type, len, byval,
														 align)));
}

static void
set(Column *column, int i, NullableDatum value)
{
	column->values[i] = value.value;
	column->nulls[i] = value.isnull;
}

/* The payments of these elements, by one statement; marks who was inserted */
static void
insert_all(IdemCall *call, BatchElement **elements, int n)
{
	static const Oid types[] = {
		TEXTOID, TEXTOID, INT4OID, INT8OID, TEXTOID, TEXTOID, BOOLOID, TEXTOID, TEXTOID,
		JSONBOID, TIMESTAMPTZOID
	};
	Column	   *columns = palloc(sizeof(Column) * lengthof(types));
	NullableDatum args[lengthof(types) + 2];
	uint64		inserted;

	for (int i = 0; i < n; i++)
	{
		const Payment *p = elements[i]->decision.payment;
		NullableDatum row[] = {
			IDEM_VALUE(p->payment_no), IDEM_VALUE(p->order_id),
			IDEM_VALUE(Int32GetDatum(p->purchase_no)), IDEM_VALUE(Int64GetDatum(p->amount)),
			IDEM_VALUE(p->currency), p->request_key, IDEM_VALUE(BoolGetDatum(p->repurchase)),
			p->channel, p->account, p->metadata, p->expires_at
		};

		for (size_t c = 0; c < lengthof(types); c++)
			set(&columns[c], i, row[c]);
	}

	args[0] = IDEM_VALUE(call->tenant_id);
	args[1] = IDEM_VALUE(TimestampTzGetDatum(call->now));
	for (size_t c = 0; c < lengthof(types); c++)
	{
		columns[c].type = types[c];
		args[c + 2] = array_of(&columns[c], n);
	}

	/* rows come back in the order they went in, less those that met a raw INSERT */
	inserted = idem_run(call, &insert_payments, args);
	for (int i = 0, row = 0; i < n && row < (int) inserted; i++)
	{
		if (!idem_same_text(idem_result(call, row, 1).value,
							elements[i]->decision.payment->payment_no))
			continue;
		elements[i]->done = true;
		row++;
	}
}

/* Lock the names of all these elements: request keys first, then orders */
static void
lock_all_names(IdemCall *call, BatchElement **elements, int n)
{
	Datum	   *names = palloc(sizeof(Datum) * n);
	int			nnames = 0;

	for (int i = 0; i < n; i++)
	{
		if (!elements[i]->request.request_key.isnull)
			names[nnames++] = elements[i]->request.request_key.value;
	}
	idem_lock_names(call, IDEM_NAME_REQUEST_KEY, call->tenant_id, names, nnames);
	for (int i = 0; i < n; i++)
		names[i] = elements[i]->request.order_id;
	idem_lock_names(call, IDEM_NAME_ORDER, call->tenant_id, names, n);
}

/* Nothing stands in the way of this element but that it must be inserted */
static bool
is_plain_insert(const BatchElement *element)
{
	return element->decision.outcome == CREATE_CREATED &&
		element->decision.expired == NULL &&
		element->request.token == NULL &&
		element->request.payment_no.isnull;
}

/*
 * Insert the elements of a slice that nothing stands in the way of.
 */
static void
create_together(IdemCall *call, BatchElement **elements, int n)
{
	CreateScene scenes[SLICE];
	BatchElement *plain[SLICE];
	Datum		numbers[SLICE];
	int			nplain = 0;

	if (n == 0)
		return;
	lock_all_names(call, elements, n);
	call->now = GetCurrentTimestamp();
	for (int i = 0; i < n; i++)
	{
		BatchElement *element = elements[i];

		create_gather(call, &element->request, IDEM_SIGHT_DIRTY, &scenes[nplain]);
		if (TransactionIdIsValid(call->rival))
		{
			call->rival = InvalidTransactionId;
			continue;
		}
		create_decide(call, &element->request, &scenes[nplain], &element->decision);
		if (is_plain_insert(element))
			plain[nplain++] = element;
	}

	idem_make_nos(call, nplain, numbers);
	for (int i = 0; i < nplain; i++)
		plain[i]->decision.payment = create_payment_of(call, &plain[i]->request, &scenes[i],
													   &plain[i]->decision, numbers[i]);
	if (nplain > 0)
		insert_all(call, plain, nplain);
	idem_unlock_names(call);
}

/* Is an element of this order or this request key among the chosen ones? */
static bool
is_chosen(BatchElement **chosen, int n, const CreateRequest *request)
{
	for (int i = 0; i < n; i++)
	{
		if (idem_same_text(chosen[i]->request.order_id, request->order_id))
			return true;
		if (!request->request_key.isnull &&
			idem_same_nullable(chosen[i]->request.request_key, request->request_key))
			return true;
	}
	return false;
}

/*
 * Work off a slice: answer what a look answers, insert together what can be,
 * the rest one by one.
 */
static void
work_off(IdemCall *call, BatchElement *elements, int n)
{
	BatchElement *chosen[SLICE];
	int			nchosen = 0;

	for (int i = 0; i < n; i++)
	{
		BatchElement *element = &elements[i];
		CreateScene scene;

		if (element->done)
			continue;			/* a bad one */
		create_gather(call, &element->request, IDEM_SIGHT_FIRST, &scene);
		create_decide(call, &element->request, &scene, &element->decision);
		if (!create_writes(&element->decision))
			element->done = true;
		else if (is_plain_insert(element) &&
				 !is_chosen(chosen, nchosen, &element->request))
			chosen[nchosen++] = element;
	}

	create_together(call, chosen, nchosen);

	for (int i = 0; i < n; i++)
	{
		TimestampTz deadline = call->deadline;

		if (elements[i].done)
			continue;
		if (elements[i].deadline != 0)
			call->deadline = elements[i].deadline;
		create_one(call, &elements[i].request, &elements[i].decision);
		call->deadline = deadline;
		elements[i].done = true;
	}
}

/* Columns of the answer: ord, those of idem_create_payment, error */
enum
{
	ORD, FIRST, ERROR_CODE = FIRST + CREATE_COLUMNS
};

static HeapTuple
answer(IdemCall *call, const BatchElement *element)
{
	const CreateDecision *decision = &element->decision;

	idem_clear(call);
	if (decision->outcome == CREATE_ERROR && element->request.order_id == (Datum) 0)
		idem_put_text(call, FIRST, create_outcome_names[CREATE_ERROR]);
	else
		create_show(call, FIRST, &element->request, decision);
	idem_put(call, ORD, Int32GetDatum(element->ord));
	if (decision->outcome == CREATE_ERROR)
		idem_put_text(call, ERROR_CODE, unpack_sql_state(decision->sqlstate));
	return heap_form_tuple(call->function->result, call->values, call->nulls);
}

/*
 * idem_create_payments(tenant_id, requests jsonb) -> a row per element
 *
 * Errors: 22004, 22023 when requests is not an array of objects; those of an
 * element stand in its row.
 */
PG_FUNCTION_INFO_V1(idem_create_payments);
Datum
idem_create_payments(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	MemoryContext results = call->context;
	MemoryContext work = AllocSetContextCreate(results, "idem batch", ALLOCSET_DEFAULT_SIZES);
	int			n;
	BatchElement *elements = batch_read(call, 1, &n);
	HeapTuple  *answers = palloc(sizeof(HeapTuple) * Max(n, 1));

	idem_begin_rows(call);
	idem_connect(call);
	call->context = work;
	for (int from = 0; from < n; from += SLICE)
	{
		int			count = Min(SLICE, n - from);

		MemoryContextSwitchTo(work);
		work_off(call, elements + from, count);
		MemoryContextSwitchTo(results);
		for (int i = from; i < from + count; i++)
			answers[elements[i].ord - 1] = answer(call, &elements[i]);
		MemoryContextReset(work);
		CHECK_FOR_INTERRUPTS();
	}
	call->context = results;

	for (int i = 0; i < n; i++)
		tuplestore_puttuple(call->rows, answers[i]);
	return idem_leave_rows(call);
}
