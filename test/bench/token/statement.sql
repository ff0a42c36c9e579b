\set n :n + 1
\set id :n * :clients - :client_id
DELETE FROM peer.token WHERE tenant_id = 'bench' AND token = (SELECT statement FROM peer.issued WHERE id = :id) RETURNING scope, expires_at > clock_timestamp();
