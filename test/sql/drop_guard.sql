-- Rows are not dropped by mistake.
\set SHOW_CONTEXT never
\set QUIET on
SET client_min_messages = warning;
CREATE ROLE regress_idem_bystander;
CREATE SCHEMA regress_idem_other AUTHORIZATION regress_idem_bystander;
CREATE TABLE regress_idem_other.precious AS SELECT 1 AS x;
SELECT current_user AS me, extnamespace::regnamespace AS house FROM pg_extension WHERE extname = 'idem' \gset

-- a scene of one order, whatever else the database holds
BEGIN;
INSERT INTO idem_order (tenant_id, order_id, status, amount, currency, created_at)
	VALUES ('guard', 'guard-1', 'pending', 100, 'CNY', now());
SAVEPOINT scene;
DROP EXTENSION idem;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO scene;
DROP EXTENSION IF EXISTS nonsense, idem CASCADE;
ROLLBACK TO scene;
DROP SCHEMA :house CASCADE;
ROLLBACK TO scene;
DROP SCHEMA regress_idem_other, :house CASCADE;
ROLLBACK TO scene;
DROP OWNED BY :"me" CASCADE;
ROLLBACK TO scene;
DROP OWNED BY regress_idem_bystander, CURRENT_USER CASCADE;
ROLLBACK TO scene;
-- as replication's appliers do
SET LOCAL session_replication_role = replica;
DROP EXTENSION idem;
ROLLBACK TO scene;

-- the schema's owner would take it with him
ALTER SCHEMA :house OWNER TO regress_idem_bystander;
DROP OWNED BY regress_idem_bystander CASCADE;
ROLLBACK TO scene;

-- bystanders drop what is theirs
DROP SCHEMA regress_idem_other CASCADE;
ROLLBACK TO scene;
DROP OWNED BY regress_idem_bystander CASCADE;
ROLLBACK TO scene;
DROP EXTENSION IF EXISTS nonsense;
DROP SCHEMA IF EXISTS nonsense;
DROP TABLE regress_idem_other.precious;
ROLLBACK TO scene;

-- who may not drop it learns nothing
SET LOCAL ROLE regress_idem_bystander;
DROP EXTENSION idem;
ROLLBACK TO scene;
SET LOCAL ROLE regress_idem_bystander;
DROP SCHEMA :house;
ROLLBACK TO scene;

-- on purpose
SET LOCAL idem.allow_drop = on;
DROP EXTENSION idem;
SELECT count(*) FROM pg_extension WHERE extname = 'idem';
ROLLBACK;

-- empty tables may go, and an extension that is half gone
BEGIN;
SET LOCAL idem.allow_drop = on;
DROP EXTENSION idem;
CREATE EXTENSION idem;
SET LOCAL idem.allow_drop = off;
SAVEPOINT scene;
DROP EXTENSION idem;
SELECT count(*) FROM pg_extension WHERE extname = 'idem';
ROLLBACK TO scene;
ALTER TABLE idem_order RENAME TO gone;
DROP INDEX idem_payment_active;
SAVEPOINT half;
DROP EXTENSION idem;
SELECT count(*) FROM pg_extension WHERE extname = 'idem';
ROLLBACK TO half;
INSERT INTO idem_payment_key (tenant_id, request_key, created_at) VALUES ('guard', 'guard-1', now());
DROP EXTENSION idem;
ROLLBACK;

-- nothing of this has happened
SELECT idem_next_no() IS NOT NULL AS works;

DROP SCHEMA regress_idem_other CASCADE;
DROP ROLE regress_idem_bystander;
