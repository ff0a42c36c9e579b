CREATE TABLE peer.heard (round text, ms float8 NOT NULL);

-- A consumer that waits, fetches and acknowledges; how old each event is by then.
CREATE PROCEDURE peer.hear(round text, seconds int) LANGUAGE plpgsql AS $$
DECLARE
	last bigint;
	until timestamptz := clock_timestamp() + make_interval(secs => seconds);
BEGIN
	WHILE clock_timestamp() < until LOOP
		CALL idem_wait_events('wake', '1 s');
		WITH f AS MATERIALIZED (SELECT batch, created_at FROM idem_fetch_events('wake', 'worker', 1000)),
		h AS (INSERT INTO peer.heard SELECT round, 1000 * extract(epoch FROM clock_timestamp() - created_at) FROM f)
		SELECT max(batch) INTO last FROM f;
		COMMIT;
		PERFORM idem_ack_events('wake', last) WHERE last IS NOT NULL;
		COMMIT;
	END LOOP;
END $$;

SELECT idem_subscribe('wake', types => '{thing.heard}');
