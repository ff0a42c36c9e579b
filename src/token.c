/*-------------------------------------------------------------------------
 * token.c
 *	  One-time tokens: a form is sent twice, and counts once.
 *
 * A flood of page views must not fill a table, so issuing writes nothing: a
 * token carries all that is to be known of it, and a signature.  Only when it
 * is consumed a row is written, its digest, in the caller's transaction; the
 * primary key lets one transaction do that, and a rollback gives the token
 * back.
 *
 *		version		1 byte
 *		secret id	8 bytes		which secret signed it
 *		expiry		8 bytes		microseconds since 2000-01-01 UTC, big-endian
 *		random		16 bytes
 *		MAC			32 bytes	HMAC-SHA-256 over the version, tenant_id and
 *								scope, each after its length in two bytes,
 *								and the rest of the above
 *
 * in base64url without padding.  Whoever does not know the secret cannot make
 * a token, make one last longer, or use one for another tenant or scope.  Of a
 * token's bytes there is one spelling: what is not in it is unknown.
 *
 * A token that was consumed and has expired was consumed: whoever sends a form
 * a second time is to be told what became of the first.  So whether it was
 * used is looked up first, and "expired" is said only under the token's name
 * with the rival's row in sight, as "consumed" is.  A use is remembered for a
 * day after the token's expiry: so long, then, as the digest says that begins with
 * the expiry, and the sweep goes by the same index.
 *-------------------------------------------------------------------------
 */
#include "token.h"

#include "direct.h"
#include "key.h"

#include "catalog/pg_type.h"
#include "port/pg_bswap.h"
#include "utils/fmgrprotos.h"

#define TOKEN_VERSION 1

/* Where the parts are */
enum
{
	AT_VERSION = 0,
	AT_SECRET_ID = 1,
	AT_EXPIRY = AT_SECRET_ID + TOKEN_SECRET_ID_BYTES,
	AT_RANDOM = AT_EXPIRY + 8,
	AT_MAC = AT_RANDOM + 16,
	TOKEN_BYTES = AT_MAC + TOKEN_MAC_BYTES,
	TOKEN_CHARS = (TOKEN_BYTES * 8 + 5) / 6
};

/* Version and rest, two keys and their lengths */
#define MESSAGE_BYTES (AT_MAC + 2 * (2 + IDEM_KEY_BYTES))

/* Of the expiry, the upper ones */
#define DIGEST_TIME_BYTES 6

/* Columns of idem_token_used */
enum
{
	TENANT_ID = 1, DIGEST, PAYMENT_NO, CONSUMED_AT, REPURCHASE, ASKED_PAYMENT_NO,
	NATTS = ASKED_PAYMENT_NO
};

static const IdemIndex used_by_digest = {"idem_token_used", "idem_token_used_pkey", NATTS};

static IdemTable used_tokens = {
	"idem_token_used", NATTS,
	IDEM_QUERY("INSERT INTO @schema@.idem_token_used"
			   " (tenant_id, digest, payment_no, consumed_at, repurchase, asked_payment_no)"
			   " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
			   TEXTOID, BYTEAOID, TEXTOID, TIMESTAMPTZOID, BOOLOID, TEXTOID)
};

/* TID scan: nothing can lead it astray */
static IdemQuery delete_used = IDEM_QUERY(
	"DELETE FROM @schema@.idem_token_used WHERE ctid = $1",
	TIDOID);


/* ---------- base64url ---------- */

static const char alphabet[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void
spell(const uint8 *bytes, char *chars)
{
	uint32		bits = 0;
	int			nbits = 0;

	for (int i = 0; i < TOKEN_BYTES; i++)
	{
		bits = bits << 8 | bytes[i];
		for (nbits += 8; nbits >= 6; nbits -= 6)
			*chars++ = alphabet[bits >> (nbits - 6) & 63];
	}
	*chars = alphabet[bits << (6 - nbits) & 63];
}

/* The reverse; false: no spelling of a token, or not the one that there is */
static bool
parse(const text *spelling, uint8 *bytes)
{
	uint32		bits = 0;
	int			nbits = 0;

	if (VARSIZE_ANY_EXHDR(spelling) != TOKEN_CHARS)
		return false;
	for (int i = 0; i < TOKEN_CHARS; i++)
	{
		const char *at = memchr(alphabet, VARDATA_ANY(spelling)[i], 64);

		if (at == NULL)
			return false;
		bits = bits << 6 | (uint32) (at - alphabet);
		nbits += 6;
		if (nbits >= 8)
		{
			nbits -= 8;
			*bytes++ = (uint8) (bits >> nbits);
		}
	}
	return (bits & ((1U << nbits) - 1)) == 0;
}


/* ---------- sign and check ---------- */

/* Append a key, after its length in two bytes */
static uint8 *
append_key(uint8 *end, Datum key)
{
	text	   *chars = DatumGetTextPP(key);
	Size		len = VARSIZE_ANY_EXHDR(chars);

	Assert(len <= IDEM_KEY_BYTES);
	*end++ = (uint8) (len >> 8);
	*end++ = (uint8) len;
	memcpy(end, VARDATA_ANY(chars), len);
	return end + len;
}

/* The MAC of a token's bytes for this tenant and scope */
static void
compute_mac(IdemCall *call, Datum scope, const TokenSecret *secret, const uint8 *token, uint8 *mac)
{
	uint8		message[MESSAGE_BYTES];
	uint8	   *end = message;

	*end++ = token[AT_VERSION];
	end = append_key(end, call->tenant_id);
	end = append_key(end, scope);
	memcpy(end, token + AT_SECRET_ID, AT_MAC - AT_SECRET_ID);
	end += AT_MAC - AT_SECRET_ID;
	token_hmac(secret, message, (int) (end - message), mac);
}

/* In a time that tells nothing of where they differ */
static bool
same_mac(const uint8 *a, const uint8 *b)
{
	volatile uint8 difference = 0;

	for (int i = 0; i < TOKEN_MAC_BYTES; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

/* The bytes that the digest of a token with this expiry begins with */
static void
digest_time(TimestampTz expiry, uint8 *bytes)
{
	uint64		ordered = pg_hton64((uint64) expiry);

	memcpy(bytes, &ordered, DIGEST_TIME_BYTES);
}

/*
 * What is stored of a token: the upper bytes of its expiry, which change every
 * 66 milliseconds, and then of its MAC, which no other token has, as many as find
 * room.  Tokens that are used at one time so share pages of the index, where the
 * MAC alone would dirty a page for each; but they do not all want the same page.
 * Without the random bytes nobody can make the token of it.
 */
static Datum
digest_of(const uint8 *bytes, TimestampTz expires_at)
{
	bytea	   *digest = palloc(VARHDRSZ + TOKEN_DIGEST_BYTES);
	uint8	   *data = (uint8 *) VARDATA(digest);

	SET_VARSIZE(digest, VARHDRSZ + TOKEN_DIGEST_BYTES);
	digest_time(expires_at, data);
	memcpy(data + DIGEST_TIME_BYTES, bytes + AT_MAC, TOKEN_DIGEST_BYTES - DIGEST_TIME_BYTES);
	return PointerGetDatum(digest);
}

Token *
token_read(IdemCall *call, Datum scope, Datum chars)
{
	uint8		bytes[TOKEN_BYTES];
	uint8		mac[TOKEN_MAC_BYTES];
	uint64		expiry;
	const TokenSecret *secret;
	Token	   *token;

	if (!parse(DatumGetTextPP(chars), bytes) || bytes[AT_VERSION] != TOKEN_VERSION)
		return NULL;
	secret = token_secret_by_id(call, bytes + AT_SECRET_ID);
	if (secret == NULL)
		return NULL;
	compute_mac(call, scope, secret, bytes, mac);
	if (!same_mac(mac, bytes + AT_MAC))
		return NULL;

	token = palloc(sizeof(Token));
	memcpy(&expiry, bytes + AT_EXPIRY, sizeof(expiry));
	token->expires_at = (TimestampTz) pg_ntoh64(expiry);
	token->digest = digest_of(bytes, token->expires_at);
	return token;
}

bool
token_is_expired(const Token *token, TimestampTz now)
{
	return token->expires_at <= now;
}


/* ---------- use ---------- */

void
token_lock_name(IdemCall *call, const Token *token)
{
	idem_lock_name(call, IDEM_NAME_TOKEN, call->tenant_id, token->digest);
}

/*
 * Below the digests of all tokens whose use is still remembered at that time: a
 * bytea, shorter than they are.
 */
Datum
token_oldest_digest(TimestampTz now)
{
	bytea	   *bound = palloc(VARHDRSZ + DIGEST_TIME_BYTES);

	SET_VARSIZE(bound, VARHDRSZ + DIGEST_TIME_BYTES);
	digest_time(now - TOKEN_LIFE_HOURS * USECS_PER_HOUR, (uint8 *) VARDATA(bound));
	return PointerGetDatum(bound);
}

/* The same as the sweep finds it, whether or not it has come by */
static bool
is_forgotten(const Token *token, TimestampTz now)
{
	return DatumGetBool(DirectFunctionCall2(bytealt, token->digest, token_oldest_digest(now)));
}

/*
 * The token's use, if it was used and that is still remembered; NULL: not.
 */
TokenUse *
token_look(IdemCall *call, const Token *token, IdemSight sight)
{
	Datum		keys[] = {token->digest, call->tenant_id};
	IdemRow    *row = idem_look(call, &used_by_digest, keys, 2, sight);
	TokenUse   *use;

	if (row == NULL || is_forgotten(token, call->now))
		return NULL;
	use = palloc(sizeof(TokenUse));
	use->tid = row->tid;
	use->payment_no = IDEM_NULLABLE(row, PAYMENT_NO);
	use->repurchase = DatumGetBool(IDEM_COLUMN(row, REPURCHASE));
	use->asked_payment_no = IDEM_NULLABLE(row, ASKED_PAYMENT_NO);
	return use;
}

/* Use the token up, with its name locked; false: it met a raw INSERT */
bool
token_use(IdemCall *call, const Token *token, const TokenUse *use)
{
	NullableDatum row[] = {
		IDEM_VALUE(call->tenant_id),
		IDEM_VALUE(token->digest),
		use->payment_no,
		IDEM_VALUE(TimestampTzGetDatum(call->now)),
		IDEM_VALUE(BoolGetDatum(use->repurchase)),
		use->asked_payment_no
	};

	return idem_insert(call, &used_tokens, row);
}

/* Take back the use that this very call made */
void
token_give_back(IdemCall *call, const Token *token)
{
	TokenUse   *use = token_look(call, token, IDEM_SIGHT_FIRST);

	if (use == NULL ||
		idem_run(call, &delete_used, (NullableDatum[]) {IDEM_VALUE(PointerGetDatum(&use->tid))}) != 1)
		elog(ERROR, "the use of a token is gone");
}


/* ---------- issue and consume ---------- */

/* The arguments of both functions, by position */
enum
{
	ARG_TENANT_ID, ARG_SCOPE, ARG_TTL, ARG_TOKEN = ARG_TTL
};

/* When a token expires that is issued now */
static TimestampTz
read_expiry(IdemCall *call)
{
	Interval	longest = {TOKEN_LIFE_HOURS * USECS_PER_HOUR, 0, 0};
	NullableDatum expires_at = idem_arg_expiry(call, ARG_TTL);

	if (expires_at.isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"ttl\" of idem_issue_token must not be null"),
				 errdetail("No token lives for ever.")));
	if (DatumGetInt32(DirectFunctionCall2(interval_cmp, idem_arg(call, ARG_TTL).value,
										  IntervalPGetDatum(&longest))) > 0)
		idem_bad_argument(call, ARG_TTL, "A token lives for at most 24 hours.");
	return DatumGetTimestampTz(expires_at.value);
}

/*
 * idem_issue_token(tenant_id, scope, ttl) -> text
 *
 * Errors: 22004, 22023, 25006 in a read-only transaction before there is a
 * secret.
 */
PG_FUNCTION_INFO_V1(idem_issue_token);
Datum
idem_issue_token(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		scope = idem_arg_key(call, ARG_SCOPE);
	uint64		expiry = pg_hton64((uint64) read_expiry(call));
	const TokenSecret *secret = token_secret_to_sign(call);
	uint8		bytes[TOKEN_BYTES];
	char		chars[TOKEN_CHARS];

	bytes[AT_VERSION] = TOKEN_VERSION;
	memcpy(bytes + AT_SECRET_ID, secret->id, TOKEN_SECRET_ID_BYTES);
	memcpy(bytes + AT_EXPIRY, &expiry, sizeof(expiry));
	idem_make_random(bytes + AT_RANDOM, AT_MAC - AT_RANDOM);
	compute_mac(call, scope, secret, bytes, bytes + AT_MAC);

	spell(bytes, chars);
	return idem_leave_value(call, PointerGetDatum(cstring_to_text_with_len(chars, TOKEN_CHARS)));
}

/*
 * Use a genuine token up, or find out why not: look, lock the name, look
 * dirtily, insert, unlock.
 */
static const char *
consume(IdemCall *call, const Token *token)
{
	static const TokenUse by_hand = {.payment_no = {0, true}, .asked_payment_no = {0, true}};
	int			pause_ms = 1;

	if (token_look(call, token, IDEM_SIGHT_FIRST) != NULL)
		return "already_consumed";
	for (;;)
	{
		const char *outcome = NULL;
		TokenUse   *use;

		token_lock_name(call, token);
		call->now = GetCurrentTimestamp();
		use = token_look(call, token, IDEM_SIGHT_DIRTY);
		if (!TransactionIdIsValid(call->rival))
		{
			if (use != NULL)
				outcome = "already_consumed";
			else if (token_is_expired(token, call->now))
				outcome = "expired";
			else if (token_use(call, token, &by_hand))
				outcome = "consumed";
		}
		idem_unlock_names(call);
		if (outcome != NULL)
			return outcome;
		if (TransactionIdIsValid(call->rival) ?
			!idem_await_rival(call) : !idem_pause(call, &pause_ms))
			return "in_progress";
	}
}

/*
 * idem_consume_token(tenant_id, scope, token) -> outcome
 *
 * Errors: 22004, 22023, 25006, 40001.
 */
PG_FUNCTION_INFO_V1(idem_consume_token);
Datum
idem_consume_token(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);
	Datum		scope = idem_arg_key(call, ARG_SCOPE);
	Token	   *token = token_read(call, scope, idem_arg_required(call, ARG_TOKEN).value);

	return idem_leave(call, token == NULL ? "unknown" : consume(call, token));
}
