-- The same 300,000 events, 100 a transaction, in the log and in two queues of
-- PGQ, whose batches are as large as the distance of their ticks.  The log holds
-- events of other groups before them: "begun" says where these begin.
CREATE EXTENSION IF NOT EXISTS pgq;

CREATE PROCEDURE peer.fill_log() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3000 LOOP
		PERFORM idem_publish('acme', 'thing', 'thing-' || (100 * i + j) % 5000, 'thing.drained',
			'{"v": 1, "thing_no": "thing-00000001", "amount": 9900, "currency": "CNY"}') FROM generate_series(1, 100) AS j;
		COMMIT;
	END LOOP;
END $$;

CREATE PROCEDURE peer.fill_queue(queue text, distance int) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pgq.create_queue(queue);
	PERFORM pgq.set_queue_config(queue, 'ticker_max_count', '1');
	COMMIT;
	PERFORM pgq.ticker(queue);
	COMMIT;
	FOR i IN 1 .. 3000 LOOP
		PERFORM pgq.insert_event(queue, 'thing.drained',
			'{"v": 1, "thing_no": "thing-00000001", "amount": 9900, "currency": "CNY"}',
			'acme', 'thing', 'thing-' || (100 * i + j) % 5000, NULL) FROM generate_series(1, 100) AS j;
		COMMIT;
		IF i % (distance / 100) = 0 THEN
			PERFORM pgq.ticker(queue);
			COMMIT;
		END IF;
	END LOOP;
END $$;

-- A consumer that reads every event and counts it, a transaction a batch.
CREATE PROCEDURE peer.drain_log(subscription text, most int, INOUT events bigint) LANGUAGE plpgsql AS $$
DECLARE
	batch bigint;
	n bigint;
BEGIN
	LOOP
		SELECT max(f.batch), count(*) INTO batch, n FROM idem_fetch_events(subscription, 'worker', most) AS f;
		EXIT WHEN batch IS NULL;
		PERFORM idem_ack_events(subscription, batch);
		COMMIT;
		events := events + n;
	END LOOP;
END $$;

CREATE PROCEDURE peer.drain_queue(queue text, INOUT events bigint) LANGUAGE plpgsql AS $$
DECLARE
	batch bigint;
	last bigint;
	n bigint;
BEGIN
	LOOP
		batch := pgq.next_batch(queue, 'worker');
		EXIT WHEN batch IS NULL;
		SELECT max(ev_id), count(*) INTO last, n FROM pgq.get_batch_events(batch);
		PERFORM pgq.finish_batch(batch);
		COMMIT;
		events := events + n;
	END LOOP;
END $$;

CREATE TABLE peer.begun AS SELECT clock_timestamp() AS at;
CALL peer.fill_log();
CALL peer.fill_queue('drain_1000', 1000);
CALL peer.fill_queue('drain_10000', 10000);
SELECT idem_subscribe('drain_1', types => '{thing.drained}', slots => 1);
SELECT idem_subscribe('drain_16', types => '{thing.drained}', slots => 16);
