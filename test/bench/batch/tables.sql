-- Batches of 1,000 requests, made beforehand; each call takes one, for a tenant
-- of its own.
CREATE TABLE peer.batch AS
SELECT b AS id, (SELECT jsonb_agg(jsonb_build_object('order_id', format('b-%s-%s', b, i), 'amount', 9900, 'currency', 'CNY',
	'request_key', format('b-%s-%s', b, i))) FROM generate_series(1, 1000) i) AS requests
FROM generate_series(1, 20) b;
ALTER TABLE peer.batch ADD PRIMARY KEY (id);
