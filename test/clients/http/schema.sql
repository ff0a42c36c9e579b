-- The shop's own side: a role that may do what a shop does for tenant acme, and its tables.

CREATE EXTENSION idem;

CREATE ROLE shop LOGIN;
-- a statement that hangs must not outlive the lease of its request
ALTER ROLE shop SET statement_timeout = '20s';
SELECT idem_allow('shop', 'client', 'acme'), idem_allow('shop', 'channel', 'acme');

CREATE TABLE shop_item (
	tenant_id text NOT NULL,
	order_id text NOT NULL,
	item text NOT NULL,
	PRIMARY KEY (tenant_id, order_id)
);

CREATE TABLE shop_delivery (
	tenant_id text NOT NULL,
	payment_no text NOT NULL,
	order_id text NOT NULL,
	PRIMARY KEY (tenant_id, payment_no)
);

GRANT SELECT, INSERT ON shop_item, shop_delivery TO shop;
