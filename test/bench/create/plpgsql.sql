\set n :n + 1
SELECT outcome, payment_no FROM peer.create_payment('bench', 'p-' || :round || '-' || :client_id || '-' || :n, 9900, 'CNY', 'p-' || :round || '-' || :client_id || '-' || :n);
