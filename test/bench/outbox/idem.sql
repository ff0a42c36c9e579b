\set key random(1, 100000)
SELECT idem_publish('acme', 'thing', 'thing-' || :key, 'thing.made', '{"v": 1, "thing_no": "thing-00000001", "amount": 9900, "currency": "CNY"}');
