/*
 * request: idempotency keys, recovery points, responses to be replayed.
 *
 * The row is written twice or more: begun, renewed, finished.  fillfactor
 * leaves room for the next version on the same page, and what only a request
 * in work needs is taken out when it is finished.  The index on expires_at
 * holds what a sweep may take and nothing else, so that requests which are
 * never finished do not stand in its way.
 */

CREATE SEQUENCE @extschema@.idem_attempt AS bigint;
COMMENT ON SEQUENCE @extschema@.idem_attempt IS
'Attempts of requests. Each start and each resumption draws one, so that no key ever sees an attempt twice, whatever was swept in between.';

CREATE TABLE @extschema@.idem_request (
	tenant_id @extschema@.idem_key_text NOT NULL,
	scope @extschema@.idem_key_text NOT NULL,
	key @extschema@.idem_key_text NOT NULL,
	status text COLLATE "C" NOT NULL,
	attempt bigint NOT NULL DEFAULT pg_catalog.nextval('@extschema@.idem_attempt'),
	fingerprint bytea,
	fingerprint_version integer NOT NULL,
	worker text COLLATE "C",
	on_expiry text COLLATE "C" NOT NULL,
	first_at timestamptz NOT NULL,
	lease_until timestamptz NOT NULL,
	expires_at timestamptz NOT NULL,
	recovery_point text COLLATE "C",
	recovery_state jsonb,
	response_status integer,
	response json,
	PRIMARY KEY (tenant_id, scope, key)
) WITH (fillfactor = 80);
CREATE INDEX idem_request_expiry ON @extschema@.idem_request (expires_at) WHERE status <> 'started';
COMMENT ON TABLE @extschema@.idem_request IS
'Idempotency keys. status is started, completed, failed or released (the key is free again). fingerprint is the digest of the request, NULL for none, never its payload; attempt is the fence; first_at, expires_at and on_expiry are the starting call''s. Swept once finished and past expires_at.';

CREATE TYPE @extschema@.idem_begin_request_result AS (
	outcome text,
	attempt bigint,
	recovery_point text,
	recovery_state jsonb,
	response_status integer,
	response json,
	lease_until timestamptz,
	first_at timestamptz
);
COMMENT ON TYPE @extschema@.idem_begin_request_result IS
'The row that idem_begin_request returns. attempt stands only in started and resumed, the response only in replayed.';

CREATE TYPE @extschema@.idem_request_result AS (
	outcome text,
	lease_until timestamptz
);
COMMENT ON TYPE @extschema@.idem_request_result IS
'The row that the functions return which go on with a request that was begun. lease_until: until when nobody else takes it over, NULL when it is not in work.';

CREATE FUNCTION @extschema@.idem_begin_request(
	tenant_id text,
	scope text,
	key text,
	request jsonb DEFAULT NULL,
	lease interval DEFAULT '30 seconds',
	ttl interval DEFAULT '24 hours',
	wait interval DEFAULT NULL,
	worker text DEFAULT NULL,
	on_expiry text DEFAULT 'resume')
	RETURNS @extschema@.idem_begin_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_begin_request';
COMMENT ON FUNCTION @extschema@.idem_begin_request(text, text, text, jsonb, interval, interval, interval, text, text) IS
'Begins the work of a request under a key, or tells what became of it. lease: how long nobody else takes it over; ttl: how long its answer is replayed, counted from the start; wait: for another transaction that is still open (NULL: idem.wait, 0: not at all); worker: who asks, so that the same one resumes at once; on_expiry: resume, or unknown for work that must not run again when nobody knows whether it ran. ttl and on_expiry are the starting call''s.
Outcomes: started; resumed (the former attempt''s lease ran out, or the same worker asks again: go on from recovery_point); replayed (response and response_status of the first, final failures too); in_progress (somebody is at it until lease_until, or in an open transaction); unknown (nobody knows whether it ran: idem_resolve_request).
Errors: ID001 (the key was used for another request), 22004, 22023 (a key of no or more than 255 bytes, lease or ttl not above zero or infinite, another word for on_expiry).';

CREATE FUNCTION @extschema@.idem_checkpoint_request(
	tenant_id text,
	scope text,
	key text,
	attempt bigint,
	recovery_point text,
	state jsonb DEFAULT NULL)
	RETURNS @extschema@.idem_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_checkpoint_request';
COMMENT ON FUNCTION @extschema@.idem_checkpoint_request(text, text, text, bigint, text, jsonb) IS
'Notes how far an attempt has come, for whoever resumes it. The lease stays as it is.
Outcomes: checkpointed; duplicate (the same point and state); refused (the request is finished); in_progress (another transaction is at it; nothing was written).
Errors: ID005 (not the current attempt), ID006 (no such request), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_renew_request(
	tenant_id text,
	scope text,
	key text,
	attempt bigint,
	lease interval)
	RETURNS @extschema@.idem_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_renew_request';
COMMENT ON FUNCTION @extschema@.idem_renew_request(text, text, text, bigint, interval) IS
'Lets the lease of the current attempt, even one that ran out, end that long from now.
Outcomes: renewed; refused (the request is finished); in_progress (another transaction is at it; nothing was written).
Errors: ID005 (not the current attempt), ID006 (no such request), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_complete_request(
	tenant_id text,
	scope text,
	key text,
	attempt bigint,
	response json,
	status integer DEFAULT 200)
	RETURNS @extschema@.idem_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_complete_request';
COMMENT ON FUNCTION @extschema@.idem_complete_request(text, text, text, bigint, json, integer) IS
'Ends a request with the response that is replayed, text for text, until its ttl is over. Works after the lease ran out, until somebody takes the request over.
Outcomes: completed; duplicate (the same response and status again); refused (it failed for good); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (it was completed with another response), ID005 (not the current attempt), ID006 (no such request), 22004.';

CREATE FUNCTION @extschema@.idem_fail_request(
	tenant_id text,
	scope text,
	key text,
	attempt bigint,
	response json DEFAULT NULL,
	status integer DEFAULT 500,
	retryable boolean DEFAULT true)
	RETURNS @extschema@.idem_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_fail_request';
COMMENT ON FUNCTION @extschema@.idem_fail_request(text, text, text, bigint, json, integer, boolean) IS
'Ends a request without success. retryable: the key is free, as if it had never been used, and response and recovery point are dropped; else the response is replayed like a success.
Outcomes: released (retryable); failed (for good); duplicate; refused (it ended otherwise); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (it failed with another response), ID005 (not the current attempt), ID006 (no such request), 22004.';

CREATE FUNCTION @extschema@.idem_resolve_request(
	tenant_id text,
	scope text,
	key text,
	decision text,
	response json DEFAULT NULL,
	status integer DEFAULT NULL)
	RETURNS @extschema@.idem_request_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_resolve_request';
COMMENT ON FUNCTION @extschema@.idem_resolve_request(text, text, text, text, json, integer) IS
'Says what really happened to a request whose lease ran out: completed (with the response to be replayed; status NULL: 200) or released (it never ran, the key is free). The attempt that was left behind is fenced by released.
Outcomes: resolved; already_resolved (it ended meanwhile, however); refused (its lease still holds); in_progress (another transaction is at it; nothing was written).
Errors: ID006 (no such request), 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_begin_request(text, text, text, jsonb, interval, interval, interval, text, text),
	@extschema@.idem_checkpoint_request(text, text, text, bigint, text, jsonb),
	@extschema@.idem_renew_request(text, text, text, bigint, interval),
	@extschema@.idem_complete_request(text, text, text, bigint, json, integer),
	@extschema@.idem_fail_request(text, text, text, bigint, json, integer, boolean),
	@extschema@.idem_resolve_request(text, text, text, text, json, integer)
	FROM PUBLIC;
