/*
 * entitlement: what a user may have, granted once and revoked with the money.
 */

CREATE DOMAIN @extschema@.idem_on_refund AS text COLLATE "C"
	CHECK (VALUE IN ('proportional', 'full', 'none'));
COMMENT ON DOMAIN @extschema@.idem_on_refund IS
'What a refund takes of an entitlement: its share, all of it, nothing.';

CREATE TABLE @extschema@.idem_entitlement (
	tenant_id @extschema@.idem_key_text NOT NULL,
	grant_key @extschema@.idem_key_text NOT NULL,
	user_id @extschema@.idem_key_text NOT NULL,
	benefit @extschema@.idem_key_text NOT NULL,
	quantity @extschema@.idem_quantity NOT NULL,
	withheld @extschema@.idem_count NOT NULL DEFAULT 0,
	revoked @extschema@.idem_count NOT NULL DEFAULT 0,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	payment_no text COLLATE "C",
	receipt_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	campaign text COLLATE "C",
	on_refund @extschema@.idem_on_refund NOT NULL,
	free boolean NOT NULL DEFAULT false,
	granted_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, grant_key),
	CONSTRAINT idem_entitlement_sums CHECK (withheld + revoked <= quantity)
);
CREATE INDEX idem_entitlement_receipt ON @extschema@.idem_entitlement (tenant_id, receipt_no)
	WHERE receipt_no IS NOT NULL;
COMMENT ON TABLE @extschema@.idem_entitlement IS
'What was granted, once per grant_key over all time. quantity is what was asked for, in units of the benefit; withheld what refunds had taken before the grant, revoked what was taken since; the rest stands. receipt_no is the money that paid for it, that of the payment''s purchase; NULL: free, or of a campaign alone. Never deleted.';

CREATE TABLE @extschema@.idem_revocation (
	tenant_id @extschema@.idem_key_text NOT NULL,
	grant_key @extschema@.idem_key_text NOT NULL,
	revoke_no @extschema@.idem_key_text NOT NULL,
	asked bigint,
	quantity @extschema@.idem_quantity NOT NULL,
	by_refund boolean NOT NULL,
	reason text,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, grant_key, revoke_no)
);
COMMENT ON TABLE @extschema@.idem_revocation IS
'What was taken back of an entitlement, once per revoke_no; a refund''s is its refund_no. asked is what a caller named, NULL: all that was left; quantity what was taken. Never deleted.';

CREATE TYPE @extschema@.idem_grant_entitlement_result AS (
	outcome text,
	quantity bigint,
	status text,
	remaining bigint,
	granted_at timestamptz,
	available bigint
);
COMMENT ON TYPE @extschema@.idem_grant_entitlement_result IS
'The row that idem_grant_entitlement returns. quantity is what to hand out now, and stands in granted alone; status, remaining and granted_at are those of the entitlement as it stands, NULL if there is none; available is what the campaign still has for the user, in limit_reached.';

CREATE TYPE @extschema@.idem_revoke_entitlement_result AS (
	outcome text,
	remaining bigint,
	status text
);
COMMENT ON TYPE @extschema@.idem_revoke_entitlement_result IS
'The row that idem_revoke_entitlement returns. remaining is what of the entitlement still stands, in units.';

CREATE FUNCTION @extschema@.idem_grant_entitlement(
	tenant_id text,
	grant_key text,
	user_id text,
	benefit text,
	quantity bigint DEFAULT 1,
	payment_no text DEFAULT NULL,
	campaign text DEFAULT NULL,
	on_refund text DEFAULT 'proportional',
	free boolean DEFAULT false)
	RETURNS @extschema@.idem_grant_entitlement_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_grant_entitlement';
COMMENT ON FUNCTION @extschema@.idem_grant_entitlement(text, text, text, text, bigint, text, text, text, boolean) IS
'Grants a user units of a benefit, once per grant_key over all time. With payment_no it is tied to the money that paid that payment''s purchase: what was refunded before is withheld, floor(quantity * refunded / paid), and later refunds revoke (on_refund proportional: their share; full: all; none: nothing). With campaign it counts against that campaign''s limits. Without payment_no it needs a campaign, or free => true.
Outcomes: granted (hand out quantity); duplicate (granted before, whatever became of it); not_allowed (the purchase is not paid, all of it was refunded, or on_refund is full and some was); limit_reached (the campaign has only available units left for the user; nothing is granted); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (the key was used for another user_id, benefit, quantity, payment_no, campaign, on_refund or free; DETAIL names the first in this order), ID006 (no such payment or campaign), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_revoke_entitlement(
	tenant_id text,
	grant_key text,
	revoke_no text,
	quantity bigint DEFAULT NULL,
	reason text DEFAULT NULL)
	RETURNS @extschema@.idem_revoke_entitlement_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_revoke_entitlement';
COMMENT ON FUNCTION @extschema@.idem_revoke_entitlement(text, text, text, bigint, text) IS
'Takes back units of an entitlement, once per revoke_no; quantity NULL: all that is left. A successful refund revokes by itself, under its refund_no.
Outcomes: revoked; duplicate (this revoke_no was used before, by hand or by a refund); refused (less than that is left); in_progress (another transaction is at it; nothing was written).
Errors: ID001 (the revoke_no was used for another quantity), ID006 (no such entitlement), 22004, 22023.';

CREATE FUNCTION @extschema@.idem_get_entitlement(tenant_id text, grant_key text)
	RETURNS SETOF @extschema@.idem_entitlement
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_get_entitlement';
COMMENT ON FUNCTION @extschema@.idem_get_entitlement(text, text) IS
'Shows what was granted under a key; no row if nothing was. What still stands is quantity - withheld - revoked. Writes nothing, permits nothing.
Errors: 22004, 22023.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_grant_entitlement(text, text, text, text, bigint, text, text, text, boolean),
	@extschema@.idem_revoke_entitlement(text, text, text, bigint, text),
	@extschema@.idem_get_entitlement(text, text)
	FROM PUBLIC;
