/*
 * lease: who may do a job, and until when.
 *
 * A row is never deleted, since its fence must never come again.  Renewing is an
 * UPDATE of columns that no index has: with room left in the page it stays there.
 */

CREATE TABLE @extschema@.idem_lease (
	tenant_id @extschema@.idem_key_text NOT NULL,
	name @extschema@.idem_key_text NOT NULL,
	worker @extschema@.idem_key_text,
	fence bigint NOT NULL,
	lease_until timestamptz NOT NULL,
	acquired_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, name)
) WITH (fillfactor = 50);
COMMENT ON TABLE @extschema@.idem_lease IS
'Named leases. worker holds it, NULL: it was released; fence grows by one each time the lease changes hands and never goes back; lease_until is when another may take it (once released: when it was). Never deleted.';

CREATE TYPE @extschema@.idem_acquire_lease_result AS (
	outcome text,
	fence bigint,
	lease_until timestamptz,
	blocking_no text
);
COMMENT ON TYPE @extschema@.idem_acquire_lease_result IS
'The row that idem_acquire_lease returns. fence stands only where the caller holds the lease; where it is busy, blocking_no names the worker who does, and lease_until is his.';

CREATE TYPE @extschema@.idem_renew_lease_result AS (
	outcome text,
	lease_until timestamptz
);
COMMENT ON TYPE @extschema@.idem_renew_lease_result IS
'The row that idem_renew_lease returns.';

CREATE TYPE @extschema@.idem_release_lease_result AS (
	outcome text
);
COMMENT ON TYPE @extschema@.idem_release_lease_result IS
'The row that idem_release_lease returns.';

CREATE FUNCTION @extschema@.idem_acquire_lease(
	tenant_id text,
	name text,
	worker text,
	ttl interval DEFAULT '30 seconds',
	wait interval DEFAULT NULL)
	RETURNS @extschema@.idem_acquire_lease_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_acquire_lease';
COMMENT ON FUNCTION @extschema@.idem_acquire_lease(text, text, text, interval, interval) IS
'Acquires a lease for ttl from now, if it is new, released, or past its lease_until. Waits up to wait for it (NULL: idem.wait; 0: not at all); who waits is served in no particular order. The fence is good for use outside once the transaction is committed.
Outcomes: acquired (with a new fence); renewed (the worker holds it already, even past lease_until: the same fence, ttl from now); busy (blocking_no holds it until lease_until, or a transaction that asserted it is still open); in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023 (ttl not above 0, or over 100 years).';

CREATE FUNCTION @extschema@.idem_renew_lease(
	tenant_id text,
	name text,
	fence bigint,
	ttl interval)
	RETURNS @extschema@.idem_renew_lease_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_renew_lease';
COMMENT ON FUNCTION @extschema@.idem_renew_lease(text, text, bigint, interval) IS
'Lets a lease run for ttl from now, longer or shorter than before. It must still be held: the newest fence, not released, even past lease_until.
Outcomes: renewed; in_progress (another transaction is at it; nothing was written).
Errors: ID005 (released, or taken over), ID006 (no such lease), 22004, 22023 (ttl not above 0, or over 100 years).';

CREATE FUNCTION @extschema@.idem_release_lease(
	tenant_id text,
	name text,
	fence bigint)
	RETURNS @extschema@.idem_release_lease_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_release_lease';
COMMENT ON FUNCTION @extschema@.idem_release_lease(text, text, bigint) IS
'Gives a lease back before its time. Others can acquire it once the transaction is committed.
Outcomes: released; duplicate (this fence was released before, and nobody has acquired the lease since); in_progress (another transaction is at it or has asserted it; nothing was written).
Errors: ID005 (taken over), ID006 (no such lease), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_assert_lease(
	tenant_id text,
	name text,
	fence bigint)
	RETURNS void
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_assert_lease';
COMMENT ON FUNCTION @extschema@.idem_assert_lease(text, text, bigint) IS
'Returns if the lease is still held, newest fence and not released, even past lease_until; and from then on nobody takes it over or releases it before this transaction ends. To be called in the transaction that writes what the lease protects. Waits for a transaction that is taking the lease over or releasing it; cancel, statement_timeout and lock_timeout end that. Writes nothing.
Errors: ID005 (released, or taken over), ID006 (no such lease), 22004, 22023, 25006 (on a standby).';

REVOKE ALL ON FUNCTION
	@extschema@.idem_acquire_lease(text, text, text, interval, interval),
	@extschema@.idem_renew_lease(text, text, bigint, interval),
	@extschema@.idem_release_lease(text, text, bigint),
	@extschema@.idem_assert_lease(text, text, bigint)
	FROM PUBLIC;
