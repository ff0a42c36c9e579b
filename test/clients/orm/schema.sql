-- A shop's own orders, in four steps, guarded by a machine of idem.

CREATE EXTENSION idem;

CREATE TABLE shop_order (
	order_no text PRIMARY KEY,
	amount bigint NOT NULL CHECK (amount > 0),
	state text NOT NULL DEFAULT '待支付',
	version int NOT NULL DEFAULT 1
);

-- What is sent, once for each order: nothing but the order's move sees to that.
CREATE TABLE shop_parcel (
	parcel_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	order_no text NOT NULL REFERENCES shop_order
);

SELECT outcome FROM idem_define_machine('shop_order', '{
	"initial": ["待支付"],
	"final": ["已完成"],
	"moves": [
		{"event": "pay", "from": "待支付", "to": "已支付"},
		{"event": "ship", "from": "已支付", "to": "已发货"},
		{"event": "complete", "from": "已发货", "to": "已完成"}
	]}');
SELECT outcome FROM idem_attach_machine('shop_order', 'state', 'shop_order',
	version_column => 'version', frozen => '{amount}', forbid_delete => true);

CREATE ROLE shop LOGIN;
-- to call idem_move() at all; what it may do to the table are its own rights there
SELECT outcome FROM idem_allow('shop', 'client');
GRANT SELECT, INSERT, UPDATE, DELETE ON shop_order, shop_parcel TO shop;
