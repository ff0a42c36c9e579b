/*-------------------------------------------------------------------------
 * dispute.c
 *	  Disputes: money that a bank takes back.
 *
 * A customer disputes a payment at his bank, and the money may go back without
 * us.  From then on it must not be refunded as well: while a dispute is open,
 * and when it was lost, its amount counts in the receipt's disputed, beside
 * what is reserved for refunds.  Where both together exceed the receipt, which
 * nobody could help, the difference is its excess, an anomaly says so, and what
 * was requested but not submitted cannot be submitted any more.
 *
 * The channel tells the stages of a dispute, twice or out of order.  Opened is
 * the first, whenever it is told.  Of two decisions the later one stands, if
 * the channel told the times; else the one that was heard first.
 *
 * Who records a dispute locks its receipt first, then its row or, if it has
 * none, its name.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "dispute.h"
#include "refund.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/json.h"

/* In the order of stage_names */
typedef enum Stage
{
	STAGE_OPENED,
	STAGE_WON,
	STAGE_LOST,
	STAGE_UNKNOWN
} Stage;

static const char *const stage_names[] = {"opened", "won", "lost"};

/* Column numbers of idem_dispute */
enum
{
	TENANT_ID = 1, CHANNEL, ACCOUNT, DISPUTE_NO, TRADE_NO, RECEIPT_NO, PAYMENT_NO, ORDER_ID,
	PURCHASE_NO, STAGE, VERSION, AMOUNT, CURRENCY, CREATED_AT, OCCURRED_AT, NATTS = OCCURRED_AT
};

/* tenant_id, channel, account, dispute_no */
static const IdemIndex dispute_by_no = {"idem_dispute", "idem_dispute_pkey", NATTS};

/* tenant_id, receipt_no */
static const IdemIndex dispute_by_receipt = {"idem_dispute", "idem_dispute_receipt", NATTS};

/* A row of idem_dispute, as far as it decides */
typedef struct Dispute
{
	ItemPointerData tid;
	Datum		channel;
	Datum		account;
	Datum		dispute_no;
	Datum		trade_no;
	NullableDatum receipt_no;
	Stage		stage;
	int64		amount;			/* minor units */
	Datum		currency;
	NullableDatum occurred_at;
} Dispute;

/* What is known, and later locked, of the thing that a fact is about */
typedef struct Record
{
	const DisputeFact *fact;
	Stage		stage;
	Dispute    *dispute;		/* NULL: unknown */
	Receipt    *receipt;		/* NULL: unknown */
} Record;

static IdemQuery insert_dispute = IDEM_QUERY(
	"INSERT INTO @schema@.idem_dispute (tenant_id, channel, account, dispute_no, trade_no,"
	" receipt_no, payment_no, order_id, purchase_no, stage, amount, currency, created_at,"
	" occurred_at)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'opened', $10, $11, $12, $13)"
	" ON CONFLICT DO NOTHING RETURNING ctid",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT8OID,
	TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID);

/* TID scan: nothing can lead it astray */
static IdemQuery store_dispute = IDEM_QUERY(
	"UPDATE @schema@.idem_dispute SET receipt_no = $2, payment_no = $3, order_id = $4,"
	" purchase_no = $5, stage = $6, amount = $7, occurred_at = $8, version = version + 1"
	" WHERE ctid = $1",
	TIDOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, TEXTOID, INT8OID, TIMESTAMPTZOID);


/* ---------- rows ---------- */

/* The dispute in a row; NULL for no row */
static Dispute *
dispute_of_row(const IdemRow *row)
{
	Dispute    *dispute;

	if (row == NULL)
		return NULL;
	dispute = palloc(sizeof(Dispute));
	dispute->tid = row->tid;
	dispute->channel = IDEM_COLUMN(row, CHANNEL);
	dispute->account = IDEM_COLUMN(row, ACCOUNT);
	dispute->dispute_no = IDEM_COLUMN(row, DISPUTE_NO);
	dispute->trade_no = IDEM_COLUMN(row, TRADE_NO);
	dispute->receipt_no = IDEM_NULLABLE(row, RECEIPT_NO);
	dispute->stage = (Stage)
		idem_word_index(IDEM_COLUMN(row, STAGE), stage_names, lengthof(stage_names));
	dispute->amount = DatumGetInt64(IDEM_COLUMN(row, AMOUNT));
	dispute->currency = IDEM_COLUMN(row, CURRENCY);
	dispute->occurred_at = IDEM_NULLABLE(row, OCCURRED_AT);
	return dispute;
}

static Datum
or_empty(NullableDatum text)
{
	return text.isnull ? CStringGetTextDatum("") : text.value;
}

/*
 * A dispute of the receipt under the same number, on an account that one side
 * does not know.
 */
static Dispute *
find_by_receipt(IdemCall *call, const Record *record, IdemSight sight)
{
	const DisputeFact *fact = record->fact;
	Datum		keys[] = {call->tenant_id, record->receipt->receipt_no};
	ListCell   *cell;

	foreach(cell, idem_look_all(call, &dispute_by_receipt, keys, lengthof(keys), sight))
	{
		Dispute    *dispute = dispute_of_row((IdemRow *) lfirst(cell));

		if (idem_same_text(dispute->dispute_no, fact->dispute_no.value) &&
			(!idem_is_given(fact->account) || receipt_is_empty(dispute->account)))
			return dispute;
	}
	return NULL;
}

static Dispute *
find_dispute(IdemCall *call, const Record *record, IdemSight sight)
{
	const DisputeFact *fact = record->fact;
	Datum		keys[] = {
		call->tenant_id, fact->channel.value, or_empty(fact->account), fact->dispute_no.value
	};
	Dispute    *dispute = dispute_of_row(idem_look(call, &dispute_by_no, keys, lengthof(keys), sight));

	if (dispute == NULL && record->receipt != NULL)
		dispute = find_by_receipt(call, record, sight);
	return dispute;
}

static NullableDatum
purchase_of(const Receipt *receipt)
{
	return receipt == NULL || receipt->purchase_no == 0 ? IDEM_NULL :
		IDEM_VALUE(Int32GetDatum(receipt->purchase_no));
}

/* Insert the dispute that a fact tells of, as opened; false: it is there */
static bool
insert(IdemCall *call, Record *record)
{
	const DisputeFact *fact = record->fact;
	const Receipt *receipt = record->receipt;
	Datum		currency;
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		fact->channel,
		IDEM_VALUE(or_empty(fact->account)),
		fact->dispute_no,
		fact->trade_no,
		receipt == NULL ? IDEM_NULL : IDEM_VALUE(receipt->receipt_no),
		receipt == NULL ? IDEM_NULL : receipt->payment_no,
		receipt == NULL ? IDEM_NULL : receipt->order_id,
		purchase_of(receipt),
		fact->amount,
		fact->currency,
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		fact->occurred_at
	};
	Dispute    *dispute = palloc0(sizeof(Dispute));

	/* in upper case */
	if (idem_is_currency(fact->currency.value, &currency))
		args[10] = IDEM_VALUE(currency);
	if (idem_run(call, &insert_dispute, args) != 1)
		return false;
	dispute->tid = *(ItemPointer) DatumGetPointer(idem_result(call, 0, 1).value);
	dispute->channel = args[1].value;
	dispute->account = args[2].value;
	dispute->dispute_no = args[3].value;
	dispute->receipt_no = args[5];
	dispute->stage = STAGE_OPENED;
	dispute->amount = DatumGetInt64(fact->amount.value);
	dispute->occurred_at = fact->occurred_at;
	record->dispute = dispute;
	return true;
}

/* Write back a locked dispute as it is told now */
static void
store(IdemCall *call, Record *record, const Dispute *told)
{
	Dispute    *dispute = record->dispute;
	const Receipt *receipt = record->receipt;
	NullableDatum args[] = {
		IDEM_VALUE(PointerGetDatum(&dispute->tid)),
		receipt == NULL ? IDEM_NULL : IDEM_VALUE(receipt->receipt_no),
		receipt == NULL ? IDEM_NULL : receipt->payment_no,
		receipt == NULL ? IDEM_NULL : receipt->order_id,
		purchase_of(receipt),
		IDEM_TEXT(stage_names[told->stage]),
		IDEM_VALUE(Int64GetDatum(told->amount)),
		told->occurred_at
	};

	if (idem_run(call, &store_dispute, args) != 1)
		elog(ERROR, "locked dispute could not be updated");
	dispute->stage = told->stage;
	dispute->amount = told->amount;
	dispute->receipt_no = told->receipt_no;
}


/* ---------- what fits nothing ---------- */

/* The key in anomalies: the same as idem_guard makes for history */
static Datum
key_of(const Record *record)
{
	const DisputeFact *fact = record->fact;
	bool		known = record->dispute != NULL;
	StringInfoData key;

	initStringInfo(&key);
	appendStringInfoString(&key, "{\"channel\": ");
	escape_json(&key, TextDatumGetCString(or_empty(fact->channel)));
	appendStringInfoString(&key, ", \"account\": ");
	escape_json(&key, TextDatumGetCString(known ? record->dispute->account :
										  or_empty(fact->account)));
	appendStringInfoString(&key, ", \"dispute_no\": ");
	escape_json(&key, TextDatumGetCString(or_empty(fact->dispute_no)));
	appendStringInfoChar(&key, '}');
	return CStringGetTextDatum(key.data);
}

static NullableDatum
describe(IdemCall *call, const DisputeFact *fact)
{
	AnomalyDetail *detail = anomaly_detail(call);

	anomaly_detail_text(detail, "stage", IDEM_TEXT(fact->stage));
	anomaly_detail_text(detail, "dispute_no", fact->dispute_no);
	anomaly_detail_text(detail, "channel", fact->channel);
	anomaly_detail_text(detail, "account", fact->account);
	anomaly_detail_text(detail, "trade_no", fact->trade_no);
	anomaly_detail_amount(detail, "amount", fact->amount);
	anomaly_detail_text(detail, "currency", fact->currency);
	return anomaly_detail_done(detail);
}

static void
open_anomaly(IdemCall *call, const Record *record, const char *kind)
{
	anomaly_open(call, kind, "dispute", key_of(record),
				 record->receipt == NULL ? IDEM_NULL : record->receipt->order_id,
				 describe(call, record->fact));
}

static void
open_over_refund(IdemCall *call, const Record *record)
{
	receipt_open_over_refund(call, record->receipt, describe(call, record->fact));
}

static const char *
keep(IdemCall *call, const Record *record, const char *kind, const char *outcome)
{
	idem_unlock_names(call);
	open_anomaly(call, record, kind);
	return outcome;
}

/* Does it say which dispute it is about? */
static bool
is_named(const DisputeFact *fact)
{
	return idem_is_given(fact->channel) && idem_is_given(fact->trade_no) &&
		idem_is_given(fact->dispute_no);
}

/* What is wrong with a fact as such, as the kind of the anomaly; NULL: nothing */
static const char *
find_nonsense(const Record *record)
{
	const DisputeFact *fact = record->fact;
	Datum		upper_case;

	if (record->stage == STAGE_UNKNOWN)
		return "unmapped_event";
	if (!is_named(fact) || fact->amount.isnull ||
		DatumGetInt64(fact->amount.value) <= 0 || fact->currency.isnull ||
		!idem_is_currency(fact->currency.value, &upper_case))
		return "dispute";
	return NULL;
}

/* Does it agree with what is known of the dispute and of its money? */
static bool
is_matched(const Record *record)
{
	const DisputeFact *fact = record->fact;
	Datum		currency = fact->currency.value;

	(void) idem_is_currency(fact->currency.value, &currency);
	if (record->dispute != NULL &&
		(!idem_same_text(record->dispute->trade_no, fact->trade_no.value) ||
		 !idem_same_text(record->dispute->currency, currency)))
		return false;
	return record->receipt == NULL ||
		(!record->receipt->currency.isnull &&
		 idem_same_text(record->receipt->currency.value, currency));
}


/* ---------- judge ---------- */

/* Did it happen after what is known, by the channel's own time? */
static bool
is_newer(const Record *record)
{
	NullableDatum before = record->dispute->occurred_at;
	NullableDatum now = record->fact->occurred_at;

	return !before.isnull && !now.isnull &&
		DatumGetTimestampTz(now.value) > DatumGetTimestampTz(before.value);
}

/* Is the dispute known, and its money only now? */
static bool
is_bound_now(const Record *record)
{
	return record->receipt != NULL && record->dispute != NULL &&
		record->dispute->receipt_no.isnull;
}

/* Is the known dispute where the fact leads? */
static bool
is_there(const Record *record)
{
	return record->dispute->stage == record->stage &&
		record->dispute->amount == DatumGetInt64(record->fact->amount.value);
}

/* Is it beyond that? */
static bool
is_stale(const Record *record)
{
	Stage		stage = record->dispute->stage;

	if (is_there(record) || (stage == STAGE_OPENED && record->stage != STAGE_OPENED))
		return false;
	if (stage != STAGE_OPENED && record->stage == STAGE_OPENED)
		return true;
	return !is_newer(record);
}

/* What there is to say of a known dispute; NULL: there is something to do */
static const char *
judge(const Record *record)
{
	if (is_bound_now(record))
		return NULL;
	if (is_there(record))
		return "duplicate";
	return is_stale(record) ? "stale" : NULL;
}

/*
 * What may be answered without a lock, from what is committed; NULL: there is
 * something to do.  Asked again once everything is locked.
 */
static const char *
recognize(IdemCall *call, const Record *record)
{
	const char *nonsense = find_nonsense(record);
	const char *outcome;

	if (nonsense != NULL)
		return keep(call, record, nonsense, "kept");
	if (!is_matched(record))
		return keep(call, record, "dispute", "kept");
	if (record->dispute == NULL)
		return NULL;
	outcome = judge(record);
	/* told once more while its money is still unknown */
	if (outcome != NULL && record->receipt == NULL)
		return keep(call, record, "dispute", "orphan");
	return outcome;
}


/* ---------- carry out ---------- */

/* What of a dispute counts against its receipt */
static int64
counted(const Dispute *dispute)
{
	return dispute->receipt_no.isnull || dispute->stage == STAGE_WON ? 0 : dispute->amount;
}

/* The dispute as it will be once the fact is recorded */
static Dispute
as_told(const Record *record)
{
	const DisputeFact *fact = record->fact;
	Dispute		told = {0};

	if (record->dispute != NULL)
		told = *record->dispute;
	told.receipt_no = record->receipt == NULL ? IDEM_NULL : IDEM_VALUE(record->receipt->receipt_no);
	if (record->dispute == NULL || !is_stale(record))
	{
		told.stage = record->stage;
		told.amount = DatumGetInt64(fact->amount.value);
		told.occurred_at = fact->occurred_at;
	}
	return told;
}

/* Somebody has to answer the bank, or to see what a lost dispute means */
static void
tell_human(IdemCall *call, const Record *record)
{
	if (record->receipt == NULL || record->dispute->stage != STAGE_WON)
		open_anomaly(call, record, "dispute");
	else
		anomaly_resolve(call, "dispute", "dispute", key_of(record), "won", IDEM_NULL);
}

/* With everything locked; NULL: begin again */
static const char *
carry_out(IdemCall *call, Record *record)
{
	bool		is_new = record->dispute == NULL;
	Dispute		told = as_told(record);
	int64		delta = counted(&told) - (is_new ? 0 : counted(record->dispute));
	int64		excess = record->receipt == NULL ? 0 : record->receipt->excess;

	if (record->receipt != NULL && !receipt_can_book(record->receipt, 0, delta))
	{
		idem_unlock_names(call);
		open_over_refund(call, record);
		return "kept";
	}
	if (is_new && !insert(call, record))
		return NULL;
	idem_unlock_names(call);
	if (!is_new || told.stage != STAGE_OPENED)
		store(call, record, &told);
	if (delta != 0)
		receipt_book(call, record->receipt, 0, 0, delta);
	tell_human(call, record);
	if (record->receipt != NULL && record->receipt->excess > excess)
		open_over_refund(call, record);
	return record->receipt == NULL ? "orphan" : "applied";
}


/* ---------- record ---------- */

/* Find what the fact is about */
static void
look_around(IdemCall *call, Record *record, IdemSight sight)
{
	const DisputeFact *fact = record->fact;

	record->receipt = NULL;
	record->dispute = NULL;
	if (!is_named(fact))
		return;
	record->receipt = receipt_look_trade(call, fact->channel, fact->account, fact->trade_no, sight);
	record->dispute = find_dispute(call, record, sight);
	if (record->dispute != NULL && !record->dispute->receipt_no.isnull)
		record->receipt = receipt_look(call, record->dispute->receipt_no.value, IDEM_SIGHT_LATEST);
}

/* false: it is not as it was seen, or somebody is at work on it */
static bool
lock_all(IdemCall *call, Record *record)
{
	Dispute    *found;

	if (record->receipt != NULL)
	{
		record->receipt = receipt_lock_seen(call, record->receipt);
		if (record->receipt == NULL)
			return false;
	}
	if (record->dispute != NULL)
	{
		Datum		keys[] = {
			call->tenant_id, record->dispute->channel, record->dispute->account,
			record->dispute->dispute_no
		};

		record->dispute = dispute_of_row(idem_lock_row(call, &dispute_by_no, keys, lengthof(keys)));
		return true;
	}
	idem_lock_name(call, IDEM_NAME_DISPUTE, call->tenant_id, key_of(record));
	found = find_dispute(call, record, IDEM_SIGHT_DIRTY);
	return found == NULL && !TransactionIdIsValid(call->rival);
}

/* One attempt; NULL: begin again */
static const char *
try_record(IdemCall *call, Record *record)
{
	const char *outcome;

	idem_hold_moment(call);
	look_around(call, record, IDEM_SIGHT_LATEST);
	idem_let_moment_go(call);
	if (record->receipt == NULL)
	{
		/* perhaps somebody is just writing it */
		look_around(call, record, IDEM_SIGHT_DIRTY);
		if (TransactionIdIsValid(call->rival))
			return NULL;
	}
	outcome = recognize(call, record);
	if (outcome != NULL)
		return outcome;
	if (!lock_all(call, record))
		return NULL;
	outcome = recognize(call, record);
	return outcome != NULL ? outcome : carry_out(call, record);
}

static Stage
read_stage(const char *word)
{
	for (int i = 0; i < (int) lengthof(stage_names); i++)
	{
		if (strcmp(word, stage_names[i]) == 0)
			return (Stage) i;
	}
	return STAGE_UNKNOWN;
}

void
dispute_record(IdemCall *call, const DisputeFact *fact, DisputeAnswer *answer)
{
	Record		record = {0};
	const Receipt *receipt;

	record.fact = fact;
	record.stage = read_stage(fact->stage);
	while ((answer->outcome = try_record(call, &record)) == NULL)
		(void) scene_step_back(call);
	idem_unlock_names(call);

	receipt = record.receipt;
	answer->receipt_no = receipt == NULL ? IDEM_NULL : IDEM_VALUE(receipt->receipt_no);
	answer->payment_no = receipt == NULL ? IDEM_NULL : receipt->payment_no;
	answer->order_id = receipt == NULL ? IDEM_NULL : receipt->order_id;
	answer->stage = record.dispute == NULL ? NULL : stage_names[record.dispute->stage];
	answer->remainder = receipt == NULL ? 0 : refund_remainder(receipt);
}

/* The arguments of idem_record_dispute, by position */
enum
{
	ARG_TENANT_ID, ARG_CHANNEL, ARG_ACCOUNT, ARG_TRADE_NO, ARG_DISPUTE_NO, ARG_STAGE,
	ARG_AMOUNT, ARG_CURRENCY, ARG_OCCURRED_AT
};

/*
 * idem_record_dispute(tenant_id, channel, account, trade_no, dispute_no, stage,
 *	 amount, currency, occurred_at)
 *	 -> (outcome, receipt_no, remainder, stage)
 *
 * A fact.  Outcomes: applied, duplicate, stale, kept, orphan.
 */
PG_FUNCTION_INFO_V1(idem_record_dispute);
Datum
idem_record_dispute(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter_fact(fcinfo);
	NullableDatum stage = idem_arg(call, ARG_STAGE);
	DisputeFact fact = {0};
	DisputeAnswer answer;

	fact.channel = IDEM_VALUE(idem_arg_fact_key(call, ARG_CHANNEL));
	fact.account = idem_arg_optional_fact_key(call, ARG_ACCOUNT);
	fact.trade_no = IDEM_VALUE(idem_arg_fact_key(call, ARG_TRADE_NO));
	fact.dispute_no = IDEM_VALUE(idem_arg_fact_key(call, ARG_DISPUTE_NO));
	fact.stage = stage.isnull ? "" : TextDatumGetCString(stage.value);
	fact.amount = idem_arg(call, ARG_AMOUNT);
	fact.currency = idem_arg(call, ARG_CURRENCY);
	fact.occurred_at = idem_arg(call, ARG_OCCURRED_AT);

	dispute_record(call, &fact, &answer);
	idem_put_nullable(call, 1, answer.receipt_no);
	if (!answer.receipt_no.isnull)
		idem_put(call, 2, Int64GetDatum(answer.remainder));
	if (answer.stage != NULL)
		idem_put_text(call, 3, answer.stage);
	return idem_leave(call, answer.outcome);
}
