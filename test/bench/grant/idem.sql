\set n :n + 1
SELECT outcome, quantity FROM idem_grant_entitlement('bench', 'g-' || :round || '-' || :client_id || '-' || :n, 'u-' || :client_id || '-' || :n, 'vip-month', 1, free => true);
