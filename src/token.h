/*-------------------------------------------------------------------------
 * token.h
 *	  One-time tokens: signed when issued, remembered when consumed.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TOKEN_H
#define IDEM_TOKEN_H

#include "look.h"

/* A token is issued for no longer than this, and its use is remembered as long after that */
#define TOKEN_LIFE_HOURS 24

/* The scope that idem_create_payment takes */
#define TOKEN_SCOPE_PAYMENT "payment"


/* ---------- token_secret.c ---------- */

#define TOKEN_SECRET_ID_BYTES 8
#define TOKEN_SECRET_BYTES 32
#define TOKEN_MAC_BYTES 32
#define TOKEN_DIGEST_BYTES 32

/* A row of idem_token_secret, in this backend's memory until the next call of these */
typedef struct TokenSecret
{
	uint8		id[TOKEN_SECRET_ID_BYTES];
	uint8		secret[TOKEN_SECRET_BYTES];
	TimestampTz created_at;
	TimestampTz retired_at;		/* DT_NOEND: it is not */
} TokenSecret;

/* The secret that signs, made if there is none; the one of this id, NULL: none that counts */
extern const TokenSecret *token_secret_to_sign(IdemCall *call);
extern const TokenSecret *token_secret_by_id(IdemCall *call, const uint8 *id);

/* HMAC-SHA-256 with a secret */
extern void token_hmac(const TokenSecret *secret, const uint8 *message, int len, uint8 *mac);

extern void idem_init_token(void);


/* ---------- token.c ---------- */

/* A genuine token, whatever its age */
typedef struct Token
{
	TimestampTz expires_at;
	Datum		digest;			/* bytea: what it is known by once it is used */
} Token;

/* What is remembered of a token that was consumed */
typedef struct TokenUse
{
	ItemPointerData tid;
	NullableDatum payment_no;
	bool		repurchase;
	NullableDatum asked_payment_no;
} TokenUse;

/* The token in a text that was issued for this tenant and scope; NULL: unknown */
extern Token *token_read(IdemCall *call, Datum scope, Datum chars);
extern bool token_is_expired(const Token *token, TimestampTz now);

/* Lock its name, see whether it was used, use it, take that back */
extern void token_lock_name(IdemCall *call, const Token *token);
extern TokenUse *token_look(IdemCall *call, const Token *token, IdemSight sight);
extern bool token_use(IdemCall *call, const Token *token, const TokenUse *use);
extern void token_give_back(IdemCall *call, const Token *token);

/* Digests of tokens whose use need not be known any more are less than this */
extern Datum token_oldest_digest(TimestampTz now);

#endif							/* IDEM_TOKEN_H */
