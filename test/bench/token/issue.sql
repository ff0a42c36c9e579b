TRUNCATE peer.token, peer.issued;
INSERT INTO peer.issued SELECT i, idem_issue_token('bench', 'form', '1 hour'), replace(gen_random_uuid()::text, '-', '')
FROM generate_series(1, :tokens) i;
INSERT INTO peer.token SELECT 'bench', statement, 'form', clock_timestamp() + interval '1 hour' FROM peer.issued;
VACUUM ANALYZE peer.issued, peer.token;
CHECKPOINT;
