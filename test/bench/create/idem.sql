\set n :n + 1
SELECT outcome, payment_no FROM idem_create_payment('bench', 'o-' || :round || '-' || :client_id || '-' || :n, 9900, 'CNY', 'k-' || :round || '-' || :client_id || '-' || :n);
