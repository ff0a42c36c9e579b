--
-- campaign: how much may be granted in all, and to one user.
--
\set SHOW_CONTEXT never

-- Limits are set, changed, and the same again.
SELECT * FROM idem_set_campaign('campaign', 'spring', 5, 2);
SELECT * FROM idem_set_campaign('campaign', 'spring', 5, 2);
SELECT * FROM idem_set_campaign('campaign', 'spring', 6, 2);
SELECT * FROM idem_set_campaign('campaign', 'spring', 6, 3);
SELECT * FROM idem_set_campaign('campaign', 'open', NULL, NULL);
SELECT * FROM idem_set_campaign('campaign', 'open', NULL, NULL);
SELECT * FROM idem_set_campaign('campaign2', 'spring', 1, 1);

-- One user has no more than three, all together no more than six.
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's1', 'ann', 'coupon', 2, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's2', 'ann', 'coupon', 2, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's3', 'ann', 'coupon', campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's4', 'ann', 'coupon', campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's5', 'bob', 'coupon', 2, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's6', 'eve', 'coupon', 2, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's7', 'eve', 'coupon', 1, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's8', 'dan', 'coupon', 1, campaign => 'spring');
-- A repetition is a repetition, exhausted or not.
SELECT outcome, quantity, status, remaining, available FROM idem_grant_entitlement('campaign', 's7', 'eve', 'coupon', 1, campaign => 'spring');
-- Another tenant's campaign of that name is another campaign.
SELECT outcome, quantity FROM idem_grant_entitlement('campaign2', 's1', 'ann', 'coupon', campaign => 'spring');
-- Without limits everything is granted, as far as it goes.
SELECT outcome, quantity FROM idem_grant_entitlement('campaign', 'o1', 'ann', 'points', 9223372036854775807, campaign => 'open');
SELECT outcome, available FROM idem_grant_entitlement('campaign', 'o2', 'bob', 'points', campaign => 'open');
SELECT campaign, total, per_user, granted, ceiling FROM idem_campaign WHERE tenant_id = 'campaign' ORDER BY 1;
SELECT campaign, user_id, granted, ceiling FROM idem_campaign_user WHERE tenant_id = 'campaign' ORDER BY 1, 2;

-- What is revoked can be granted again, to whomever.
SELECT outcome, remaining, status FROM idem_revoke_entitlement('campaign', 's1', 'r1', 1);
SELECT outcome, quantity FROM idem_grant_entitlement('campaign', 's8', 'dan', 'coupon', 1, campaign => 'spring');
SELECT outcome, quantity, available FROM idem_grant_entitlement('campaign', 's9', 'dan', 'coupon', 1, campaign => 'spring');
SELECT * FROM idem_set_campaign('campaign', 'spring', 6, 3);

-- A limit below what is granted stops the campaign; what was granted stays.
SELECT * FROM idem_set_campaign('campaign', 'spring', 2, 0);
SELECT outcome, available FROM idem_grant_entitlement('campaign', 's9', 'fay', 'coupon', campaign => 'spring');
SELECT outcome, remaining FROM idem_revoke_entitlement('campaign', 's5', 'r1');
SELECT outcome, available FROM idem_grant_entitlement('campaign', 's9', 'fay', 'coupon', campaign => 'spring');
SELECT total, per_user, granted, ceiling FROM idem_campaign WHERE tenant_id = 'campaign' AND campaign = 'spring';
-- No limit, and limits again.
SELECT * FROM idem_set_campaign('campaign', 'spring', NULL, NULL);
SELECT outcome FROM idem_grant_entitlement('campaign', 's9', 'fay', 'coupon', 10, campaign => 'spring');
SELECT * FROM idem_set_campaign('campaign', 'spring', 15, 11);
SELECT outcome, available FROM idem_grant_entitlement('campaign', 's10', 'fay', 'coupon', 2, campaign => 'spring');
SELECT outcome, available FROM idem_grant_entitlement('campaign', 's10', 'fay', 'coupon', 1, campaign => 'spring');
SELECT total, per_user, granted, ceiling FROM idem_campaign WHERE tenant_id = 'campaign' AND campaign = 'spring';
SELECT * FROM idem_set_campaign('campaign', 'none', 0, NULL);
SELECT outcome, available FROM idem_grant_entitlement('campaign', 'n1', 'fay', 'coupon', campaign => 'none');

-- Money and a campaign: both must allow it, and money is asked first.
SELECT outcome FROM idem_create_payment('campaign', 'o', 100, 'CNY', payment_no => 'campaign-pay');
SELECT outcome FROM idem_grant_entitlement('campaign', 'm1', 'ann', 'coupon', payment_no => 'campaign-pay', campaign => 'none');
SELECT outcome FROM idem_confirm_payment('campaign', 'campaign-pay', 'alipay', 'campaign-1', 100, 'CNY');
SELECT outcome, available FROM idem_grant_entitlement('campaign', 'm1', 'ann', 'coupon', payment_no => 'campaign-pay', campaign => 'none');
SELECT outcome FROM idem_set_campaign('campaign', 'none', 1, NULL);
SELECT outcome, quantity FROM idem_grant_entitlement('campaign', 'm1', 'ann', 'coupon', payment_no => 'campaign-pay', campaign => 'none');

-- Several in one statement, and in one that is rolled back.
SELECT outcome FROM idem_set_campaign('campaign', 'row', 3, 2);
SELECT n, outcome, available FROM generate_series(1, 5) n, idem_grant_entitlement('campaign', 'row' || n, 'u' || n % 2, 'coupon', campaign => 'row');
BEGIN;
SELECT outcome FROM idem_revoke_entitlement('campaign', 'row1', 'r');
SELECT outcome FROM idem_grant_entitlement('campaign', 'row4', 'u0', 'coupon', campaign => 'row');
SAVEPOINT s;
SELECT outcome FROM idem_revoke_entitlement('campaign', 'row2', 'r');
ROLLBACK TO s;
SELECT outcome, available FROM idem_grant_entitlement('campaign', 'row5', 'u1', 'coupon', campaign => 'row');
ROLLBACK;
SELECT granted FROM idem_campaign WHERE tenant_id = 'campaign' AND campaign = 'row';
SELECT user_id, granted FROM idem_campaign_user WHERE tenant_id = 'campaign' AND campaign = 'row' ORDER BY 1;

-- Unchanged writes nothing, and whoever is refused neither.
BEGIN;
SELECT outcome FROM idem_set_campaign('campaign', 'row', 3, 2);
SELECT outcome FROM idem_grant_entitlement('campaign', 'row4', 'u0', 'coupon', campaign => 'row');
SELECT outcome FROM idem_grant_entitlement('campaign', 'row1', 'u1', 'coupon', campaign => 'row');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
COMMIT;

--
-- Nonsense
--
SELECT outcome FROM idem_grant_entitlement('campaign', 'x', 'ann', 'coupon', campaign => 'nowhere');
SELECT idem_set_campaign('campaign', 'spring', -1, 1);
\set VERBOSITY sqlstate
SELECT idem_set_campaign(NULL, 'spring', 1, 1);
SELECT idem_set_campaign('', 'spring', 1, 1);
SELECT idem_set_campaign('campaign', NULL, 1, 1);
SELECT idem_set_campaign('campaign', '', 1, 1);
SELECT idem_set_campaign('campaign', repeat('x', 256), 1, 1);
SELECT idem_set_campaign('campaign', 'spring', 1, -1);
\set VERBOSITY default

-- The counters keep their limits, whoever writes them.
\set VERBOSITY terse
UPDATE idem_campaign SET granted = 4 WHERE tenant_id = 'campaign' AND campaign = 'row';
UPDATE idem_campaign SET granted = -1 WHERE tenant_id = 'campaign' AND campaign = 'row';
UPDATE idem_campaign_user SET granted = 3 WHERE tenant_id = 'campaign' AND campaign = 'row' AND user_id = 'u0';
\set VERBOSITY default
UPDATE idem_campaign SET campaign = 'other' WHERE tenant_id = 'campaign' AND campaign = 'row';
UPDATE idem_campaign_user SET user_id = 'other' WHERE tenant_id = 'campaign' AND campaign = 'row' AND user_id = 'u0';
DELETE FROM idem_campaign WHERE tenant_id = 'campaign' AND campaign = 'row';
DELETE FROM idem_campaign_user WHERE tenant_id = 'campaign' AND campaign = 'row' AND user_id = 'u0';

SELECT * FROM idem_verify() WHERE tenant_id LIKE 'campaign%' OR entity IN ('table', 'index');
