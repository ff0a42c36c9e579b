-- One call of pgbench's: 64 connections, 50 calls for each of 1,000 orders, all
-- 64 at about the same order at the same time.  Customers have up to three tabs
-- open, each with a key of its own, and retry what they heard no answer to.
\set n :n + 1
\set call (:n - 1) * 64 + :client_id
\set shop_order :call / 50 + 1
\set tab :call % 3 + 1
\if :call < 50000
INSERT INTO answer (asked, said, payment_no) SELECT 'create', outcome, payment_no FROM idem_create_payment('shop', 'order-' || :shop_order, 9900, 'CNY', request_key => 'order-' || :shop_order || '-tab-' || :tab, channel => 'alipay');
\endif
