/*-------------------------------------------------------------------------
 * request.h
 *	  Requests: idempotency keys, and what became of them.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REQUEST_H
#define IDEM_REQUEST_H

#include "look.h"

/* In the order of request_status_names */
typedef enum RequestStatus
{
	REQUEST_STARTED,
	REQUEST_COMPLETED,
	REQUEST_FAILED,
	REQUEST_RELEASED			/* the key is free, the row waits for its next use */
} RequestStatus;

extern const char *const request_status_names[];

/* The name of a request: tenant_id, scope, key */
#define REQUEST_KEYS 3

/* A row of idem_request */
typedef struct Request
{
	IdemRow    *row;
	ItemPointerData tid;
	RequestStatus status;
	int64		attempt;
	NullableDatum fingerprint;	/* bytea; NULL: of no request */
	int32		fingerprint_version;
	NullableDatum worker;
	Datum		on_expiry;		/* text */
	TimestampTz first_at;
	TimestampTz lease_until;
	TimestampTz expires_at;
	NullableDatum recovery_point;
	NullableDatum recovery_state;
	NullableDatum response_status;
	NullableDatum response;
} Request;

/* The request that arguments 0 to 2 of every function here name */
extern void request_arg_keys(IdemCall *call, Datum *keys);

/* NULL: there is none */
extern Request *request_look(IdemCall *call, const Datum *keys, IdemSight sight);

/*
 * The same, locked, where one was just seen with IDEM_SIGHT_LATEST; NULL: it is
 * gone, or call->busy
 */
extern Request *request_lock(IdemCall *call, const Datum *keys, const Request *seen);

/* Write back a locked request */
extern void request_store(IdemCall *call, Request *request);

/* Has the time of its lease come? */
extern bool request_lease_is_over(const IdemCall *call, const Request *request);

/* When a lease given in argument n ends that begins now; not null, above zero */
extern Datum request_arg_span(IdemCall *call, int n);

#endif							/* IDEM_REQUEST_H */
