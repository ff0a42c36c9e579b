/*-------------------------------------------------------------------------
 * adapter.h
 *	  Reading what channels send, whatever it is.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ADAPTER_H
#define IDEM_ADAPTER_H

#include "notification.h"

#include "utils/jsonb.h"

/* A body, as it is read */
#define BODY_MAX_ACCOUNTS 4

typedef struct Body
{
	Notification said;
	NullableDatum accounts[BODY_MAX_ACCOUNTS];	/* what may be the merchant's id, the likeliest first */
	int			naccounts;
} Body;

/*
 * Read a body into what it says; returns why it cannot be read, or NULL.
 * Never raises: whatever is not as it should be is left NULL.
 */
typedef const char *(*BodyReader) (JsonbContainer *json, Body *body);


/* ---------- adapter_read.c ---------- */

/* The object of that name; NULL: there is none, or json is NULL */
extern JsonbContainer *read_object(JsonbContainer *json, const char *name);

/* The first element of the array of that name, if it is an object */
extern JsonbContainer *read_first_object(JsonbContainer *json, const char *name);

/* Is there anything of that name but null? */
extern bool read_has(JsonbContainer *json, const char *name);

/* A string, or a number in its digits; NULL for what is empty, too */
extern NullableDatum read_text(JsonbContainer *json, const char *name);

/* The first of several names that has a text */
extern NullableDatum read_first_text(JsonbContainer *json, const char *const *names, int nnames);

/* A currency code, in upper case */
extern NullableDatum read_currency(JsonbContainer *json, const char *name);

/* A sum in minor units, told so; int8 */
extern NullableDatum read_minor(JsonbContainer *json, const char *name);

/* A sum in units of its currency, such as "88.88"; int8, in minor units */
extern NullableDatum read_major(JsonbContainer *json, const char *name, NullableDatum currency);

/* A moment: 2024-01-02 03:04:05, at that offset from UTC where it names none */
extern NullableDatum read_time(JsonbContainer *json, const char *name, int offset_minutes);

/* A moment in seconds since 1970 */
extern NullableDatum read_epoch(JsonbContainer *json, const char *name);

#endif							/* IDEM_ADAPTER_H */
