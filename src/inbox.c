/*-------------------------------------------------------------------------
 * inbox.c
 *	  Which messages a consumer has seen.
 *
 * Whatever delivers at least once delivers twice some day.  A consumer that
 * notes the message in the transaction that acts on it acts once: the second
 * delivery finds the note, and while the first is still open it waits for its
 * end, since a rollback would make the second one the first.
 *
 * Ids are the sender's promise.  A digest catches a sender who breaks it.
 *-------------------------------------------------------------------------
 */
#include "look.h"

#include "catalog/pg_type.h"

/* Columns of idem_inbox */
enum
{
	TENANT_ID = 1, CONSUMER, MESSAGE_ID, DIGEST, ACCEPTED_AT, NATTS = ACCEPTED_AT
};

static const IdemIndex inbox_by_message = {"idem_inbox", "idem_inbox_pkey", NATTS};

static IdemQuery insert_message = IDEM_QUERY(
	"INSERT INTO @schema@.idem_inbox (tenant_id, consumer, message_id, digest, accepted_at)"
	" VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
	TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID);

/* The arguments, by position */
enum
{
	ARG_TENANT_ID, ARG_CONSUMER, ARG_MESSAGE_ID, ARG_DIGEST
};

typedef struct Message
{
	Datum		consumer;
	Datum		message_id;
	NullableDatum digest;
} Message;

static Message
read_message(IdemCall *call)
{
	Message		message = {
		.consumer = idem_arg_key(call, ARG_CONSUMER),
		.message_id = idem_arg_key(call, ARG_MESSAGE_ID),
		.digest = idem_arg_optional_key(call, ARG_DIGEST)
	};

	return message;
}

/* Was it seen?  Raises ID001 if what was seen was something else. */
static bool
was_seen(IdemCall *call, const Message *message, IdemSight sight)
{
	Datum		keys[] = {call->tenant_id, message->consumer, message->message_id};
	IdemRow    *row = idem_look(call, &inbox_by_message, keys, lengthof(keys), sight);
	NullableDatum digest;

	if (row == NULL)
		return false;
	digest = IDEM_NULLABLE(row, DIGEST);
	if (!digest.isnull && !message->digest.isnull &&
		!idem_same_text(digest.value, message->digest.value))
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_KEY_CONFLICT),
				 errmsg("message \"%s\" was seen with another digest",
						TextDatumGetCString(message->message_id)),
				 errdetail("It differs in \"digest\" from what consumer \"%s\" has accepted.",
						   TextDatumGetCString(message->consumer)),
				 errhint("The sender uses one id for two messages.")));
	return true;
}

static Datum
message_name(const Message *message)
{
	return CStringGetTextDatum(psprintf("%d %s %s", (int) VARSIZE_ANY_EXHDR(DatumGetPointer(message->consumer)),
										TextDatumGetCString(message->consumer),
										TextDatumGetCString(message->message_id)));
}

static bool
insert(IdemCall *call, const Message *message)
{
	NullableDatum args[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(message->consumer),
		IDEM_VALUE(message->message_id),
		message->digest,
		IDEM_VALUE(TimestampTzGetDatum(call->now))
	};

	return idem_run(call, &insert_message, args) == 1;
}

/*
 * idem_accept_message(tenant_id, consumer, message_id, digest) -> outcome
 *
 * Errors: ID001 seen with another digest, 22004, 22023, 40001.
 */
PG_FUNCTION_INFO_V1(idem_accept_message);
Datum
idem_accept_message(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Message		message = read_message(call);
	int			pause_ms = 1;

	if (was_seen(call, &message, IDEM_SIGHT_FIRST))
		return idem_leave(call, "duplicate");
	for (;;)
	{
		const char *outcome = NULL;
		bool		seen;

		idem_lock_name(call, IDEM_NAME_MESSAGE, call->tenant_id, message_name(&message));
		seen = was_seen(call, &message, IDEM_SIGHT_DIRTY);
		if (!TransactionIdIsValid(call->rival))
		{
			if (seen)
				outcome = "duplicate";
			else if (insert(call, &message))
				outcome = "accepted";
		}
		idem_unlock_names(call);
		if (outcome != NULL)
			return idem_leave(call, outcome);
		if (TransactionIdIsValid(call->rival) ?
			!idem_await_rival(call) : !idem_pause(call, &pause_ms))
			return idem_leave(call, "in_progress");
	}
}
