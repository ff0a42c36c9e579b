\set n :n + 1
SELECT outcome, quantity FROM idem_grant_entitlement('bench', 'c-' || :round || '-' || :client_id || '-' || :n, 'u-' || :round || '-' || :client_id || '-' || :n, 'vip-month', 1, campaign => 'spring');
