/*-------------------------------------------------------------------------
 * brake.c
 *	  The brake: automatic refunds that wait for a human.
 *
 * Money that can pay nothing goes back by itself.  Two things turn that cure
 * into a disease.  A database restored from yesterday's backup has forgotten
 * what was paid since: it closes orders that were paid, and when their money
 * is told once more, refunds what was rightly earned.  And a mistake anywhere,
 * a wrong clock or a channel that tells each trade under two numbers, refunds
 * everything at machine speed.
 *
 * So an automatic refund is held, requested and reserved but not to be sent, if
 *
 * - the setting idem.auto_refund, or its channel's account, says so;
 * - an anomaly auto_refund_held of the tenant is open;
 * - the tables were last seen in another cluster: the tenant's first one opens
 *	 the anomaly, and so does, once, each other tenant's for what is older than
 *	 the move;
 * - the tenant made idem.auto_refund_hourly of them in the last 60 minutes, and
 *	 since its last hold ended: the next one opens the anomaly.
 *
 * A human looks, resolves the anomaly, and lets the held refunds go or cancels
 * them.  The count is of what is committed: transactions at work side by side
 * do not see each other, so a burst can pass by as many as there are of them.
 *
 * The cluster stands in a table as its system identifier, which a dump carries
 * and a cluster made by initdb or pg_upgrade does not share.  It is stored with
 * the first receipt: at CREATE EXTENSION it would collide with the restored row.
 *-------------------------------------------------------------------------
 */
#include "anomaly.h"
#include "brake.h"
#include "refund.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "utils/array.h"

#define BURST_US (60 * 60 * USECS_PER_SEC)

/* Column numbers: of idem_cluster, idem_channel_account, idem_refund, idem_anomaly */
enum
{
	CLUSTER_SYSTEM_IDENTIFIER = 1, CLUSTER_SINCE,
	ACCOUNT_AUTO_REFUND = 4,
	REFUND_CREATED_AT = 17,
	ANOMALY_OPENED_AT = 12, ANOMALY_RESOLVED_AT = 18
};

/* Its only row */
static const IdemIndex cluster = {"idem_cluster", "idem_cluster_pkey", CLUSTER_SINCE};

/* tenant_id, channel, account */
static const IdemIndex channel_accounts = {
	"idem_channel_account", "idem_channel_account_pkey", ACCOUNT_AUTO_REFUND
};

/* tenant_id; by created_at */
static const IdemIndex automatic_refunds = {
	"idem_refund", "idem_refund_automatic", REFUND_CREATED_AT
};

/* tenant_id; by resolved_at */
static const IdemIndex ended_holds = {"idem_anomaly", "idem_anomaly_hold", ANOMALY_RESOLVED_AT};

static IdemQuery insert_cluster = IDEM_QUERY(
	"INSERT INTO @schema@.idem_cluster (system_identifier, since) VALUES ($1, '-infinity')"
	" ON CONFLICT DO NOTHING",
	TEXTOID);

/* TID scan: nothing can lead it astray */
static IdemQuery move_cluster = IDEM_QUERY(
	"UPDATE @schema@.idem_cluster SET system_identifier = $2, since = $3 WHERE ctid = $1",
	TIDOID, TEXTOID, TIMESTAMPTZOID);


/* ---------- the cluster ---------- */

static Datum
own_identifier(void)
{
	return CStringGetTextDatum(psprintf(UINT64_FORMAT, GetSystemIdentifier()));
}

/* What is stored, whatever a snapshot says of it; NULL: nothing yet */
static IdemRow *
stored_cluster(IdemCall *call)
{
	return idem_look(call, &cluster, NULL, 0, IDEM_SIGHT_BARE);
}

static bool
is_own(const IdemRow *stored)
{
	return idem_same_text(IDEM_COLUMN(stored, CLUSTER_SYSTEM_IDENTIFIER), own_identifier());
}

void
brake_note_cluster(IdemCall *call)
{
	static Oid	known_house = InvalidOid;
	static TransactionId inserted_by = InvalidTransactionId;
	NullableDatum args[] = {IDEM_VALUE(own_identifier())};

	/* the row is never deleted: one look a session, but at one that is there to stay */
	if (known_house == call->house->nspoid)
		return;
	if (stored_cluster(call) != NULL)
	{
		if (inserted_by != GetTopTransactionIdIfAny())
			known_house = call->house->nspoid;
		return;
	}
	idem_lock_name(call, IDEM_NAME_BRAKE, args[0].value, args[0].value);
	if (idem_look(call, &cluster, NULL, 0, IDEM_SIGHT_DIRTY) == NULL &&
		!TransactionIdIsValid(call->rival))
	{
		(void) idem_run(call, &insert_cluster, args);
		inserted_by = GetTopTransactionId();
	}
	call->rival = InvalidTransactionId;
	idem_unlock_names(call);
}

/* From here on this is the cluster; if somebody else is just saying so, let him */
static void
settle_in(IdemCall *call)
{
	IdemRow    *stored = stored_cluster(call);

	if (stored == NULL || is_own(stored))
		return;
	stored = idem_try_lock(call, &cluster, &stored->tid);
	call->rival = InvalidTransactionId;
	if (stored != NULL)
	{
		NullableDatum args[] = {
			IDEM_VALUE(PointerGetDatum(&stored->tid)),
			IDEM_VALUE(own_identifier()),
			IDEM_VALUE(TimestampTzGetDatum(call->now))
		};

		(void) idem_run(call, &move_cluster, args);
	}
}

/* When the payment that the money came for was made, or else the receipt */
static TimestampTz
made_at(IdemCall *call, const Receipt *receipt)
{
	Payment    *payment = receipt->payment_no.isnull ? NULL :
		payment_look(call, receipt->payment_no.value, IDEM_SIGHT_BARE);

	return payment == NULL ? receipt->created_at : payment->created_at;
}

/* Did these tables come from another cluster, and no human looked since? */
static bool
has_moved(IdemCall *call, const Receipt *receipt, const IdemRow *last_hold)
{
	IdemRow    *stored = stored_cluster(call);
	TimestampTz since;

	if (stored == NULL)
		return false;
	if (!is_own(stored))
		return true;
	since = DatumGetTimestampTz(IDEM_COLUMN(stored, CLUSTER_SINCE));
	if (last_hold != NULL &&
		DatumGetTimestampTz(IDEM_COLUMN(last_hold, ANOMALY_OPENED_AT)) >= since)
		return false;
	return made_at(call, receipt) < since;
}


/* ---------- too many ---------- */

/* What is counted: refunds later than that, up to the limit */
typedef struct Burst
{
	TimestampTz since;
	int			limit;
} Burst;

static bool
is_counted(const IdemRow *row, const Burst *burst)
{
	return DatumGetTimestampTz(IDEM_COLUMN(row, REFUND_CREATED_AT)) > burst->since;
}

static bool
counted_enough(const List *rows, const void *argument)
{
	const Burst *burst = argument;

	return list_length(rows) >= burst->limit || !is_counted(llast(rows), burst);
}

/* Is one more than the tenant may make in an hour? */
static bool
are_too_many(IdemCall *call, const IdemRow *last_hold)
{
	Datum		keys[] = {call->tenant_id};
	Burst		burst = {call->now - BURST_US, idem_auto_refund_hourly};
	List	   *rows;

	if (burst.limit == 0)
		return true;
	if (last_hold != NULL)
		burst.since = Max(burst.since,
						  DatumGetTimestampTz(IDEM_COLUMN(last_hold, ANOMALY_RESOLVED_AT)));
	rows = idem_look_back(call, &automatic_refunds, keys, lengthof(keys), IDEM_SIGHT_BARE,
						  counted_enough, &burst);
	return list_length(rows) >= burst.limit && is_counted(llast(rows), &burst);
}


/* ---------- the brake ---------- */

/* Does the account that the money came on hold its refunds? */
static bool
account_holds(IdemCall *call, const Receipt *receipt)
{
	Datum		keys[] = {call->tenant_id, receipt->channel, receipt->account};
	IdemRow    *row = idem_look(call, &channel_accounts, keys, lengthof(keys), IDEM_SIGHT_BARE);

	return row != NULL && idem_text_is(IDEM_COLUMN(row, ACCOUNT_AUTO_REFUND), "hold");
}

/* Is the tenant's anomaly open, or just being opened by another transaction? */
static bool
is_held(IdemCall *call)
{
	bool		held = anomaly_look(call, "auto_refund_held", "tenant", call->tenant_id,
									IDEM_SIGHT_DIRTY) || TransactionIdIsValid(call->rival);

	call->rival = InvalidTransactionId;
	return held;
}

Brake
brake_judge(IdemCall *call, const Receipt *receipt)
{
	Datum		keys[] = {call->tenant_id};
	IdemRow    *last_hold;

	if (idem_auto_refund == IDEM_AUTO_REFUND_HOLD || account_holds(call, receipt) ||
		is_held(call))
		return BRAKE_ON;

	last_hold = idem_look_last(call, &ended_holds, keys, lengthof(keys), IDEM_SIGHT_BARE);
	if (has_moved(call, receipt, last_hold))
		return BRAKE_CLUSTER;
	if (are_too_many(call, last_hold))
		return BRAKE_BURST;
	return BRAKE_OFF;
}

/* Why the brake was put on */
static NullableDatum
describe(IdemCall *call, Brake brake)
{
	IdemRow    *stored = stored_cluster(call);
	AnomalyDetail *detail = anomaly_detail(call);

	if (brake == BRAKE_BURST)
	{
		anomaly_detail_text(detail, "why", IDEM_TEXT("too many automatic refunds in 60 minutes"));
		anomaly_detail_amount(detail, "auto_refund_hourly",
					  IDEM_VALUE(Int64GetDatum((int64) idem_auto_refund_hourly)));
	}
	else
	{
		anomaly_detail_text(detail, "why", IDEM_TEXT("first automatic refund since the tables came to this cluster"));
		anomaly_detail_text(detail, "system_identifier", IDEM_VALUE(own_identifier()));
		if (stored != NULL)
			anomaly_detail_text(detail, "stored",
						IDEM_VALUE(IDEM_COLUMN(stored, CLUSTER_SYSTEM_IDENTIFIER)));
	}
	return anomaly_detail_done(detail);
}

/* Under the brake's name, so that a request never waits for another to open it */
void
brake_pull(IdemCall *call, Brake brake)
{
	if (brake != BRAKE_BURST && brake != BRAKE_CLUSTER)
		return;
	idem_lock_name(call, IDEM_NAME_BRAKE, call->tenant_id, call->tenant_id);
	if (!is_held(call))
		anomaly_open(call, "auto_refund_held", "tenant", call->tenant_id, IDEM_NULL,
					 describe(call, brake));
	idem_unlock_names(call);
	if (brake == BRAKE_CLUSTER)
		settle_in(call);
}


/* ---------- let go ---------- */

static int
compare_datums(const void *a, const void *b)
{
	return idem_compare_text(*(const Datum *) a, *(const Datum *) b);
}

/* The numbers of an argument, ascending */
static Datum *
arg_refund_nos(IdemCall *call, int n, int *count)
{
	ArrayType  *array = DatumGetArrayTypeP(idem_arg_required(call, n).value);
	Datum	   *numbers;
	bool	   *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &numbers, &nulls, count);
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			idem_bad_argument(call, n, "A refund's number is not null.");
		if (VARSIZE_ANY_EXHDR(DatumGetPointer(numbers[i])) > IDEM_KEY_BYTES)
			idem_bad_argument(call, n, "A key has at most 255 bytes.");
	}
	qsort(numbers, *count, sizeof(Datum), compare_datums);
	return numbers;
}

/* One refund as it is, locked if it is held; NULL: somebody is at work on it */
static Refund *
find_held(IdemCall *call, Datum refund_no)
{
	Refund	   *refund = refund_look(call, refund_no, IDEM_SIGHT_LATEST);

	if (refund == NULL)
		refund_not_found(refund_no);
	return refund->held ? refund_lock(call, refund_no) : refund;
}

static void
let_go(IdemCall *call, Refund *refund)
{
	refund->held = false;
	refund->next_check_at = IDEM_VALUE(TimestampTzGetDatum(call->now));
	refund_store(call, refund);
}

/*
 * idem_release_refunds(tenant_id, refund_nos) -> (outcome, released)
 *
 * Outcomes: released; duplicate, if none is held; refused, if none is and one
 * was cancelled; in_progress.  Errors: ID006.
 */
PG_FUNCTION_INFO_V1(idem_release_refunds);
Datum
idem_release_refunds(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	int			count;
	Datum	   *refund_nos = arg_refund_nos(call, 1, &count);
	List	   *held = NIL;
	bool		cancelled = false;
	ListCell   *cell;

	/* all are locked before one is written */
	for (int i = 0; i < count; i++)
	{
		Refund	   *refund;

		if (i > 0 && idem_same_text(refund_nos[i], refund_nos[i - 1]))
			continue;
		refund = find_held(call, refund_nos[i]);
		if (refund == NULL)
			return idem_leave(call, "in_progress");
		if (refund->held)
			held = lappend(held, refund);
		cancelled = cancelled || refund->status == REFUND_CANCELLED;
	}
	foreach(cell, held)
		let_go(call, (Refund *) lfirst(cell));

	idem_put(call, 1, Int64GetDatum((int64) list_length(held)));
	return idem_leave(call, held != NIL ? "released" : cancelled ? "refused" : "duplicate");
}
