-- What the extension's objects look like to the outside: each query returns
-- what breaks a house rule.
CREATE TEMP VIEW member AS
	SELECT d.classid, d.objid
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'idem'
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e';
CREATE TEMP VIEW member_function AS
	SELECT p.*, p.prorettype IN ('trigger'::regtype, 'event_trigger'::regtype) AS is_trigger
	FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;
CREATE TEMP VIEW member_relation AS
	SELECT c.* FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid;

-- PUBLIC may execute nothing
SELECT oid::regprocedure FROM member_function WHERE has_function_privilege('public', oid, 'EXECUTE');

-- nor read or write anything, not even a column
SELECT oid::regclass, a.privilege_type FROM member_relation, aclexplode(relacl) a WHERE a.grantee = 0;
SELECT oid::regclass FROM member_relation
	WHERE relkind <> 'c' AND has_any_column_privilege('public', oid, 'SELECT, INSERT, UPDATE, REFERENCES');

-- nobody but the owner has anything from the script
SELECT oid::regprocedure FROM member_function, aclexplode(proacl) a WHERE a.grantee <> proowner;

-- every function, table, view, sequence and type says what it is for
SELECT oid::regprocedure FROM member_function WHERE obj_description(oid, 'pg_proc') IS NULL;
SELECT oid::regclass FROM member_relation WHERE relkind <> 'c' AND obj_description(oid, 'pg_class') IS NULL;
SELECT t.oid::regtype FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
	WHERE t.typelem = 0 AND obj_description(t.oid, 'pg_type') IS NULL
	AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.typrelid AND c.relkind <> 'c');

-- every argument has a name
SELECT oid::regprocedure FROM member_function
	WHERE pronargs > 0 AND (proargnames IS NULL OR '' = ANY (proargnames));

-- all of it is C, without SECURITY DEFINER and without SET
SELECT p.oid::regprocedure FROM member_function p JOIN pg_language l ON l.oid = p.prolang
	WHERE l.lanname <> 'c' OR p.prosecdef OR p.proconfig IS NOT NULL OR p.proparallel <> 'u';

-- every function of a capability exists, once
SELECT c.function_name FROM (SELECT DISTINCT function_name FROM idem_capability) c
	LEFT JOIN member_function p ON p.proname = c.function_name
	GROUP BY c.function_name HAVING count(p.oid) <> 1;

-- every function that can be called has a capability; these are the owner's alone
SELECT p.proname FROM member_function p
	WHERE NOT p.is_trigger AND NOT EXISTS (SELECT FROM idem_capability c WHERE c.function_name = p.proname)
	ORDER BY 1;

-- who takes no tenant_id and is open to any tenant's role
SELECT DISTINCT function_name FROM idem_capability WHERE any_tenant ORDER BY 1;
SELECT c.function_name FROM idem_capability c JOIN member_function p ON p.proname = c.function_name
	WHERE c.any_tenant AND p.proargnames[1] = 'tenant_id';

-- the first argument is the tenant, but where there is none
SELECT p.proname FROM member_function p
	WHERE NOT p.is_trigger AND coalesce(p.proargnames[1], '') <> 'tenant_id' ORDER BY 1;

-- tables: keys are in C collation, no column is generated or an identity
SELECT a.attrelid::regclass, a.attname FROM pg_attribute a JOIN member_relation c ON c.oid = a.attrelid
	WHERE c.relkind = 'r' AND (a.attgenerated <> '' OR a.attidentity <> '');
SELECT DISTINCT a.attrelid::regclass, a.attname
	FROM member_relation c JOIN pg_index i ON i.indrelid = c.oid
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])
	WHERE c.relkind = 'r' AND a.attcollation NOT IN (0, '"C"'::regcollation);

-- what a dump does not carry: rows that the script makes
SELECT c.relname FROM member_relation c
	WHERE c.relkind IN ('r', 'S') AND NOT EXISTS
		(SELECT FROM pg_extension e WHERE e.extname = 'idem' AND c.oid = ANY (e.extconfig))
	ORDER BY 1;

-- the event trigger is a member, and always fires
SELECT t.evtname, t.evtenabled FROM pg_event_trigger t
	JOIN member m ON m.classid = 'pg_event_trigger'::regclass AND m.objid = t.oid;
