/*-------------------------------------------------------------------------
 * token_secret.c
 *	  The secrets that tokens are signed with.
 *
 * A secret is made by the first call that needs one, in that call's own
 * transaction.  The install script makes none: a restore would bring another.
 * Secrets have random ids, so that those of a restored or merged database live
 * side by side.
 *
 * Two sessions may need the first secret at once.  The one that comes second
 * sees the other's open row and awaits it; if the wait runs out it makes one
 * of its own, since two secrets do no harm: each token names the one that
 * signed it, and all that are committed are honoured.
 *
 * A secret can be rolled back, and a token that it signed with it.  That is
 * the rule of the house (nothing happened), but no other transaction may ever
 * sign with such a secret.  So a backend knows only what is committed or its
 * own transaction's: rows are read with the latest snapshot, and a trigger on
 * the table sends an invalidation, which a transaction gets at once when it
 * rolls back, to a savepoint too, and all others when it commits.
 *
 * A retired secret is honoured for three days: a day for its last token, a day
 * for the memory of that token's use, and a day for the transaction that
 * retired it, since others sign with the old one until that commits.
 *-------------------------------------------------------------------------
 */
#include "token.h"

#include "access.h"
#include "key.h"
#include "relation.h"

#include "catalog/pg_type.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#define SECRET_TABLE "idem_token_secret"

#define RETIRED_DAYS 3

/* Of SHA-256, for HMAC */
#define BLOCK_BYTES 64

/* Columns of the table */
enum
{
	SECRET_ID = 1, SECRET, CREATED_AT, RETIRED_AT, SECRET_NATTS = RETIRED_AT
};

static const IdemIndex secret_by_id = {SECRET_TABLE, "idem_token_secret_pkey", SECRET_NATTS};

static IdemQuery insert_secret = IDEM_QUERY(
	"INSERT INTO @schema@.idem_token_secret (secret_id, secret, created_at) VALUES ($1, $2, $3)",
	BYTEAOID, BYTEAOID, TIMESTAMPTZOID);

/* A handful of rows, read from end to end */
static IdemQuery retire_others = IDEM_QUERY(
	"UPDATE @schema@.idem_token_secret SET retired_at = $2"
	" WHERE secret_id <> $1 AND retired_at IS NULL",
	BYTEAOID, TIMESTAMPTZOID);

static IdemQuery delete_outlived = IDEM_QUERY(
	"DELETE FROM @schema@.idem_token_secret WHERE retired_at <= $1",
	TIMESTAMPTZOID);


/* ---------- the cache ---------- */

/* The secrets of the house that was last asked for */
typedef struct SecretCache
{
	Oid			nspoid;
	Oid			relid;
	bool		loaded;			/* false: never read, or the reading failed */
	bool		stale;			/* changed since the last reading began */
	MemoryContext context;		/* holds the secrets */
	int			nsecrets;
	int			size;
	TokenSecret *secrets;
} SecretCache;

static SecretCache cache;

/* Relcache callback: a table changed (0: any may have) */
static void
doubt_secrets(Datum arg pg_attribute_unused(), Oid relid)
{
	if (relid == InvalidOid || relid == cache.relid)
		cache.stale = true;
}

/* Leave no secret behind in freed memory */
static void
forget_secrets(void)
{
	if (cache.context == NULL)
		cache.context = AllocSetContextCreate(TopMemoryContext, "idem token secrets",
											  ALLOCSET_SMALL_SIZES);
	if (cache.secrets != NULL)
		explicit_bzero(cache.secrets, sizeof(TokenSecret) * cache.size);
	cache.secrets = NULL;
	cache.nsecrets = cache.size = 0;
	MemoryContextReset(cache.context);
}

/* A place for one more */
static TokenSecret *
new_secret(void)
{
	if (cache.nsecrets == cache.size)
	{
		int			size = Max(4, cache.size * 2);
		TokenSecret *secrets = MemoryContextAllocZero(cache.context, sizeof(TokenSecret) * size);

		if (cache.secrets != NULL)
		{
			memcpy(secrets, cache.secrets, sizeof(TokenSecret) * cache.nsecrets);
			explicit_bzero(cache.secrets, sizeof(TokenSecret) * cache.size);
		}
		cache.secrets = secrets;
		cache.size = size;
	}
	return &cache.secrets[cache.nsecrets++];
}

static void
copy_bytes(uint8 *to, Datum bytes, int len)
{
	bytea	   *from = DatumGetByteaPP(bytes);

	if (VARSIZE_ANY_EXHDR(from) != (Size) len)
		elog(ERROR, "a secret of \"%s\" has the wrong length", SECRET_TABLE);
	memcpy(to, VARDATA_ANY(from), len);
}

/* Keep a row of the table */
static void
keep_secret(void *into pg_attribute_unused(), TupleTableSlot *slot)
{
	TokenSecret *secret = new_secret();
	bool		isnull;
	Datum		retired_at;

	copy_bytes(secret->id, slot_getattr(slot, SECRET_ID, &isnull), TOKEN_SECRET_ID_BYTES);
	copy_bytes(secret->secret, slot_getattr(slot, SECRET, &isnull), TOKEN_SECRET_BYTES);
	secret->created_at = DatumGetTimestampTz(slot_getattr(slot, CREATED_AT, &isnull));
	retired_at = slot_getattr(slot, RETIRED_AT, &isnull);
	secret->retired_at = isnull ? DT_NOEND : DatumGetTimestampTz(retired_at);
}

/* Read the secrets that are committed now, or are our own */
static void
load_secrets(const IdemHouse *house)
{
	cache.loaded = false;
	forget_secrets();
	cache.nspoid = house->nspoid;
	cache.relid = relation_demand(house, "table", SECRET_TABLE);

	cache.stale = false;		/* before the reading, not after */
	access_read_table(cache.relid, keep_secret, NULL);
	cache.loaded = true;
}

/* The same, if anything has changed since the last time */
static void
refresh_secrets(const IdemHouse *house)
{
	AcceptInvalidationMessages();
	if (!cache.loaded || cache.stale || cache.nspoid != house->nspoid)
		load_secrets(house);
}

/* The youngest that is not retired; NULL: none */
static const TokenSecret *
youngest(void)
{
	const TokenSecret *found = NULL;

	for (int i = 0; i < cache.nsecrets; i++)
	{
		const TokenSecret *secret = &cache.secrets[i];

		if (secret->retired_at == DT_NOEND &&
			(found == NULL || secret->created_at >= found->created_at))
			found = secret;
	}
	return found;
}


/* ---------- make and find ---------- */

/* Let nobody else make a secret until idem_unlock_names */
static void
lock_making(IdemCall *call)
{
	idem_lock_name(call, IDEM_NAME_TOKEN, CStringGetTextDatum(""), CStringGetTextDatum(SECRET_TABLE));
}

/* Insert a new secret; returns its id, a bytea */
static Datum
make_secret(IdemCall *call)
{
	bytea	   *id = palloc(VARHDRSZ + TOKEN_SECRET_ID_BYTES);
	bytea	   *secret = palloc(VARHDRSZ + TOKEN_SECRET_BYTES);

	SET_VARSIZE(id, VARHDRSZ + TOKEN_SECRET_ID_BYTES);
	SET_VARSIZE(secret, VARHDRSZ + TOKEN_SECRET_BYTES);
	idem_make_random(VARDATA(id), TOKEN_SECRET_ID_BYTES);
	idem_make_random(VARDATA(secret), TOKEN_SECRET_BYTES);
	(void) idem_run(call, &insert_secret, (NullableDatum[]) {
		IDEM_VALUE(PointerGetDatum(id)),
		IDEM_VALUE(PointerGetDatum(secret)),
		IDEM_VALUE(TimestampTzGetDatum(GetCurrentTimestamp()))
	});
	explicit_bzero(VARDATA(secret), TOKEN_SECRET_BYTES);
	return PointerGetDatum(id);
}

/*
 * The secret that signs.  A look without keys meets every row, and so the
 * transaction that is just making the first one.
 */
const TokenSecret *
token_secret_to_sign(IdemCall *call)
{
	bool		patient = true;
	const TokenSecret *secret;

	refresh_secrets(call->house);
	while ((secret = youngest()) == NULL)
	{
		lock_making(call);
		load_secrets(call->house);
		if (youngest() == NULL)
		{
			(void) idem_look(call, &secret_by_id, NULL, 0, IDEM_SIGHT_DIRTY);
			if (!TransactionIdIsValid(call->rival) || !patient)
			{
				(void) make_secret(call);
				load_secrets(call->house);
				call->rival = InvalidTransactionId;
			}
		}
		idem_unlock_names(call);
		if (TransactionIdIsValid(call->rival))
		{
			patient = idem_await_rival(call);
			load_secrets(call->house);
		}
	}
	return secret;
}

/* The secret of this id, if it is still honoured */
const TokenSecret *
token_secret_by_id(IdemCall *call, const uint8 *id)
{
	refresh_secrets(call->house);
	for (int i = 0; i < cache.nsecrets; i++)
	{
		const TokenSecret *secret = &cache.secrets[i];

		if (memcmp(secret->id, id, TOKEN_SECRET_ID_BYTES) == 0 &&
			(secret->retired_at == DT_NOEND ||
			 call->now < secret->retired_at + RETIRED_DAYS * USECS_PER_DAY))
			return secret;
	}
	return NULL;
}

/*
 * idem_rotate_token_secret() -> outcome
 *
 * A new secret; the others are retired, those that nobody needs any more
 * deleted.  Errors: 25006, 40001.
 */
PG_FUNCTION_INFO_V1(idem_rotate_token_secret);
Datum
idem_rotate_token_secret(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		id;
	TimestampTz now;

	for (;;)
	{
		lock_making(call);
		(void) idem_look_all(call, &secret_by_id, NULL, 0, IDEM_SIGHT_DIRTY);
		if (!TransactionIdIsValid(call->rival))
			break;
		idem_unlock_names(call);
		if (!idem_await_rival(call))
			return idem_leave(call, "in_progress");
	}
	id = make_secret(call);
	idem_unlock_names(call);

	now = GetCurrentTimestamp();
	(void) idem_run(call, &retire_others, (NullableDatum[]) {
		IDEM_VALUE(id), IDEM_VALUE(TimestampTzGetDatum(now))
	});
	(void) idem_run(call, &delete_outlived, (NullableDatum[]) {
		IDEM_VALUE(TimestampTzGetDatum(now - RETIRED_DAYS * USECS_PER_DAY))
	});
	return idem_leave(call, "rotated");
}


/* ---------- HMAC-SHA-256 ---------- */

/* SHA-256 of the key, each byte of its block xored with pad, and a message */
static void
hash_with_pad(const TokenSecret *secret, uint8 pad, const uint8 *message, int len, uint8 *hash)
{
	bytea	   *input = palloc(VARHDRSZ + BLOCK_BYTES + len);
	uint8	   *bytes = (uint8 *) VARDATA(input);
	bytea	   *output;

	SET_VARSIZE(input, VARHDRSZ + BLOCK_BYTES + len);
	memset(bytes, pad, BLOCK_BYTES);
	for (int i = 0; i < TOKEN_SECRET_BYTES; i++)
		bytes[i] ^= secret->secret[i];
	memcpy(bytes + BLOCK_BYTES, message, len);

	output = DatumGetByteaPP(DirectFunctionCall1(sha256_bytea, PointerGetDatum(input)));
	memcpy(hash, VARDATA_ANY(output), TOKEN_MAC_BYTES);
	explicit_bzero(bytes, BLOCK_BYTES);
	pfree(input);
}

/* RFC 2104 */
void
token_hmac(const TokenSecret *secret, const uint8 *message, int len, uint8 *mac)
{
	uint8		inner[TOKEN_MAC_BYTES];

	hash_with_pad(secret, 0x36, message, len, inner);
	hash_with_pad(secret, 0x5c, inner, TOKEN_MAC_BYTES, mac);
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_token(void)
{
	CacheRegisterRelcacheCallback(doubt_secrets, (Datum) 0);
}
