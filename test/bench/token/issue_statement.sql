INSERT INTO peer.token VALUES ('bench', replace(gen_random_uuid()::text, '-', ''), 'form', clock_timestamp() + interval '5 minutes') RETURNING token \gset
DELETE FROM peer.token WHERE tenant_id = 'bench' AND token = :token RETURNING scope, expires_at > clock_timestamp();
