/*
 * campaign: how much may be granted in all, and to one user.
 *
 * Counters are updated by everybody who grants: fillfactor leaves room for the
 * next version on the same page, and no index holds a counter.
 */

CREATE TABLE @extschema@.idem_campaign (
	tenant_id @extschema@.idem_key_text NOT NULL,
	campaign @extschema@.idem_key_text NOT NULL,
	total @extschema@.idem_count,
	per_user @extschema@.idem_count,
	granted @extschema@.idem_count NOT NULL DEFAULT 0,
	ceiling bigint,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, campaign),
	CONSTRAINT idem_campaign_limit CHECK (granted <= ceiling)
) WITH (fillfactor = 50);
COMMENT ON TABLE @extschema@.idem_campaign IS
'Limits of what may be granted, in units: total in all, per_user to one user, NULL: no limit. granted is what was granted and not revoked; ceiling is total or, where that was set below what was granted already, what was granted then. Never deleted.';

CREATE TABLE @extschema@.idem_campaign_user (
	tenant_id @extschema@.idem_key_text NOT NULL,
	campaign @extschema@.idem_key_text NOT NULL,
	user_id @extschema@.idem_key_text NOT NULL,
	granted @extschema@.idem_count NOT NULL,
	ceiling bigint,
	PRIMARY KEY (tenant_id, campaign, user_id),
	CONSTRAINT idem_campaign_user_limit CHECK (granted <= ceiling)
) WITH (fillfactor = 90);
COMMENT ON TABLE @extschema@.idem_campaign_user IS
'What each user has of each campaign: units granted and not revoked. ceiling is the campaign''s per_user when something was last granted. Never deleted.';

CREATE TYPE @extschema@.idem_set_campaign_result AS (
	outcome text,
	granted bigint
);
COMMENT ON TYPE @extschema@.idem_set_campaign_result IS
'The row that idem_set_campaign returns. granted is how many units of the campaign are granted and not revoked.';

CREATE FUNCTION @extschema@.idem_set_campaign(
	tenant_id text,
	campaign text,
	total bigint,
	per_user bigint)
	RETURNS @extschema@.idem_set_campaign_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_set_campaign';
COMMENT ON FUNCTION @extschema@.idem_set_campaign(text, text, bigint, bigint) IS
'Sets how many units of a campaign may be granted in all and to one user; NULL: no limit, 0: none. What is revoked can be granted again. A limit may be set below what is granted already: that stays, and nothing is added.
Outcomes: created; updated; unchanged (these were its limits); in_progress (another transaction is at it; nothing was written).
Errors: 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_set_campaign(text, text, bigint, bigint)
	FROM PUBLIC;
