\set key random(1, 100000)
SELECT pgq.insert_event('append', 'thing.made', '{"v": 1, "thing_no": "thing-00000001", "amount": 9900, "currency": "CNY"}', 'acme', 'thing', 'thing-' || :key, NULL);
