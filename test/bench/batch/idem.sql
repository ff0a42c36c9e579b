\set n :n + 1
SELECT count(payment_no) FROM idem_create_payments('batch-' || :round || '-' || :client_id || '-' || :n, (SELECT requests FROM peer.batch WHERE id = :n % 20 + 1));
