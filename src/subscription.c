/*-------------------------------------------------------------------------
 * subscription.c
 *	  Who reads the log: subscribe, unsubscribe, seek.
 *
 * Whoever reads for a subscription holds its name shared until his transaction
 * ends; whoever makes, moves or ends it holds it alone.  So a batch that was
 * fetched is either acknowledged before the move, or fenced by it.
 *-------------------------------------------------------------------------
 */
#include "subscription.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

/* Columns of idem_subscription */
enum
{
	SUBSCRIPTION = 1, TYPES, SLOTS, START, CREATED_AT, NATTS = CREATED_AT
};

static const IdemIndex subscription_by_name = {"idem_subscription", "idem_subscription_pkey", NATTS};

static IdemQuery insert_subscription = IDEM_QUERY(
	"INSERT INTO @schema@.idem_subscription (subscription, types, slots, start, created_at)"
	" VALUES ($1, $2, $3, $4, $5)",
	TEXTOID, TEXTARRAYOID, INT4OID, TEXTOID, TIMESTAMPTZOID);

static IdemQuery delete_subscription[] = {
	IDEM_QUERY("DELETE FROM @schema@.idem_position WHERE subscription = $1", TEXTOID),
	IDEM_QUERY("DELETE FROM @schema@.idem_parked_event WHERE subscription = $1", TEXTOID),
	IDEM_QUERY("DELETE FROM @schema@.idem_dead_event WHERE subscription = $1", TEXTOID),
	IDEM_QUERY("DELETE FROM @schema@.idem_subscription WHERE subscription = $1", TEXTOID)
};


/* ---------- look ---------- */

/* The elements of an array of text; NULL: none */
static List *
list_of_texts(NullableDatum array)
{
	List	   *texts = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	if (array.isnull)
		return NIL;
	deconstruct_array(DatumGetArrayTypeP(array.value), TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			texts = lappend(texts, DatumGetPointer(elements[i]));
	}
	return texts;
}

Subscription *
subscription_look(IdemCall *call, Datum name, IdemSight sight)
{
	IdemRow    *row = idem_look(call, &subscription_by_name, &name, 1, sight);
	Subscription *subscription;

	if (row == NULL)
		return NULL;
	subscription = palloc(sizeof(Subscription));
	subscription->tid = row->tid;
	subscription->name = IDEM_COLUMN(row, SUBSCRIPTION);
	subscription->types = list_of_texts(IDEM_NULLABLE(row, TYPES));
	subscription->slots = DatumGetInt32(IDEM_COLUMN(row, SLOTS));
	subscription->start = IDEM_COLUMN(row, START);
	return subscription;
}

/* Hold the subscription's name, within the time to wait; false: it is over */
static bool
hold_subscription(IdemCall *call, Datum name, LOCKMODE mode)
{
	return idem_await_name(call, IDEM_NAME_SUBSCRIPTION, CStringGetTextDatum(""), name, mode);
}

void
subscription_not_found(Datum name)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_FOUND),
			 errmsg("subscription \"%s\" does not exist", TextDatumGetCString(name)),
			 errdetail("It was never made, or it was ended."),
			 errhint("Make it with idem_subscribe().")));
}

Subscription *
subscription_enter(IdemCall *call)
{
	Datum		name = idem_arg_key(call, 0);
	Subscription *subscription;

	if (!hold_subscription(call, name, ShareLock))
		return NULL;
	subscription = subscription_look(call, name, IDEM_SIGHT_LATEST);
	if (subscription == NULL)
		subscription_not_found(name);
	return subscription;
}


/* ---------- subscribe ---------- */

/* The arguments of idem_subscribe, by position */
enum
{
	ARG_SUBSCRIPTION, ARG_TYPES, ARG_SLOTS, ARG_START
};

static void
check_types(IdemCall *call, List *types)
{
	NullableDatum given = idem_arg(call, ARG_TYPES);

	if (given.isnull)
		return;
	if (types == NIL ||
		list_length(types) != ArrayGetNItems(ARR_NDIM(DatumGetArrayTypeP(given.value)),
											 ARR_DIMS(DatumGetArrayTypeP(given.value))))
		idem_bad_argument(call, ARG_TYPES, "It names the types that are wanted, without NULL; NULL alone means all.");
}

static Subscription *
read_request(IdemCall *call)
{
	Subscription *asked = palloc(sizeof(Subscription));

	asked->name = idem_arg_key(call, ARG_SUBSCRIPTION);
	asked->types = list_of_texts(idem_arg(call, ARG_TYPES));
	check_types(call, asked->types);
	asked->slots = DatumGetInt32(idem_arg_required(call, ARG_SLOTS).value);
	if (asked->slots < 1 || asked->slots > LOG_SLOTS)
		idem_bad_argument(call, ARG_SLOTS, "A subscription has 1 to 64 slots.");
	asked->start = idem_arg_required(call, ARG_START).value;
	if (!idem_text_is(asked->start, "now") && !idem_text_is(asked->start, "beginning"))
		idem_bad_argument(call, ARG_START, "A subscription starts now, or at the beginning of what the log holds.");
	return asked;
}

static bool
same_texts(List *a, List *b)
{
	ListCell   *x;
	ListCell   *y;

	if (list_length(a) != list_length(b))
		return false;
	forboth(x, a, y, b)
	{
		if (!idem_same_text(PointerGetDatum(lfirst(x)), PointerGetDatum(lfirst(y))))
			return false;
	}
	return true;
}

/* Raise ID001 if the subscription is there, but is another one */
static void
demand_same(const Subscription *asked, const Subscription *found)
{
	const char *field = NULL;

	if (!same_texts(asked->types, found->types))
		field = "types";
	else if (asked->slots != found->slots)
		field = "slots";
	else if (!idem_same_text(asked->start, found->start))
		field = "start";
	if (field != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_KEY_CONFLICT),
				 errmsg("subscription \"%s\" exists with other arguments", TextDatumGetCString(asked->name)),
				 errdetail("It differs in \"%s\".", field),
				 errhint("Choose another name, or idem_unsubscribe() it first.")));
}

/*
 * Hold all slots: the sweep writes positions too, and holds no more than the
 * slot.
 */
static bool
hold_all_slots(IdemCall *call, const Subscription *subscription)
{
	for (int slot = 0; slot < subscription->slots; slot++)
	{
		if (!slot_hold_soon(call, subscription, slot))
			return false;
	}
	return true;
}

/* Put every slot at a point; they are held */
static void
move_to(IdemCall *call, const Subscription *subscription, const LogPoint *point)
{
	for (int slot = 0; slot < subscription->slots; slot++)
	{
		Position	position = position_read(call, subscription, slot);

		position_take_back(&position);
		position.lo = *point;
		position.hi.seen = NULL;
		position.pos = 0;
		position.deliveries = 0;
		position.cap = 0;
		position_append(call, subscription, &position);
	}
}

/*
 * idem_subscribe(subscription, types, slots, start) -> outcome
 *
 * Errors: ID001 there with other arguments, 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_subscribe);
Datum
idem_subscribe(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Subscription *asked = read_request(call);
	Subscription *found = subscription_look(call, asked->name, IDEM_SIGHT_FIRST);
	LogPoint	point;

	if (found == NULL)
	{
		if (!hold_subscription(call, asked->name, ExclusiveLock))
			return idem_leave(call, "in_progress");
		found = subscription_look(call, asked->name, IDEM_SIGHT_LATEST);
	}
	if (found != NULL)
	{
		demand_same(asked, found);
		return idem_leave(call, "existing");
	}
	if (!hold_all_slots(call, asked))
		return idem_leave(call, "in_progress");

	(void) idem_run(call, &insert_subscription, (NullableDatum[]) {
		IDEM_VALUE(asked->name), idem_arg(call, ARG_TYPES), IDEM_VALUE(Int32GetDatum(asked->slots)),
		IDEM_VALUE(asked->start), IDEM_VALUE(TimestampTzGetDatum(call->now))
	});
	point = idem_text_is(asked->start, "now") ? log_now(call) : log_beginning();
	move_to(call, asked, &point);
	return idem_leave(call, "created");
}


/* ---------- unsubscribe and seek ---------- */

/*
 * idem_unsubscribe(subscription) -> outcome
 *
 * Errors: 22004, 22023.
 */
PG_FUNCTION_INFO_V1(idem_unsubscribe);
Datum
idem_unsubscribe(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		name = idem_arg_key(call, 0);
	Subscription *subscription;

	if (!hold_subscription(call, name, ExclusiveLock))
		return idem_leave(call, "in_progress");
	subscription = subscription_look(call, name, IDEM_SIGHT_LATEST);
	if (subscription == NULL)
		return idem_leave(call, "duplicate");
	if (!hold_all_slots(call, subscription))
		return idem_leave(call, "in_progress");
	for (int i = 0; i < (int) lengthof(delete_subscription); i++)
		(void) idem_run(call, &delete_subscription[i], (NullableDatum[]) {IDEM_VALUE(name)});
	return idem_leave(call, "removed");
}

/* The point that a word or a time names */
static LogPoint
read_point(IdemCall *call, int n)
{
	Datum		word = idem_arg_required(call, n).value;
	LogPoint	point;
	Datum		at;

	if (idem_text_is(word, "beginning"))
		return log_beginning();
	if (idem_text_is(word, "now"))
		return log_now(call);
	at = DirectFunctionCall3(timestamptz_in, CStringGetDatum(TextDatumGetCString(word)),
							 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	if (DatumGetTimestampTz(at) > call->now)
		idem_bad_argument(call, n, "It is a time in the past, \"beginning\" or \"now\".");
	return log_mark_at(call, DatumGetTimestampTz(at), &point) ? point : log_beginning();
}

/*
 * idem_seek_subscription(subscription, point) -> outcome
 *
 * Errors: ID006, 22004, 22007 no such time, 22023.
 */
PG_FUNCTION_INFO_V1(idem_seek_subscription);
Datum
idem_seek_subscription(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		name = idem_arg_key(call, 0);
	Subscription *subscription;
	LogPoint	point;

	(void) idem_arg_required(call, 1);
	if (!hold_subscription(call, name, ExclusiveLock))
		return idem_leave(call, "in_progress");
	subscription = subscription_look(call, name, IDEM_SIGHT_LATEST);
	if (subscription == NULL)
		subscription_not_found(name);
	if (!hold_all_slots(call, subscription))
		return idem_leave(call, "in_progress");
	point = read_point(call, 1);
	move_to(call, subscription, &point);
	return idem_leave(call, "moved");
}
