/*-------------------------------------------------------------------------
 * channel.c
 *	  Channels: what they call things, whose their accounts are.
 *
 * A channel's words are mapped to facts by rows.  Those that come with the
 * extension are part of it and not dumped: a restore makes them anew, and
 * would collide with itself or lose what operators had changed.  So operators
 * change a table of their own, which goes before the seeds.
 *
 * One notify_url can serve all tenants.  Whose a notification is then follows
 * from the payment that it names, and the payment's number is the caller's to
 * choose: two tenants can have the same.  Between them the account decides,
 * never the order in which the rows are found.
-------------------------------------------------------------------------
 */
#include "channel.h"
#include "payment.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"

/* Column numbers of idem_channel_event and idem_channel_event_change */
enum
{
	CHANNEL = 1, EVENT, HAS_REFUND, KIND, REFUND_AMOUNT_IS, AFTER_SUCCESS,
	NATTS = AFTER_SUCCESS
};

/* channel, event, has_refund */
static const IdemIndex seeded_events = {"idem_channel_event", "idem_channel_event_pkey", NATTS};
static const IdemIndex changed_events = {
	"idem_channel_event_change", "idem_channel_event_change_pkey", NATTS
};

/* tenant_id, channel, account, auto_refund */
#define ACCOUNT_NATTS 4

/* tenant_id, channel, account; and across tenants */
static const IdemIndex accounts_of_tenant = {
	"idem_channel_account", "idem_channel_account_pkey", ACCOUNT_NATTS
};
static const IdemIndex accounts_of_channel = {
	"idem_channel_account", "idem_channel_account_channel", ACCOUNT_NATTS
};

const char *const fact_kind_names[] = {
	"paid", "failed", "closed", "refunded", "refund_failed", "refund_closed",
	"refund_abnormal", "refund_reversed", "dispute_opened", "dispute_won", "dispute_lost",
	"none"
};

static const char *const measures[] = {"delta", "cumulative"};
static const char *const after_successes[] = {"stale", "reverse"};
static const char *const auto_refunds[] = {"on", "hold"};

static IdemQuery insert_event = IDEM_QUERY(
	"INSERT INTO @schema@.idem_channel_event_change"
	" (channel, event, has_refund, kind, refund_amount_is, after_success)"
	" VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, BOOLOID, TEXTOID, TEXTOID, TEXTOID);

/* TID scan: nothing can lead it astray */
static IdemQuery store_event = IDEM_QUERY(
	"UPDATE @schema@.idem_channel_event_change"
	" SET kind = $2, refund_amount_is = $3, after_success = $4 WHERE ctid = $1",
	TIDOID, TEXTOID, TEXTOID, TEXTOID);

static IdemQuery insert_account = IDEM_QUERY(
	"INSERT INTO @schema@.idem_channel_account (tenant_id, channel, account, auto_refund)"
	" VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID);

/* TID scans, as above */
static IdemQuery store_account = IDEM_QUERY(
	"UPDATE @schema@.idem_channel_account SET auto_refund = $2 WHERE ctid = $1",
	TIDOID, TEXTOID);

static IdemQuery delete_account = IDEM_QUERY(
	"DELETE FROM @schema@.idem_channel_account WHERE ctid = $1",
	TIDOID);


/* ---------- what events mean ---------- */

static ChannelEvent
event_of_row(const IdemRow *row)
{
	ChannelEvent event = {FACT_UNMAPPED, false, false};

	if (row == NULL)
		return event;
	event.kind = (FactKind) idem_word_index(IDEM_COLUMN(row, KIND), fact_kind_names, FACT_UNMAPPED);
	event.cumulative = idem_text_is(IDEM_COLUMN(row, REFUND_AMOUNT_IS), measures[true]);
	event.reversing = idem_text_is(IDEM_COLUMN(row, AFTER_SUCCESS), after_successes[true]);
	return event;
}

ChannelEvent
channel_event(IdemCall *call, Datum channel, Datum event, bool has_refund)
{
	Datum		keys[] = {channel, event, BoolGetDatum(has_refund)};
	IdemRow    *row = idem_look(call, &changed_events, keys, lengthof(keys), IDEM_SIGHT_FIRST);

	if (row == NULL)
		row = idem_look(call, &seeded_events, keys, lengthof(keys), IDEM_SIGHT_FIRST);
	return event_of_row(row);
}


/* ---------- whose accounts are ---------- */

bool
channel_account_is_known(IdemCall *call, Datum tenant_id, Datum channel, Datum account)
{
	Datum		keys[] = {tenant_id, channel, account};

	return idem_look(call, &accounts_of_tenant, keys, lengthof(keys), IDEM_SIGHT_FIRST) != NULL;
}

/* How well a payment of the right number fits, the more the better */
typedef enum Fit
{
	FIT_OTHER,					/* it is another channel's or account's */
	FIT_OPEN,					/* it has no channel yet */
	FIT_CHANNEL,				/* it has no account yet, or none is asked for */
	FIT_ACCOUNT
} Fit;

static Fit
fit_of(const Payment *payment, Datum channel, NullableDatum account)
{
	if (payment->channel.isnull)
		return FIT_OPEN;
	if (!idem_same_text(payment->channel.value, channel))
		return FIT_OTHER;
	if (account.isnull || payment->account.isnull)
		return FIT_CHANNEL;
	return idem_same_text(payment->account.value, account.value) ? FIT_ACCOUNT : FIT_OTHER;
}

/*
 * The tenant of the payment of this number that fits best; NULL if two fit
 * equally well.
 */
static NullableDatum
tenant_of_payment(IdemCall *call, Datum channel, NullableDatum account, Datum payment_no,
				  IdemSight sight)
{
	List	   *rows = idem_look_all(call, &payment_by_no, &payment_no, 1, sight);
	NullableDatum tenant_id = IDEM_NULL;
	int			best = -1;
	ListCell   *cell;

	foreach(cell, rows)
	{
		IdemRow    *row = (IdemRow *) lfirst(cell);
		int			fit = fit_of(payment_of_row(row), channel, account);

		if (fit > best)
			tenant_id = IDEM_VALUE(IDEM_COLUMN(row, PAYMENT_TENANT_ID));
		else if (fit == best)
			tenant_id = IDEM_NULL;
		best = Max(best, fit);
	}
	return tenant_id;
}

/* The only tenant that has entered the account */
static NullableDatum
tenant_of_account(IdemCall *call, Datum channel, Datum account, IdemSight sight)
{
	Datum		keys[] = {channel, account};
	List	   *rows = idem_look_all(call, &accounts_of_channel, keys, lengthof(keys), sight);

	if (list_length(rows) != 1)
		return IDEM_NULL;
	return IDEM_VALUE(IDEM_COLUMN((IdemRow *) linitial(rows), 1));
}

NullableDatum
channel_tenant_of(IdemCall *call, Datum channel, NullableDatum account,
				  NullableDatum payment_no, IdemSight sight)
{
	NullableDatum tenant_id = IDEM_NULL;

	if (!payment_no.isnull)
		tenant_id = tenant_of_payment(call, channel, account, payment_no.value, sight);
	if (tenant_id.isnull && !account.isnull)
		tenant_id = tenant_of_account(call, channel, account.value, sight);
	return tenant_id;
}

/*
 * idem_tenant_of(channel, account, payment_no) -> tenant_id, or NULL
 */
PG_FUNCTION_INFO_V1(idem_tenant_of);
Datum
idem_tenant_of(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	NullableDatum channel = idem_arg(call, 0);
	NullableDatum tenant_id = IDEM_NULL;

	if (!channel.isnull)
		tenant_id = channel_tenant_of(call, channel.value, idem_arg(call, 1),
									  idem_arg(call, 2), IDEM_SIGHT_FIRST);
	fcinfo->isnull = tenant_id.isnull;
	return idem_leave_value(call, tenant_id.value);
}


/* ---------- settings ---------- */

/* A row of configuration that is to be there */
typedef struct Setting
{
	const IdemIndex *index;
	const Datum *keys;
	int			nkeys;
	IdemNameKind kind;			/* of the name that guards its birth */
	Datum		name;			/* beside the first key */
	bool		(*holds) (const IdemRow *row, const void *what);
	bool		(*insert) (IdemCall *call, const void *what);
	void		(*store) (IdemCall *call, ItemPointer tid, const void *what);
	const void *what;
} Setting;

/* The row is not there: make it.  NULL: look again. */
static const char *
make_row(IdemCall *call, const Setting *setting)
{
	IdemRow    *row;
	const char *outcome = NULL;

	idem_lock_name(call, setting->kind, setting->keys[0], setting->name);
	row = idem_look(call, setting->index, setting->keys, setting->nkeys, IDEM_SIGHT_DIRTY);
	if (row == NULL && !TransactionIdIsValid(call->rival) &&
		setting->insert(call, setting->what))
		outcome = "created";
	idem_unlock_names(call);
	if (TransactionIdIsValid(call->rival) && !idem_await_rival(call))
		return "in_progress";
	CHECK_FOR_INTERRUPTS();
	return outcome;
}

/* The row says otherwise.  NULL: look again. */
static const char *
change_row(IdemCall *call, const Setting *setting)
{
	IdemRow    *row = idem_lock_row(call, setting->index, setting->keys, setting->nkeys);

	if (row == NULL)
		return call->busy ? "in_progress" : NULL;
	if (setting->holds(row, setting->what))
		return "unchanged";
	setting->store(call, &row->tid, setting->what);
	return "updated";
}

/* Make the setting hold: created, updated, unchanged, in_progress */
static const char *
put_setting(IdemCall *call, const Setting *setting)
{
	const char *outcome = NULL;

	while (outcome == NULL)
	{
		IdemRow    *row = idem_look(call, setting->index, setting->keys, setting->nkeys,
									IDEM_SIGHT_LATEST);

		if (row == NULL)
			outcome = make_row(call, setting);
		else if (setting->holds(row, setting->what))
			outcome = "unchanged";
		else
			outcome = change_row(call, setting);
	}
	return outcome;
}


/* ---------- events ---------- */

/* What idem_set_channel_event is asked for; words by their index */
typedef struct EventSetting
{
	Datum		keys[3];		/* channel, event, has_refund */
	int			kind;
	int			measure;
	int			after_success;
} EventSetting;

static bool
event_holds(const IdemRow *row, const void *what)
{
	const EventSetting *asked = what;
	ChannelEvent event = event_of_row(row);

	return (int) event.kind == asked->kind && event.cumulative == (asked->measure == 1) &&
		event.reversing == (asked->after_success == 1);
}

static bool
insert_event_row(IdemCall *call, const void *what)
{
	const EventSetting *asked = what;
	NullableDatum args[] = {
		IDEM_VALUE(asked->keys[0]),
		IDEM_VALUE(asked->keys[1]),
		IDEM_VALUE(asked->keys[2]),
		IDEM_TEXT(fact_kind_names[asked->kind]),
		IDEM_TEXT(measures[asked->measure]),
		IDEM_TEXT(after_successes[asked->after_success])
	};

	return idem_run(call, &insert_event, args) == 1;
}

static void
store_event_row(IdemCall *call, ItemPointer tid, const void *what)
{
	const EventSetting *asked = what;
	NullableDatum args[] = {
		IDEM_VALUE(PointerGetDatum(tid)),
		IDEM_TEXT(fact_kind_names[asked->kind]),
		IDEM_TEXT(measures[asked->measure]),
		IDEM_TEXT(after_successes[asked->after_success])
	};

	if (idem_run(call, &store_event, args) != 1)
		elog(ERROR, "locked event of a channel could not be updated");
}

/* An argument that is one of these words */
static int
arg_choice(IdemCall *call, int n, const char *const *words, int nwords, const char *detail)
{
	const char *word = idem_arg_word(call, n);

	for (int i = 0; i < nwords; i++)
	{
		if (strcmp(word, words[i]) == 0)
			return i;
	}
	idem_bad_argument(call, n, detail);
}

/*
 * What the seed says; a change that says the same needs no row, unless another
 * change stands in between.
 */
static const IdemRow *
look_seed(IdemCall *call, const EventSetting *asked)
{
	return idem_look(call, &seeded_events, asked->keys, lengthof(asked->keys), IDEM_SIGHT_FIRST);
}

/*
 * idem_set_channel_event(channel, event, has_refund, kind, refund_amount_is,
 *	 after_success) -> (outcome)
 *
 * Outcomes: created, updated, unchanged, in_progress.
 */
PG_FUNCTION_INFO_V1(idem_set_channel_event);
Datum
idem_set_channel_event(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	EventSetting asked = {
		{idem_arg_key(call, 0), idem_arg_key(call, 1), idem_arg_required(call, 2).value},
		arg_choice(call, 3, fact_kind_names, FACT_UNMAPPED,
				   "It is one of paid, failed, closed, refunded, refund_failed, refund_closed, refund_abnormal, refund_reversed, dispute_opened, dispute_won, dispute_lost, none."),
		arg_choice(call, 4, measures, lengthof(measures), "It is one of delta, cumulative."),
		arg_choice(call, 5, after_successes, lengthof(after_successes),
				   "It is one of stale, reverse.")
	};
	Setting		setting = {
		&changed_events, asked.keys, lengthof(asked.keys), IDEM_NAME_CHANNEL_EVENT, asked.keys[1],
		event_holds, insert_event_row, store_event_row, &asked
	};
	const IdemRow *seed = look_seed(call, &asked);
	const char *outcome;

	if (seed != NULL && event_holds(seed, &asked) &&
		idem_look(call, &changed_events, asked.keys, lengthof(asked.keys), IDEM_SIGHT_LATEST) == NULL)
		return idem_leave(call, "unchanged");
	outcome = put_setting(call, &setting);
	if (seed != NULL && strcmp(outcome, "created") == 0)
		outcome = "updated";
	return idem_leave(call, outcome);
}


/* ---------- accounts ---------- */

/* What idem_set_channel_account is asked for */
typedef struct AccountSetting
{
	Datum		keys[3];		/* tenant_id, channel, account */
	NullableDatum auto_refund;	/* NULL: as it is, on for a new one */
} AccountSetting;

static bool
account_holds(const IdemRow *row, const void *what)
{
	const AccountSetting *asked = what;

	return asked->auto_refund.isnull ||
		idem_same_text(IDEM_COLUMN(row, ACCOUNT_NATTS), asked->auto_refund.value);
}

static bool
insert_account_row(IdemCall *call, const void *what)
{
	const AccountSetting *asked = what;
	NullableDatum args[] = {
		IDEM_VALUE(asked->keys[0]),
		IDEM_VALUE(asked->keys[1]),
		IDEM_VALUE(asked->keys[2]),
		asked->auto_refund.isnull ? IDEM_TEXT(auto_refunds[0]) : asked->auto_refund
	};

	return idem_run(call, &insert_account, args) == 1;
}

static void
store_account_row(IdemCall *call, ItemPointer tid, const void *what)
{
	const AccountSetting *asked = what;
	NullableDatum args[] = {IDEM_VALUE(PointerGetDatum(tid)), asked->auto_refund};

	if (idem_run(call, &store_account, args) != 1)
		elog(ERROR, "locked account of a channel could not be updated");
}

/*
 * idem_set_channel_account(tenant_id, channel, account, auto_refund) -> (outcome)
 *
 * Outcomes: created, updated, unchanged, in_progress.
 */
PG_FUNCTION_INFO_V1(idem_set_channel_account);
Datum
idem_set_channel_account(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	AccountSetting asked = {
		{call->tenant_id, idem_arg_key(call, 1), idem_arg_key(call, 2)},
		idem_arg(call, 3)
	};
	Setting		setting = {
		&accounts_of_tenant, asked.keys, lengthof(asked.keys), IDEM_NAME_CHANNEL_ACCOUNT,
		asked.keys[2], account_holds, insert_account_row, store_account_row, &asked
	};

	if (!asked.auto_refund.isnull)
		(void) arg_choice(call, 3, auto_refunds, lengthof(auto_refunds), "It is one of on, hold.");
	return idem_leave(call, put_setting(call, &setting));
}

/*
 * idem_remove_channel_account(tenant_id, channel, account) -> (outcome)
 *
 * Outcomes: removed, duplicate, in_progress.
 */
PG_FUNCTION_INFO_V1(idem_remove_channel_account);
Datum
idem_remove_channel_account(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		keys[] = {call->tenant_id, idem_arg_key(call, 1), idem_arg_key(call, 2)};
	IdemRow    *row = idem_lock_row(call, &accounts_of_tenant, keys, lengthof(keys));

	if (row == NULL)
		return idem_leave(call, call->busy ? "in_progress" : "duplicate");
	if (idem_run(call, &delete_account, (NullableDatum[]) {
		IDEM_VALUE(PointerGetDatum(&row->tid))
	}) != 1)
		elog(ERROR, "locked account of a channel could not be deleted");
	return idem_leave(call, "removed");
}
