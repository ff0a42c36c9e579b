/*
 * attach: state machines for anybody's table.
 *
 * Both functions act with the rights of whoever calls them: only a table's
 * owner can attach it.
 */

CREATE TABLE @extschema@.idem_entity (
	entity @extschema@.idem_key_text NOT NULL,
	owner name NOT NULL,
	claimed_at timestamptz NOT NULL,
	PRIMARY KEY (entity)
);
COMMENT ON TABLE @extschema@.idem_entity IS
'Whose the entities of attached tables are, by the name of the role that owns the table. A row stays when the table is detached, since its history does: nobody else gets to add to it or to see it by attaching a table of the same name.';

CREATE TYPE @extschema@.idem_attach_machine_result AS (
	outcome text,
	entity text,
	active_index text
);
COMMENT ON TYPE @extschema@.idem_attach_machine_result IS
'The row that idem_attach_machine returns. entity is what history and events call the table; active_index the index that was made for active_key, NULL where there was one already.';

CREATE TYPE @extschema@.idem_detach_machine_result AS (
	outcome text
);
COMMENT ON TYPE @extschema@.idem_detach_machine_result IS
'The row that idem_detach_machine returns.';

CREATE FUNCTION @extschema@.idem_attach_machine(
	target regclass,
	state_column name,
	machine text,
	active_key text[] DEFAULT NULL,
	version_column name DEFAULT NULL,
	frozen text[] DEFAULT NULL,
	history boolean DEFAULT true,
	outbox boolean DEFAULT false,
	forbid_delete boolean DEFAULT false,
	payload text[] DEFAULT NULL,
	tenant_column name DEFAULT NULL,
	entity text DEFAULT NULL)
	RETURNS @extschema@.idem_attach_machine_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_attach_machine';
COMMENT ON FUNCTION @extschema@.idem_attach_machine(regclass, name, text, text[], name, text[], boolean, boolean, boolean, text[], name, text) IS
'Attaches a table, with its partitions and what inherits from it, to a state machine: from the commit on every row is in a state of the machine and moves as the machine says, whoever writes. Only for the table''s owner. Needs a primary key, or a unique index over columns that are NOT NULL; these columns and the tenant''s are frozen, and so is what decides a row''s partition.
active_key: of rows with this key one may be in an active state; makes the partial unique index, unless there is one that does the same. version_column: an integer that grows by one with every change. frozen: columns that no UPDATE may change. history: moves are written to idem_history. outbox: moves are announced in idem_outbox as entity.state, with the columns of payload (default: the key). forbid_delete: no DELETE, no TRUNCATE. tenant_column: the tenant in history and events. entity: what these call the table; default its name, or schema.name where that is taken.
Writers of the table wait for one scan and, with active_key, one index build, until the caller commits.
Outcomes: attached; duplicate (it is attached just so); in_progress (the table or the machine is in use).
Errors: 22004, 22023, 23505 (a key with several active rows), 23514 (rows in states that the machine does not have), 42501 (not the owner), 42703, 42804 (unfit columns), 42809, 55000 (no key), ID001 (attached otherwise; DETAIL names the first option that differs, in this order: machine, state_column, tenant_column, active_key, version_column, frozen, history, outbox, forbid_delete, payload, entity; or the entity is another table''s, or was another role''s), ID006 (no such machine), ID007 (a built-in machine or entity, or a table of the extension).';

CREATE FUNCTION @extschema@.idem_detach_machine(target regclass)
	RETURNS @extschema@.idem_detach_machine_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_detach_machine';
COMMENT ON FUNCTION @extschema@.idem_detach_machine(regclass) IS
'Detaches a table, with its partitions and what inherits from it: drops what idem_attach_machine has made, the index included. History and events stay. Only for the table''s owner.
Outcomes: detached; duplicate (it was not attached); in_progress (the table is in use).
Errors: 22004, 42501 (not the owner), ID007 (a table of the extension).';

REVOKE ALL ON FUNCTION
	@extschema@.idem_attach_machine(regclass, name, text, text[], name, text[], boolean, boolean, boolean, text[], name, text),
	@extschema@.idem_detach_machine(regclass)
	FROM PUBLIC;
