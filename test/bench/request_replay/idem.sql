\set i random(1, :payments)
SELECT * FROM idem_begin_request('bench', 'done', 'done-' || :i, '{"order_id": "o-12345678", "amount": 9900, "currency": "CNY", "channel": "alipay"}');
