-- What customers and shop did before the money came, order by order, and what
-- the channels then have to tell.
CREATE UNLOGGED TABLE callback (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	scene text, payment_no text, channel text, trade_no text, amount bigint);

CREATE UNLOGGED TABLE scene (n int PRIMARY KEY, name text, first int, last int);
INSERT INTO scene VALUES
	(1, 'paid', 1, 900),
	(2, 'paid twice', 901, 940),
	(3, 'cancelled', 941, 970),
	(4, 'wrong amount', 971, 985),
	(5, 'wrong number', 986, 990),
	(6, 'not paid', 991, 1000);

CREATE UNLOGGED TABLE attempt AS
SELECT s.name AS scene, i AS n, 'order-' || i AS order_id, p.payment_no AS alipay_no, NULL::text AS wechat_no
FROM scene s CROSS JOIN LATERAL generate_series(first, last) i
JOIN idem_payment p ON p.tenant_id = 'shop' AND p.order_id = 'order-' || i;

-- everybody is sent to Alipay
SELECT count((idem_submit_payment('shop', alipay_no, 'alipay')).outcome) FROM attempt;

-- some then prefer WeChat: the first attempt is closed, a second begins
SELECT count((idem_begin_close('shop', alipay_no, 'the customer prefers WeChat')).outcome) FROM attempt WHERE scene = 'paid twice';
SELECT count((idem_finish_close('shop', alipay_no, 'closed')).outcome) FROM attempt WHERE scene = 'paid twice';
UPDATE attempt SET wechat_no = (SELECT payment_no FROM idem_create_payment('shop', order_id, 9900, 'CNY', request_key => order_id || '-wechat', channel => 'wechat'))
WHERE scene = 'paid twice';
SELECT count((idem_submit_payment('shop', wechat_no, 'wechat')).outcome) FROM attempt WHERE scene = 'paid twice';

-- some cancel
SELECT count((idem_cancel_order('shop', order_id, 'the customer cancelled')).outcome) FROM attempt WHERE scene = 'cancelled';

-- The channels tell each payment three times, in any order.
INSERT INTO callback (scene, payment_no, channel, trade_no, amount)
SELECT scene, payment_no, channel, trade_no, amount FROM (
	SELECT scene, alipay_no, 'alipay', '2026' || n, CASE WHEN scene = 'wrong amount' THEN 9899 ELSE 9900 END
		FROM attempt WHERE scene IN ('paid', 'paid twice', 'cancelled', 'wrong amount')
	UNION ALL SELECT scene, wechat_no, 'wechat', '4200' || n, 9900 FROM attempt WHERE scene = 'paid twice'
	UNION ALL SELECT scene, 'typo-' || n, 'alipay', '2026' || n, 9900 FROM attempt WHERE scene = 'wrong number'
) AS told (scene, payment_no, channel, trade_no, amount), generate_series(1, 3)
ORDER BY random();

SELECT count(*) AS callbacks FROM callback \gset
\o
\echo :callbacks
