/*
 * refund: money that goes back, bound to one receipt.
 */

CREATE DOMAIN @extschema@.idem_refund_cause AS text COLLATE "C"
	CHECK (VALUE IN ('request', 'late', 'surplus', 'mismatch', 'orphan', 'cancel', 'channel'));
COMMENT ON DOMAIN @extschema@.idem_refund_cause IS
'What made a refund: request a caller, channel the channel''s console, orphan an operator, the others the extension by itself.';

CREATE TABLE @extschema@.idem_refund (
	tenant_id text COLLATE "C" NOT NULL,
	refund_no @extschema@.idem_key_text NOT NULL,
	receipt_no text COLLATE "C" NOT NULL,
	payment_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	channel text COLLATE "C" NOT NULL DEFAULT '',
	account text COLLATE "C" NOT NULL DEFAULT '',
	channel_refund_no text COLLATE "C",
	amount @extschema@.idem_money NOT NULL,
	currency text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	cause @extschema@.idem_refund_cause NOT NULL,
	held boolean NOT NULL DEFAULT false,
	reason text,
	created_at timestamptz NOT NULL,
	submitted_at timestamptz,
	next_check_at timestamptz,
	settled_at timestamptz,
	takes_back boolean NOT NULL DEFAULT false,
	PRIMARY KEY (tenant_id, refund_no)
);
CREATE UNIQUE INDEX idem_refund_channel ON @extschema@.idem_refund (tenant_id, channel, account, channel_refund_no);
CREATE INDEX idem_refund_receipt ON @extschema@.idem_refund (tenant_id, receipt_no);
COMMENT ON TABLE @extschema@.idem_refund IS
'Money that goes back. Each refund is bound to one receipt and reserves its amount there until it definitely failed. Automatic refunds are numbered A + receipt_no; cause says what made them. held: requested, but not to be sent before a human lets it go. Never deleted.';
