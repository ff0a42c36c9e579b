--
-- anomaly: what fits nothing waits for a human, once a thing.
--
\set SHOW_CONTEXT never
CREATE TEMP VIEW books AS
	SELECT kind, entity, key, status, version, hits, order_id, resolution, reason, resolved_by = session_user AS by_me, resolved_actor, resolved_at >= opened_at AS in_time
	FROM idem_anomaly WHERE tenant_id = 'anomaly' ORDER BY anomaly_no;

-- The same again counts; another thing, or another kind, is another one.
SELECT outcome FROM idem_fail_payment('anomaly', 'unknown_1');
SELECT outcome FROM idem_fail_payment('anomaly', 'unknown_1');
SELECT outcome FROM idem_fail_payment('anomaly', 'unknown_2');
SELECT * FROM books;
SELECT type, payload->>'kind' AS kind, payload->>'key' AS key FROM idem_outbox WHERE tenant_id = 'anomaly' ORDER BY type, payload->>'key';

-- Resolved: by whom, how, why.
SELECT anomaly_no AS first FROM idem_anomaly WHERE tenant_id = 'anomaly' AND key = 'unknown_1' \gset
SET idem.actor = 'Ms. Li';
SELECT outcome, resolution, reason, resolved_by = session_user AS by_me, resolved_at IS NOT NULL AS at FROM idem_resolve_anomaly('anomaly', :'first', 'not ours', 'a test of the channel''s');
RESET idem.actor;
SELECT outcome, resolution, reason, resolved_by = session_user AS by_me FROM idem_resolve_anomaly('anomaly', :'first', 'ours', 'I know better');
SELECT * FROM books;
SELECT from_state, to_state, event, reason, actor FROM idem_history WHERE tenant_id = 'anomaly' AND key = :'first' ORDER BY version;
SELECT type FROM idem_outbox WHERE tenant_id = 'anomaly' AND payload->>'key' = 'unknown_1' ORDER BY type;

-- What comes again is not over: a new one.
SELECT outcome FROM idem_fail_payment('anomaly', 'unknown_1');
SELECT * FROM books;

-- Errors.
\set VERBOSITY sqlstate
SELECT * FROM idem_resolve_anomaly('anomaly', 'no such number', 'x', 'y');
SELECT * FROM idem_resolve_anomaly('anomaly_2', :'first', 'x', 'y');
SELECT * FROM idem_resolve_anomaly('', :'first', 'x', 'y');
SELECT * FROM idem_resolve_anomaly(NULL, :'first', 'x', 'y');
SELECT * FROM idem_resolve_anomaly('anomaly', '', 'x', 'y');
SELECT * FROM idem_resolve_anomaly('anomaly', NULL, 'x', 'y');
SELECT * FROM idem_resolve_anomaly('anomaly', :'first', '', 'y');
SELECT * FROM idem_resolve_anomaly('anomaly', :'first', NULL, 'y');
SELECT * FROM idem_resolve_anomaly('anomaly', :'first', 'x', '');
SELECT * FROM idem_resolve_anomaly('anomaly', :'first', 'x', NULL);
\set VERBOSITY default
SELECT * FROM idem_resolve_anomaly('anomaly', 'no such number', 'x', 'y');

-- Kinds are those of the list, and what was noted stays.
\set VERBOSITY sqlstate
INSERT INTO idem_anomaly (tenant_id, anomaly_no, kind, entity, key, status, opened_at, last_hit_at) VALUES ('anomaly', '1', 'odd', 'x', 'y', 'opened', now(), now());
UPDATE idem_anomaly SET status = 'opened' WHERE tenant_id = 'anomaly' AND anomaly_no = :'first';
UPDATE idem_anomaly SET resolution = 'other' WHERE tenant_id = 'anomaly' AND anomaly_no = :'first';
UPDATE idem_anomaly SET kind = 'late' WHERE tenant_id = 'anomaly' AND anomaly_no = :'first';
DELETE FROM idem_anomaly WHERE tenant_id = 'anomaly';

SELECT * FROM idem_verify() WHERE tenant_id = 'anomaly' OR tenant_id IS NULL;
