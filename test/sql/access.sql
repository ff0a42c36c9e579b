-- Who may call what for which tenant.
\set SHOW_CONTEXT never
\set QUIET on
SET client_min_messages = warning;
SELECT current_user AS me \gset
CREATE ROLE regress_idem_shop;
CREATE ROLE regress_idem_group;
CREATE ROLE regress_idem_member IN ROLE regress_idem_group;
CREATE ROLE regress_idem_outsider NOINHERIT IN ROLE regress_idem_group;
CREATE ROLE "regress_idem; O'Brien ""x""";
CREATE ROLE regress_idem_admin;
GRANT :"me" TO regress_idem_admin;
RESET client_min_messages;

-- nobody may do anything at first
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_create_order('acme', 'access-1', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_next_no() IS NOT NULL;
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', 'client');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;

-- EXECUTE on idem_allow does not make an owner
BEGIN;
GRANT EXECUTE ON FUNCTION idem_allow, idem_disallow TO regress_idem_shop;
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_allow('regress_idem_shop', 'client');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- what was given for a tenant holds for that tenant
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', 'acme');
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', 'acme');
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_create_order('acme', 'access-1', 100, 'CNY');
SELECT outcome FROM idem_create_order('umbrella', 'access-1', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_create_order('*', 'access-1', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_ship_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_next_no() IS NOT NULL;
SELECT count(*) FROM idem_order;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;

-- * is every tenant, and what functions without one need
SELECT outcome FROM idem_allow(role => 'regress_idem_shop', capability => 'operator', tenant_id => 'acme');
SET ROLE regress_idem_shop;
SELECT count(*) FROM idem_verify() WHERE tenant_id = 'acme';
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_set_campaign('acme', 'access-1', 1, 1);
SELECT outcome FROM idem_set_campaign('umbrella', 'access-1', 1, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_remove_hook('order', 'paid');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_shop', 'operator');
SELECT outcome FROM idem_allow('regress_idem_shop', 'client');
SET ROLE regress_idem_shop;
SELECT count(*) FROM idem_verify() WHERE tenant_id = 'acme';
SELECT outcome FROM idem_create_order('umbrella', 'access-1', 100, 'CNY');
RESET ROLE;

-- a client cancels what is not paid; a paid order takes a cashier
SELECT outcome, status FROM idem_create_order('acme', 'access-2', 0, 'CNY');
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_cancel_order('acme', 'access-1');
SELECT outcome FROM idem_cancel_order('acme', 'access-2');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_shop', 'cashier', 'acme');
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_cancel_order('acme', 'access-2');
RESET ROLE;

-- taking one away leaves what the others need
SELECT outcome FROM idem_disallow('regress_idem_shop', 'client');
SELECT outcome FROM idem_disallow('regress_idem_shop', 'client');
SELECT outcome FROM idem_disallow('regress_idem_shop', 'client', 'acme');
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_create_order('acme', 'access-1', 100, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_cancel_order('acme', 'access-2');
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_idem_shop', 'cashier', 'acme');
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_cancel_order('acme', 'access-2');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_idem_shop', 'operator');
SELECT outcome FROM idem_disallow('regress_idem_shop', 'operator', 'acme');
SELECT has_function_privilege('regress_idem_shop', 'idem_next_no()', 'EXECUTE');

-- an inherited right counts, one that is not inherited does not
SELECT outcome FROM idem_allow('regress_idem_group', 'auditor', 'acme');
SET ROLE regress_idem_member;
SELECT status FROM idem_get_order('acme', 'access-1');
RESET ROLE;
SET ROLE regress_idem_outsider;
SELECT status FROM idem_get_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_get_order TO regress_idem_outsider;
SET ROLE regress_idem_outsider;
SELECT status FROM idem_get_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
REVOKE EXECUTE ON FUNCTION idem_get_order FROM regress_idem_outsider;

-- members of the owner pass without a row
SET ROLE regress_idem_admin;
SELECT status FROM idem_get_order('acme', 'access-1');
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'acme');
RESET ROLE;

-- whatever undoes the row undoes the right, at once
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
RESET ROLE;
BEGIN;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'umbrella');
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
ROLLBACK;
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
RESET ROLE;
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'umbrella');
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
ROLLBACK TO s;
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
ROLLBACK;
BEGIN;
UPDATE idem_access SET tenant_id = 'umbrella' WHERE role = 'regress_idem_shop';
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
SELECT status FROM idem_get_order('acme', 'access-1');
ROLLBACK;
BEGIN;
TRUNCATE idem_access;
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
ROLLBACK;
BEGIN;
SET LOCAL session_replication_role = replica;
DELETE FROM idem_access WHERE role = 'regress_idem_shop';
SET LOCAL ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
ROLLBACK;
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
RESET ROLE;

-- a role that was renamed has its EXECUTE, but no row
ALTER ROLE regress_idem_shop RENAME TO regress_idem_store;
SET ROLE regress_idem_store;
SELECT status FROM idem_get_order('acme', 'access-1');
RESET ROLE;
ALTER ROLE regress_idem_store RENAME TO regress_idem_shop;

-- a dropped role's rights go to no namesake, not even with the first new one
SELECT outcome FROM idem_allow('regress_idem_shop', 'client');
DROP OWNED BY regress_idem_shop;
DROP ROLE regress_idem_shop;
CREATE ROLE regress_idem_shop;
SELECT capability, tenant_id FROM idem_access WHERE role = 'regress_idem_shop' ORDER BY 1, 2;
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
-- ... nor with EXECUTE that he has from a group
GRANT regress_idem_group TO regress_idem_shop;
UPDATE idem_access SET tenant_id = 'umbrella' WHERE role = 'regress_idem_group';
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('umbrella', 'access-1');
SELECT status FROM idem_get_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
REVOKE regress_idem_group FROM regress_idem_shop;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'umbrella');
SELECT capability, tenant_id FROM idem_access WHERE role = 'regress_idem_shop' ORDER BY 1, 2;
SET ROLE regress_idem_shop;
SELECT status FROM idem_get_order('acme', 'access-1');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;

-- a row that lost its EXECUTE gets it back
REVOKE EXECUTE ON FUNCTION idem_get_order FROM regress_idem_shop;
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'umbrella');
SELECT outcome FROM idem_allow('regress_idem_shop', 'auditor', 'umbrella');

-- names that need quoting
SELECT outcome FROM idem_allow('"regress_idem; O''Brien ""x"""', 'fulfil', 'a "tenant''s" name');
SET ROLE "regress_idem; O'Brien ""x""";
SELECT outcome FROM idem_ship_order('a "tenant''s" name', 'none');
SELECT outcome FROM idem_grant_entitlement('a "tenant''s" name', 'access-1', 'u', 'x', free => true);
SELECT outcome FROM idem_revoke_entitlement('a "tenant''s" name', 'access-1', 'r');
SELECT outcome FROM idem_grant_entitlement('acme', 'access-1', 'u', 'x', free => true);
SELECT outcome FROM idem_set_campaign('a "tenant''s" name', 'access-1', 1, 1);
SELECT outcome FROM idem_ship_order('acme', 'access-1');
RESET ROLE;
SELECT outcome FROM idem_disallow('"regress_idem; O''Brien ""x"""', 'fulfil', 'a "tenant''s" name');

-- a function of somebody else in our schema is not granted with ours
CREATE FUNCTION idem_ship_order(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
REVOKE EXECUTE ON FUNCTION idem_ship_order(text) FROM PUBLIC;
SELECT outcome FROM idem_allow('regress_idem_shop', 'fulfil', 'acme');
SELECT has_function_privilege('regress_idem_shop', 'idem_ship_order(text)', 'EXECUTE') AS theirs,
	has_function_privilege('regress_idem_shop', 'idem_ship_order(pg_catalog.text, pg_catalog.text)', 'EXECUTE') AS ours;
DROP FUNCTION idem_ship_order(text);

-- nonsense
SELECT outcome FROM idem_allow('regress_idem_shop', 'king');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_disallow('regress_idem_shop', 'king');
SELECT outcome FROM idem_allow('-', 'client');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('public', 'client');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow(NULL, 'client');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', '');
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', repeat('x', 256));
\echo :LAST_ERROR_SQLSTATE
SELECT outcome FROM idem_allow('regress_idem_shop', 'client', repeat('x', 255));

-- the longest tenant is no prefix of another
SET ROLE regress_idem_shop;
SELECT outcome FROM idem_create_order(repeat('x', 255), 'access-1', 100, 'CNY');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_create_order(repeat('x', 254), 'access-1', 100, 'CNY');
\set VERBOSITY default
RESET ROLE;

-- every capability can be given and taken back, procedures and views included
SELECT c.capability, a.outcome AS allowed, b.outcome AS again FROM (SELECT DISTINCT capability FROM idem_capability) c,
	idem_allow('regress_idem_outsider', c.capability) a, idem_allow('regress_idem_outsider', c.capability) b ORDER BY 1;
SELECT has_function_privilege('regress_idem_outsider', (SELECT oid FROM pg_proc WHERE proname = 'idem_wait_events'), 'EXECUTE') AS may_wait,
	has_table_privilege('regress_idem_outsider', 'idem_outbox_lag', 'SELECT') AS may_see;
SELECT c.capability, a.outcome FROM (SELECT DISTINCT capability FROM idem_capability) c,
	idem_disallow('regress_idem_outsider', c.capability) a ORDER BY 1;
SELECT has_function_privilege('regress_idem_outsider', (SELECT oid FROM pg_proc WHERE proname = 'idem_wait_events'), 'EXECUTE') AS may_wait,
	has_table_privilege('regress_idem_outsider', 'idem_outbox_lag', 'SELECT') AS may_see;

-- one tenant's webhook hears for its tenant; one for all tenants needs them all, and so do words for all
SELECT outcome FROM idem_allow('regress_idem_group', 'channel', 'acme');
SELECT outcome FROM idem_allow('regress_idem_group', 'operator', 'acme');
SET ROLE regress_idem_member;
SELECT outcome FROM idem_receive_notification('acme', 'alipay', 'access', 'access-n', 'T', 'WAIT_BUYER_PAY', 1, 'CNY');
SELECT outcome FROM idem_set_channel_account('acme', 'access', 'a1');
SELECT outcome FROM idem_remove_channel_account('acme', 'access', 'a1');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_receive_notification('umbrella', 'alipay', 'access', 'access-n', 'T', 'WAIT_BUYER_PAY', 1, 'CNY');
SELECT outcome FROM idem_receive_notification('unrouted', 'alipay', 'access', 'access-n', 'T', 'WAIT_BUYER_PAY', 1, 'CNY');
SELECT outcome FROM idem_alipay_notification('{}');
SELECT outcome FROM idem_wechat_notification('{}');
SELECT outcome FROM idem_stripe_event('{}');
SELECT idem_tenant_of('alipay', 'a1', 'access-n');
SELECT outcome FROM idem_set_channel_account('umbrella', 'access', 'a1');
SELECT outcome FROM idem_remove_channel_account('umbrella', 'access', 'a1');
SELECT outcome FROM idem_set_channel_event('access', 'x', false, 'none');
SELECT outcome FROM idem_reroute_notification('alipay', 'a1', 'access', 'acme');
SELECT outcome FROM idem_resolve_anomaly('umbrella', '1', 'x', 'y');
\set VERBOSITY default
RESET ROLE;
SELECT outcome FROM idem_allow('regress_idem_group', 'channel');
SET ROLE regress_idem_member;
SELECT outcome, ack, tenant_id FROM idem_alipay_notification('{"notify_id": "access", "trade_status": "WAIT_BUYER_PAY"}');
SELECT outcome FROM idem_set_channel_event('access', 'x', false, 'none');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT outcome FROM idem_disallow('regress_idem_group', 'channel');
SELECT outcome FROM idem_disallow('regress_idem_group', 'channel', 'acme');
SELECT outcome FROM idem_disallow('regress_idem_group', 'operator', 'acme');

-- in a schema that is closed to the role, it gets USAGE too, and keeps it
BEGIN;
SET LOCAL idem.allow_drop = on;
DROP EXTENSION idem;
CREATE SCHEMA "regress idem House";
CREATE EXTENSION idem SCHEMA "regress idem House";
SELECT outcome FROM "regress idem House".idem_allow('regress_idem_shop', 'client', 'acme');
SELECT outcome FROM "regress idem House".idem_allow('regress_idem_shop', 'client', 'acme');
SET LOCAL ROLE regress_idem_shop;
SELECT outcome FROM "regress idem House".idem_create_order('acme', 'access-1', 100, 'CNY');
RESET ROLE;
SELECT outcome FROM "regress idem House".idem_disallow('regress_idem_shop', 'client', 'acme');
SELECT has_schema_privilege('regress_idem_shop', 'regress idem House', 'USAGE');
ALTER SCHEMA "regress idem House" RENAME TO regress_idem_house;
SELECT outcome FROM regress_idem_house.idem_create_order('acme', 'access-1', 100, 'CNY');
ROLLBACK;
SELECT outcome FROM idem_create_order('acme', 'access-2', 0, 'CNY');

DELETE FROM idem_access WHERE role LIKE 'regress%';
DROP OWNED BY regress_idem_shop, regress_idem_group, regress_idem_member, regress_idem_outsider,
	"regress_idem; O'Brien ""x""";
DROP ROLE regress_idem_shop, regress_idem_group, regress_idem_member, regress_idem_outsider,
	"regress_idem; O'Brien ""x""";
REVOKE :"me" FROM regress_idem_admin;
DROP ROLE regress_idem_admin;
