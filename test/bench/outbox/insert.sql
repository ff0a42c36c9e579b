\set key random(1, 100000)
INSERT INTO peer.event (tenant_id, aggregatetype, aggregateid, type, payload)
VALUES ('acme', 'thing', 'thing-' || :key, 'thing.made', '{"v": 1, "thing_no": "thing-00000001", "amount": 9900, "currency": "CNY"}');
