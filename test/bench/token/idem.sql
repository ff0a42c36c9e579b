\set n :n + 1
\set id :n * :clients - :client_id
SELECT outcome FROM idem_consume_token('bench', 'form', (SELECT idem FROM peer.issued WHERE id = :id));
