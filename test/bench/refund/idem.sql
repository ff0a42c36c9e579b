\set n :n + 1
\set i random(1, 20000)
SELECT outcome, remainder FROM idem_request_refund('refund', 'pay-' || :i, 'r-' || :round || '-' || :client_id || '-' || :n, 1, 'CNY', 'unwanted');
SELECT outcome, status FROM idem_settle_refund('refund', 'r-' || :round || '-' || :client_id || '-' || :n, 'succeeded', 'c-' || :round || '-' || :client_id || '-' || :n, 1);
