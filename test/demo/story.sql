\pset footer off
\pset linestyle ascii
\pset border 1
\set QUIET on

\echo
\echo '--- Who was told what ---'
\echo
SELECT asked || ', ' || said AS "call and answer", count(*) AS "times",
	CASE asked || ' ' || said
		WHEN 'create created' THEN 'the first call for an order: one payment'
		WHEN 'create replayed' THEN 'the same tab again: that payment'
		WHEN 'create existing' THEN 'another tab: that payment too'
		WHEN 'create in_progress' THEN 'the first call had not ended: ask again'
		WHEN 'confirm paid' THEN 'the order is paid by this'
		WHEN 'confirm duplicate' THEN 'told before: nothing happens'
		WHEN 'confirm surplus' THEN 'the order was paid already: goes back'
		WHEN 'confirm late' THEN 'the order was cancelled: goes back'
		WHEN 'confirm mismatch' THEN 'not the amount that was asked for: a human decides'
		WHEN 'confirm orphan' THEN 'for a payment that we do not know: kept'
	END AS "which means"
FROM answer GROUP BY 1, 3, asked, said ORDER BY asked DESC, count(*) DESC;

\echo '--- The payments ---'
\echo
SELECT count(*) AS payments, count(DISTINCT order_id) AS orders FROM idem_payment WHERE channel = 'alipay' \gset
SELECT count(DISTINCT payment_no) AS numbers FROM answer WHERE asked = 'create' AND payment_no IS NOT NULL \gset
\echo :payments 'payments for' :orders 'orders; the customers were given' :numbers 'different payment numbers.'
\echo

\echo '--- What became of the orders ---'
\echo
WITH sums AS (
	SELECT s.n, s.name, s.last - s.first + 1 AS orders,
		(SELECT string_agg(format('%s %s', c, status), ', ' ORDER BY status)
			FROM (SELECT p.status, count(*) AS c FROM attempt a JOIN idem_payment p ON p.tenant_id = 'shop' AND p.order_id = a.order_id
				WHERE a.scene = s.name GROUP BY 1) x) AS payments,
		(SELECT count(*) FROM callback c WHERE c.scene = s.name) AS callbacks,
		(SELECT string_agg(format('%s %s', c, disposition), ', ' ORDER BY disposition)
			FROM (SELECT r.disposition, count(*) AS c FROM attempt a JOIN idem_receipt r ON r.tenant_id = 'shop'
				AND (r.order_id = a.order_id OR r.order_id IS NULL AND r.reported_payment_no = 'typo-' || a.n)
				WHERE a.scene = s.name GROUP BY 1) x) AS receipts,
		(SELECT count(*) FROM attempt a JOIN idem_refund f ON f.tenant_id = 'shop' AND f.order_id = a.order_id WHERE a.scene = s.name) AS refunds
	FROM scene s)
SELECT name AS "orders that were", orders, callbacks, payments, coalesce(receipts, 'none') AS "money received as", refunds AS "refunds requested"
FROM sums ORDER BY n;

\echo '--- One order of each kind, row by row ---'
\set ON_ERROR_STOP on

SELECT a.order_id AS o, a.alipay_no, s.name FROM scene s JOIN attempt a ON a.n = s.first WHERE s.name = 'paid' \gset one_
SELECT count(*) FILTER (WHERE asked = 'create') AS creates, count(*) FILTER (WHERE asked = 'confirm') AS confirms FROM answer WHERE payment_no = :'one_alipay_no' \gset one_
\echo
\echo :one_o 'was created' :one_creates 'times and confirmed' :one_confirms 'times; it moved twice, and told the world twice:'
\echo
SELECT h.entity, coalesce(h.from_state, '(new)') || ' -> ' || h.to_state AS move, h.event, h.version, o.type AS "event in the outbox"
FROM idem_history h LEFT JOIN idem_outbox o ON o.id = h.event_id WHERE h.key = :'one_alipay_no' ORDER BY h.at;

SELECT a.order_id AS o, a.alipay_no, a.wechat_no FROM attempt a JOIN scene s ON s.name = a.scene AND a.n = s.first WHERE s.name = 'paid twice' \gset two_
\echo :two_o 'was closed at Alipay and paid through WeChat, and Alipay took the money all the same.'
\echo 'The first to arrive counts, the other goes back:'
\echo
SELECT p.channel, p.status AS payment, r.disposition AS money, r.amount, coalesce(f.status || ', ' || f.cause, '') AS refund, coalesce(f.amount, 0) AS "to go back"
FROM idem_payment p JOIN idem_receipt r USING (tenant_id, payment_no) LEFT JOIN idem_refund f USING (tenant_id, receipt_no)
WHERE p.order_id = :'two_o' ORDER BY r.created_at;

SELECT a.order_id AS o, a.alipay_no FROM attempt a JOIN scene s ON s.name = a.scene AND a.n = s.first WHERE s.name = 'cancelled' \gset late_
\echo :late_o 'was cancelled; its money came afterwards, is recorded and goes back:'
\echo
SELECT o.status AS "order", p.status AS payment, r.disposition AS money, r.amount, f.status || ', ' || f.cause AS refund, f.amount AS "to go back"
FROM idem_order o JOIN idem_payment p USING (tenant_id, order_id) JOIN idem_receipt r USING (tenant_id, payment_no) JOIN idem_refund f USING (tenant_id, receipt_no)
WHERE o.order_id = :'late_o';

SELECT a.order_id AS o, a.alipay_no FROM attempt a JOIN scene s ON s.name = a.scene AND a.n = s.first WHERE s.name = 'wrong amount' \gset odd_
\echo :odd_o 'got one cent too little. It is not paid, cannot be paid again meanwhile, and a human decides:'
\echo
SELECT p.status AS payment, p.amount AS asked, r.amount AS came, r.disposition AS money, an.kind AS anomaly, an.status
FROM idem_payment p JOIN idem_receipt r USING (tenant_id, payment_no) JOIN idem_anomaly an ON an.tenant_id = p.tenant_id AND an.entity = 'receipt' AND an.key = r.receipt_no
WHERE p.order_id = :'odd_o';

\echo 'And money came for a payment number that nobody knows. It is kept, once, until somebody does:'
\echo
SELECT r.reported_payment_no AS "reported number", r.amount, r.disposition AS money, an.kind AS anomaly, an.status, an.hits AS "times told"
FROM idem_receipt r JOIN idem_anomaly an ON an.tenant_id = r.tenant_id AND an.entity = 'receipt' AND an.key = r.receipt_no
WHERE r.disposition = 'orphan' ORDER BY 1 LIMIT 1;

\echo '--- The books ---'
\echo
SELECT
	(SELECT sum(amount) FROM (SELECT DISTINCT channel, trade_no, amount FROM callback) t) AS "the channels collected",
	sum(amount) AS "we received",
	sum(amount) FILTER (WHERE disposition = 'applied') AS "paid for orders",
	sum(refund_reserved) AS "going back",
	sum(amount) FILTER (WHERE disposition IN ('mismatch', 'orphan')) AS "waiting for a human"
FROM idem_receipt;

SELECT (SELECT count(*) FROM idem_history) AS "moves in history", (SELECT count(*) FROM idem_outbox) AS "events in the outbox",
	(SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()) AS "transactions rolled back";

\echo '--- idem_verify(): everything that contradicts the promise ---'
\echo
SELECT * FROM idem_verify();
