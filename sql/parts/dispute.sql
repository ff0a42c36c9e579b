/*
 * dispute: money that a bank takes back.
 */

CREATE TABLE @extschema@.idem_dispute (
	tenant_id text COLLATE "C" NOT NULL,
	channel text COLLATE "C" NOT NULL,
	account text COLLATE "C" NOT NULL,
	dispute_no text COLLATE "C" NOT NULL,
	trade_no text COLLATE "C" NOT NULL,
	receipt_no text COLLATE "C",
	payment_no text COLLATE "C",
	order_id text COLLATE "C",
	purchase_no integer,
	stage text COLLATE "C" NOT NULL,
	version integer NOT NULL DEFAULT 1,
	amount @extschema@.idem_money NOT NULL,
	currency text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL,
	occurred_at timestamptz,
	PRIMARY KEY (tenant_id, channel, account, dispute_no)
);
CREATE INDEX idem_dispute_receipt ON @extschema@.idem_dispute (tenant_id, receipt_no);
COMMENT ON TABLE @extschema@.idem_dispute IS
'Money that a bank takes back, or threatens to. While the stage is opened or lost, amount (minor units) counts in the receipt''s disputed and cannot be refunded; won gives it free. receipt_no is NULL as long as the trade is unknown. occurred_at is when the channel says that the stage was reached. Never deleted.';
