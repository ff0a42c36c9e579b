/*-------------------------------------------------------------------------
 * log.c
 *	  The log of events: how it is written, and what can be told of its order.
 *
 * Transactions commit in another order than they write.  A reader who goes by
 * a number that was drawn while writing (WHERE seq > last) passes over the
 * events of a transaction that was open longer; one who waits until no older
 * transaction is open waits for strangers.  So a reader goes by snapshots: he
 * takes what is in the new one and was not in the last one, whoever is still
 * open (the idea is PGQ's).  Each event bears the number of its transaction
 * for that, the top one, whatever savepoints it was written under.
 *
 * Within what is new he goes by seq.  If one event of a key was committed before
 * the next one's transaction wrote (it waited for the row's lock, say), the
 * first has the lower seq, and every snapshot that shows the second shows the
 * first.  Transaction numbers have no such order: who writes first may have
 * been numbered last.
 *
 * A snapshot does not list its own transaction among the open ones.  One that
 * is to be kept must, or what the transaction writes afterwards would count as
 * seen.
 *
 * Numbers of transactions mean something on one cluster only.  A row that
 * comes from elsewhere, by a restore or a logical copy, gets the number of the
 * transaction that stores it: it is new here.
 *-------------------------------------------------------------------------
 */
#include "log.h"
#include "relation.h"
#include "ring.h"
#include "wait.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "libpq/pqformat.h"
#include "utils/fmgrprotos.h"
#include "utils/xid8.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static IdemTable outbox = {
	"idem_outbox", EVENT_NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_outbox (id, tenant_id, aggregatetype, aggregateid,"
			   " type, payload, headers, created_at, seq, xid, slot, slice)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
			   UUIDOID, TEXTOID, VARCHAROID, VARCHAROID, VARCHAROID, JSONBOID, JSONBOID,
			   TIMESTAMPTZOID, INT8OID, XID8OID, INT2OID, INT2OID)
};


/* ---------- slots ---------- */

/* FNV-1a; the length goes in too, so that parts cannot run into each other */
static uint64
hash_part(uint64 hash, Datum part)
{
	text	   *value = DatumGetTextPP(part);
	const unsigned char *bytes = (const unsigned char *) VARDATA_ANY(value);
	uint32		n = VARSIZE_ANY_EXHDR(value);

	for (uint32 i = 0; i < n; i++)
		hash = (hash ^ bytes[i]) * UINT64CONST(0x100000001b3);
	for (int i = 0; i < 4; i++)
		hash = (hash ^ ((n >> (8 * i)) & 0xff)) * UINT64CONST(0x100000001b3);
	return hash;
}

int
log_slot(Datum tenant_id, Datum aggregatetype, Datum aggregateid)
{
	uint64		hash = UINT64CONST(0xcbf29ce484222325);

	hash = hash_part(hash, tenant_id);
	hash = hash_part(hash, aggregatetype);
	hash = hash_part(hash, aggregateid);
	return (int) ((hash ^ (hash >> 32)) % LOG_SLOTS);
}


/* ---------- rings ---------- */

/* What this backend has heard of a house's ring of slices */
typedef struct KnownRing
{
	Oid			nspoid;
	Oid			relid;			/* of idem_outbox_ring */
	bool		loaded;			/* false: never read, or the reading failed */
	bool		stale;			/* changed since the last reading began */
	int			current;
} KnownRing;

static List *known_rings = NIL;

/* Relcache callback: a table changed (0: any may have) */
static void
doubt_rings(Datum arg pg_attribute_unused(), Oid relid)
{
	ListCell   *cell;

	foreach(cell, known_rings)
	{
		KnownRing  *ring = lfirst(cell);

		if (relid == InvalidOid || relid == ring->relid)
			ring->stale = true;
	}
}

static KnownRing *
known_ring(const IdemHouse *house)
{
	ListCell   *cell;
	KnownRing  *ring;
	MemoryContext old;

	foreach(cell, known_rings)
	{
		ring = lfirst(cell);
		if (ring->nspoid == house->nspoid)
			return ring;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	ring = palloc0(sizeof(KnownRing));
	ring->nspoid = house->nspoid;
	known_rings = lappend(known_rings, ring);
	MemoryContextSwitchTo(old);
	return ring;
}

/*
 * The slice that events go into.  It is no more than a hint: an event that goes
 * into another one is read all the same, and keeps that slice from being
 * emptied.
 */
int
log_current_slice(const IdemHouse *house)
{
	KnownRing  *ring = known_ring(house);

	if (ring->loaded && !ring->stale)
		return ring->current;
	ring->loaded = false;
	ring->relid = relation_demand(house, "table", "idem_outbox_ring");
	ring->stale = false;		/* before the reading, not after */
	ring->current = ring_current(house, "log", NULL) % LOG_SLICES;
	ring->loaded = true;
	return ring->current;
}

const char *
log_slice_name(const char *table, int slice)
{
	return psprintf("%s_%d", table, slice);
}

/*
 * The same for events, each of which asks for it: made once, so that it stands
 * where relation.c knows it.
 */
static const char *
outbox_slice_name(int slice)
{
	static char names[LOG_SLICES][NAMEDATALEN];

	if (names[slice][0] == '\0')
		strlcpy(names[slice], log_slice_name("idem_outbox", slice), NAMEDATALEN);
	return names[slice];
}


/* ---------- snapshots ---------- */

/*
 * By way of what clients send and are sent in binary: the type's inside is the
 * server's own affair, and its text would take longer than a position's row.
 */
LogSnapshot *
log_snapshot_read(Datum snapshot)
{
	bytea	   *sent = DatumGetByteaPP(DirectFunctionCall1(pg_snapshot_send, snapshot));
	StringInfoData message = {
		.data = VARDATA_ANY(sent),
		.len = VARSIZE_ANY_EXHDR(sent)
	};
	LogSnapshot *result = palloc(sizeof(LogSnapshot));

	result->nxip = (int) pq_getmsgint(&message, 4);
	result->xmin = (uint64) pq_getmsgint64(&message);
	result->xmax = (uint64) pq_getmsgint64(&message);
	result->xip = palloc(sizeof(uint64) * Max(result->nxip, 1));
	for (int i = 0; i < result->nxip; i++)
		result->xip[i] = (uint64) pq_getmsgint64(&message);
	pfree(sent);
	return result;
}

LogSnapshot *
log_snapshot_copy(MemoryContext context, const LogSnapshot *snapshot)
{
	LogSnapshot *copy = MemoryContextAlloc(context, sizeof(LogSnapshot));

	*copy = *snapshot;
	copy->xip = MemoryContextAlloc(context, sizeof(uint64) * Max(snapshot->nxip, 1));
	memcpy(copy->xip, snapshot->xip, sizeof(uint64) * snapshot->nxip);
	return copy;
}

void
log_snapshot_free(LogSnapshot *snapshot)
{
	pfree(snapshot->xip);
	pfree(snapshot);
}

Datum
log_snapshot_write(const LogSnapshot *snapshot)
{
	StringInfoData message;

	initStringInfo(&message);
	pq_sendint32(&message, snapshot->nxip);
	pq_sendint64(&message, snapshot->xmin);
	pq_sendint64(&message, snapshot->xmax);
	for (int i = 0; i < snapshot->nxip; i++)
		pq_sendint64(&message, snapshot->xip[i]);
	return DirectFunctionCall1(pg_snapshot_recv, PointerGetDatum(&message));
}

static bool
is_among(const LogSnapshot *snapshot, uint64 xid)
{
	int			low = 0;
	int			high = snapshot->nxip;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (snapshot->xip[middle] < xid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < snapshot->nxip && snapshot->xip[low] == xid;
}

/* Was the transaction over? */
bool
log_sees(const LogSnapshot *snapshot, uint64 xid)
{
	return xid < snapshot->xmin || (xid < snapshot->xmax && !is_among(snapshot, xid));
}

/* Does the one see all that the other sees? */
bool
log_follows(const LogSnapshot *later, const LogSnapshot *earlier)
{
	if (later->xmax < earlier->xmax || later->xmin < earlier->xmin)
		return false;
	for (int i = 0; i < later->nxip; i++)
	{
		if (log_sees(earlier, later->xip[i]))
			return false;
	}
	return true;
}

/* Count a transaction among the open ones */
static void
add_open(LogSnapshot *snapshot, uint64 xid)
{
	int			at = snapshot->nxip;

	if (xid >= snapshot->xmax || is_among(snapshot, xid))
		return;
	snapshot->xip = repalloc(snapshot->xip, sizeof(uint64) * (snapshot->nxip + 1));
	for (; at > 0 && snapshot->xip[at - 1] > xid; at--)
		snapshot->xip[at] = snapshot->xip[at - 1];
	snapshot->xip[at] = xid;
	snapshot->nxip++;
	snapshot->xmin = Min(snapshot->xmin, xid);
}

/* What is committed now, and not by this transaction */
LogSnapshot *
log_snapshot_now(void)
{
	FullTransactionId own = GetTopFullTransactionIdIfAny();
	LogSnapshot *snapshot;

	PushActiveSnapshot(GetLatestSnapshot());
	snapshot = log_snapshot_read(DirectFunctionCall1(pg_current_snapshot, (Datum) 0));
	PopActiveSnapshot();
	if (FullTransactionIdIsValid(own))
		add_open(snapshot, U64FromFullTransactionId(own));
	return snapshot;
}

LogPoint
log_beginning(void)
{
	LogPoint	point = {palloc0(sizeof(LogSnapshot)), 0};

	point.seen->xmin = point.seen->xmax = FirstNormalTransactionId;
	return point;
}

/* The number is read first: what is committed with a lower one is seen */
LogPoint
log_now(IdemCall *call)
{
	LogPoint	point;

	point.seq = log_last_seq(call);
	point.seen = log_snapshot_now();
	return point;
}


/* ---------- numbers ---------- */

static Oid
sequence_of(const IdemHouse *house)
{
	Oid			sequence = relation_oid(house, "idem_outbox_seq");

	if (!OidIsValid(sequence))
		elog(ERROR, "sequence \"idem_outbox_seq\" does not exist");
	return sequence;
}

int64
log_last_seq(IdemCall *call)
{
	Datum		last = (Datum) 0;
	LOCAL_FCINFO(fcinfo, 1);

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(sequence_of(call->house));
	fcinfo->args[0].isnull = false;
	last = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? 0 : DatumGetInt64(last);
}


/* ---------- writing ---------- */

void
log_append(FunctionCallInfo fcinfo, NullableDatum *row)
{
	IdemHouse  *house = idem_house(fcinfo->flinfo->fn_oid);
	int			slice = log_current_slice(house);
	int64		seq = nextval_internal(sequence_of(house), false);
	int			slot = log_slot(row[EVENT_TENANT_ID - 1].value, row[EVENT_AGGREGATETYPE - 1].value,
								row[EVENT_AGGREGATEID - 1].value);

	row[EVENT_SEQ - 1] = IDEM_VALUE(Int64GetDatum(seq));
	row[EVENT_XID - 1] = IDEM_VALUE(FullTransactionIdGetDatum(GetTopFullTransactionId()));
	row[EVENT_SLOT - 1] = IDEM_VALUE(Int16GetDatum((int16) slot));
	row[EVENT_SLICE - 1] = IDEM_VALUE(Int16GetDatum((int16) slice));
	idem_append_to(fcinfo, &outbox, outbox_slice_name(slice), row);
	wait_note_event();
	if (seq % LOG_EVENTS_A_MARK == 0)
		log_leave_mark(fcinfo, seq, slice);
}

/*
 * idem_outbox_stamp() -> trigger
 *
 * BEFORE INSERT on a slice.
 */
PG_FUNCTION_INFO_V1(idem_outbox_stamp);
Datum
idem_outbox_stamp(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	int			columns[] = {EVENT_XID, EVENT_SLOT, EVENT_SEQ};
	Datum		values[lengthof(columns)];
	bool		nulls[lengthof(columns)] = {false, false, false};
	TupleDesc	desc;
	Datum		key[3];
	bool		isnull[3];

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(data->tg_event) ||
		!TRIGGER_FIRED_BY_INSERT(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("idem_outbox_stamp() must be fired BEFORE INSERT for each row")));

	desc = RelationGetDescr(data->tg_relation);
	for (int i = 0; i < 3; i++)
		key[i] = heap_getattr(data->tg_trigtuple, EVENT_TENANT_ID + i, desc, &isnull[i]);
	values[0] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[1] = heap_getattr(data->tg_trigtuple, EVENT_SLOT, desc, &nulls[1]);
	values[2] = heap_getattr(data->tg_trigtuple, EVENT_SEQ, desc, &nulls[2]);
	if (nulls[1] && !isnull[0] && !isnull[1] && !isnull[2])
	{
		values[1] = Int16GetDatum((int16) log_slot(key[0], key[1], key[2]));
		nulls[1] = false;
	}
	if (nulls[2])
	{
		values[2] = Int64GetDatum(nextval_internal(sequence_of(idem_house(fcinfo->flinfo->fn_oid)), false));
		nulls[2] = false;
	}
	return PointerGetDatum(heap_modify_tuple_by_cols(data->tg_trigtuple, desc, lengthof(columns),
													 columns, values, nulls));
}


/*
 * Called once, when the library is loaded.
 */
void
idem_init_log(void)
{
	CacheRegisterRelcacheCallback(doubt_rings, (Datum) 0);
}
