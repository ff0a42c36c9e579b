/*-------------------------------------------------------------------------
 * key.c
 *	  Numbers and keys: a number is unique across backends and nodes, a key is
 *	  the digest of what it stands for.
 *
 * A number is the microsecond it was made in, since 2020, and the node that
 * made it.  Two backends make numbers in the same microsecond, and clocks go
 * backwards; a number that comes twice is one payment taken for another.  So
 * uniqueness does not rest on the clock: the sequence idem_number holds the
 * last microsecond that anybody was given, a backend takes a block of the next
 * ones under a short lock of our own, and moves the sequence past them before
 * it uses any.  The clock only decides how far the sequence leaps ahead; where
 * it lags behind, numbers go on from the last one.
 *
 * A sequence is not rolled back, and its WAL is flushed by any commit that
 * used a number.  Only a block whose transaction was rolled back could be lost
 * in a crash while its numbers live on; such a block is thrown away.
 *
 * A key made of several parts by concatenation is the key of something else
 * too: 'a' and 'bc', 'ab' and 'c'.  So each part goes into the digest behind
 * its length, and in UTF-8, whatever the database's encoding.
 *-------------------------------------------------------------------------
 */
#include "key.h"

#include "relation.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

/* A number: 53 bits of microseconds, 10 bits of node */
#define NODE_BITS 10
#define LAST_TICK ((INT64CONST(1) << 53) - 1)

/* 2020-01-01 UTC, in microseconds since 2000-01-01 */
#define EPOCH_2020 (INT64CONST(7305) * USECS_PER_DAY)

#define NUMBER_SEQUENCE "idem_number"

/* What a backend takes at once, and how long its order is fresh */
#define BLOCK_TICKS 32
#define BLOCK_AGE_US 1000000

/* Microseconds that this backend may use, each once */
typedef struct NumberBlock
{
	Oid			sequence;		/* that they come from: another house, another block */
	int64		next;
	int64		end;			/* first one that is not ours */
	TimestampTz taken_at;
	TransactionId taken_by;		/* invalid once known to have committed */
} NumberBlock;

static NumberBlock block;


/* ---------- blocks ---------- */

/* The last microsecond that anybody was given; 0: none yet */
static int64
last_tick(Oid sequence)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		last;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(sequence);
	fcinfo->args[0].isnull = false;
	last = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? 0 : DatumGetInt64(last);
}

/* Now, in microseconds since 2020 */
static int64
clock_tick(void)
{
	return GetCurrentTimestamp() - EPOCH_2020;
}

/*
 * Lock the taking of blocks.  It is held for a few microseconds, so who finds it
 * taken looks again soon, and nobody queues.  From a queue the lock would be
 * handed from one sleeper to the next, each of whom has to get hold of a
 * processor first: with hundreds of busy sessions all would end up there.
 */
static void
lock_numbers(const LOCKTAG *tag)
{
	while (LockAcquire(tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
}

/*
 * Take n microseconds that nobody else will ever get; returns the first.
 */
static int64
take_ticks(Oid sequence, int64 n)
{
	LOCKTAG		tag;
	int64		first;

	/* a wait for somebody's ALTER SEQUENCE comes before our lock */
	LockRelationOid(sequence, RowExclusiveLock);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, sequence, 0, IDEM_LOCK_NAME);
	lock_numbers(&tag);

	first = Max(last_tick(sequence) + 1, clock_tick());
	if (first > LAST_TICK - n)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("no more numbers"),
				 errdetail("Sequence \"%s\" has reached " INT64_FORMAT ".",
						   NUMBER_SEQUENCE, first)));
	(void) DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence),
							   Int64GetDatum(first + n - 1));

	(void) LockRelease(&tag, ExclusiveLock, false);
	return first;
}

/* Is the block this sequence's, fresh, and safe from a crash? */
static bool
block_is_good(Oid sequence)
{
	TimestampTz age = GetCurrentTimestamp() - block.taken_at;

	if (block.sequence != sequence || age < 0 || age > BLOCK_AGE_US)
		return false;
	if (TransactionIdIsValid(block.taken_by) &&
		block.taken_by != GetTopTransactionIdIfAny())
	{
		if (!TransactionIdDidCommit(block.taken_by))
			return false;
		block.taken_by = InvalidTransactionId;
	}
	return true;
}

/*
 * The first of n microseconds of ours.  A single one comes from the block,
 * a batch gets its own.
 */
static int64
next_ticks(Oid sequence, int64 n)
{
	if (n > 1)
		return take_ticks(sequence, n);

	if (!block_is_good(sequence) || block.next == block.end)
	{
		block.sequence = InvalidOid;
		block.next = take_ticks(sequence, BLOCK_TICKS);
		block.end = block.next + BLOCK_TICKS;
		block.taken_at = GetCurrentTimestamp();
		block.taken_by = GetTopTransactionIdIfAny();
		block.sequence = sequence;
	}
	return block.next++;
}


/* ---------- numbers ---------- */

void
idem_make_nos(IdemCall *call, int count, Datum *numbers)
{
	Oid			sequence = relation_demand(call->house, "sequence", NUMBER_SEQUENCE);
	int64		tick;

	PreventCommandIfReadOnly("idem_next_no()");
	tick = count > 0 ? next_ticks(sequence, count) : 0;
	for (int i = 0; i < count; i++)
	{
		char		digits[32];

		snprintf(digits, sizeof(digits), INT64_FORMAT,
				 ((tick + i) << NODE_BITS) | idem_node_id);
		numbers[i] = CStringGetTextDatum(digits);
	}
}

Datum
idem_make_no(IdemCall *call)
{
	Datum		number;

	idem_make_nos(call, 1, &number);
	return number;
}

void
idem_make_random(void *bytes, int n)
{
	if (!pg_strong_random(bytes, n))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

/*
 * idem_next_no() -> text
 *
 * Errors: 25006 in a read-only transaction, 2200H when the numbers are used up.
 */
PG_FUNCTION_INFO_V1(idem_next_no);
Datum
idem_next_no(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);

	return idem_leave_value(call, idem_make_no(call));
}


/* ---------- keys ---------- */

/* Keys are stored: another encoding gets another name here */
#define KEY_ENCODING "idem_key 1"

/*
 * Append a part: four bytes of length, the highest first, and its text in
 * UTF-8.  SQL_ASCII does not say what its bytes mean; they stay as they are.
 */
static void
append_part(StringInfo encoded, Datum part)
{
	text	   *given = DatumGetTextPP(part);
	char	   *bytes = VARDATA_ANY(given);
	int			nbytes = VARSIZE_ANY_EXHDR(given);

	if (GetDatabaseEncoding() != PG_SQL_ASCII)
	{
		char	   *utf8 = pg_server_to_any(bytes, nbytes, PG_UTF8);

		if (utf8 != bytes)
			nbytes = strlen(utf8);
		bytes = utf8;
	}
	pq_sendint32(encoded, nbytes);
	appendBinaryStringInfo(encoded, bytes, nbytes);
}

/* SHA-256 in hexadecimal digits, as text */
static Datum
hex_digest(const StringInfo encoded)
{
	bytea	   *input = (bytea *) cstring_to_text_with_len(encoded->data, encoded->len);
	bytea	   *digest = DatumGetByteaPP(DirectFunctionCall1(sha256_bytea,
															 PointerGetDatum(input)));
	char		digits[2 * 32];

	Assert(VARSIZE_ANY_EXHDR(digest) == 32);
	(void) hex_encode(VARDATA_ANY(digest), 32, digits);
	return PointerGetDatum(cstring_to_text_with_len(digits, sizeof(digits)));
}

/*
 * idem_key(VARIADIC parts) -> text
 *
 * Errors: 22004 for NULL, 22023 for no parts or an array of arrays.
 */
PG_FUNCTION_INFO_V1(idem_key);
Datum
idem_key(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	ArrayType  *given = DatumGetArrayTypeP(idem_arg_required(call, 0).value);
	Datum	   *parts;
	bool	   *nulls;
	int			nparts;
	StringInfoData encoded;

	if (ARR_NDIM(given) != 1)
		idem_bad_argument(call, 0, "A key is made of one part or more, in an array of one dimension.");
	deconstruct_array(given, TEXTOID, -1, false, TYPALIGN_INT, &parts, &nulls, &nparts);

	initStringInfo(&encoded);
	appendBinaryStringInfo(&encoded, KEY_ENCODING, sizeof(KEY_ENCODING));
	for (int i = 0; i < nparts; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("a part of a key must not be null"),
					 errdetail("Part %d is null.", i + 1),
					 errhint("Use an empty text, or leave the part out, where that means what you mean.")));
		append_part(&encoded, parts[i]);
	}
	return idem_leave_value(call, hex_digest(&encoded));
}
