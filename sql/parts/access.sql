/*
 * access: who may call what for which tenant.
 *
 * A capability is a set of functions, as rows.  idem_allow notes that a role
 * has a capability for a tenant and grants EXECUTE on its functions; the door
 * of every function asks for both.
 */

CREATE TABLE @extschema@.idem_capability (
	capability @extschema@.idem_key_text NOT NULL,
	function_name name NOT NULL,
	any_tenant boolean NOT NULL DEFAULT false,
	PRIMARY KEY (capability, function_name)
);
COMMENT ON TABLE @extschema@.idem_capability IS
'Which capability opens which functions. Part of the extension and not dumped. any_tenant: a function without tenant_id that a row for any one tenant opens; the others need tenant *. Functions without a row are the owner''s alone.';

CREATE TABLE @extschema@.idem_access (
	role name NOT NULL,
	capability @extschema@.idem_key_text NOT NULL,
	tenant_id @extschema@.idem_key_text NOT NULL,
	PRIMARY KEY (role, capability, tenant_id)
);
COMMENT ON TABLE @extschema@.idem_access IS
'Who may do what for which tenant (*: all). The role stands by name, so that a dropped role''s rights pass to nobody by number; a row alone opens nothing, the role needs EXECUTE too. Written by idem_allow and idem_disallow.';

INSERT INTO @extschema@.idem_capability (capability, function_name) VALUES
	('client', 'idem_create_order'),
	('client', 'idem_update_order'),
	('client', 'idem_cancel_order'),
	('client', 'idem_create_payment'),
	('client', 'idem_create_payments'),
	('client', 'idem_submit_payment'),
	('client', 'idem_attach_channel_data'),
	('client', 'idem_cancel_request_key'),
	('client', 'idem_begin_close'),
	('client', 'idem_close_payment'),
	('client', 'idem_get_payment'),
	('client', 'idem_find_payment'),
	('client', 'idem_get_order'),
	('client', 'idem_get_receipts'),
	('client', 'idem_get_entitlement'),
	('client', 'idem_acquire_lease'),
	('client', 'idem_renew_lease'),
	('client', 'idem_release_lease'),
	('client', 'idem_assert_lease'),
	('client', 'idem_begin_request'),
	('client', 'idem_checkpoint_request'),
	('client', 'idem_renew_request'),
	('client', 'idem_complete_request'),
	('client', 'idem_fail_request'),
	('client', 'idem_resolve_request'),
	('client', 'idem_issue_token'),
	('client', 'idem_consume_token'),
	('client', 'idem_publish'),
	('client', 'idem_accept_message'),
	('channel', 'idem_confirm_payment'),
	('channel', 'idem_fail_payment'),
	('channel', 'idem_finish_close'),
	('channel', 'idem_settle_refund'),
	('channel', 'idem_record_dispute'),
	('channel', 'idem_tenant_of'),
	('channel', 'idem_receive_notification'),
	('channel', 'idem_alipay_notification'),
	('channel', 'idem_wechat_notification'),
	('channel', 'idem_stripe_event'),
	('cashier', 'idem_cancel_order'),
	('cashier', 'idem_resolve_review'),
	('cashier', 'idem_adopt_receipt'),
	('cashier', 'idem_refund_receipt'),
	('cashier', 'idem_request_refund'),
	('cashier', 'idem_submit_refund'),
	('cashier', 'idem_cancel_refund'),
	('cashier', 'idem_retry_refund'),
	('cashier', 'idem_release_refunds'),
	('fulfil', 'idem_ship_order'),
	('fulfil', 'idem_complete_order'),
	('fulfil', 'idem_grant_entitlement'),
	('fulfil', 'idem_revoke_entitlement'),
	('fulfil', 'idem_get_entitlement'),
	('relay', 'idem_accept_message'),
	('relay', 'idem_subscribe'),
	('relay', 'idem_unsubscribe'),
	('relay', 'idem_seek_subscription'),
	('relay', 'idem_fetch_events'),
	('relay', 'idem_ack_events'),
	('relay', 'idem_retry_event'),
	('relay', 'idem_redrive_event'),
	('relay', 'idem_wait_events'),
	('relay', 'idem_outbox_lags'),
	('operator', 'idem_define_machine'),
	('operator', 'idem_list_machines'),
	('operator', 'idem_set_campaign'),
	('operator', 'idem_set_hook'),
	('operator', 'idem_remove_hook'),
	('operator', 'idem_retry_hooks'),
	('operator', 'idem_resolve_anomaly'),
	('operator', 'idem_resolve_request'),
	('operator', 'idem_reroute_notification'),
	('operator', 'idem_set_channel_account'),
	('operator', 'idem_remove_channel_account'),
	('operator', 'idem_set_channel_event'),
	('operator', 'idem_sweep'),
	('operator', 'idem_rotate_token_secret'),
	('operator', 'idem_outbox_lags'),
	('operator', 'idem_verify'),
	('auditor', 'idem_get_payment'),
	('auditor', 'idem_find_payment'),
	('auditor', 'idem_get_order'),
	('auditor', 'idem_get_receipts'),
	('auditor', 'idem_list_machines'),
	('auditor', 'idem_get_entitlement'),
	('auditor', 'idem_outbox_lags');

/*
 * The first four act with the caller's own rights on his tables: whoever may
 * execute them may call them.
 */
INSERT INTO @extschema@.idem_capability (capability, function_name, any_tenant) VALUES
	('operator', 'idem_attach_machine', true),
	('operator', 'idem_detach_machine', true),
	('client', 'idem_move', true),
	('channel', 'idem_move', true),
	('cashier', 'idem_move', true),
	('fulfil', 'idem_move', true),
	('relay', 'idem_move', true),
	('operator', 'idem_move', true),
	('client', 'idem_history_of', true),
	('channel', 'idem_history_of', true),
	('cashier', 'idem_history_of', true),
	('fulfil', 'idem_history_of', true),
	('relay', 'idem_history_of', true),
	('operator', 'idem_history_of', true),
	('auditor', 'idem_history_of', true),
	('client', 'idem_next_no', true),
	('channel', 'idem_next_no', true),
	('cashier', 'idem_next_no', true),
	('fulfil', 'idem_next_no', true),
	('relay', 'idem_next_no', true),
	('operator', 'idem_next_no', true),
	('auditor', 'idem_next_no', true),
	('client', 'idem_key', true),
	('channel', 'idem_key', true),
	('cashier', 'idem_key', true),
	('fulfil', 'idem_key', true),
	('relay', 'idem_key', true),
	('operator', 'idem_key', true),
	('auditor', 'idem_key', true),
	('client', 'idem_machine_diagram', true),
	('channel', 'idem_machine_diagram', true),
	('cashier', 'idem_machine_diagram', true),
	('fulfil', 'idem_machine_diagram', true),
	('relay', 'idem_machine_diagram', true),
	('operator', 'idem_machine_diagram', true),
	('auditor', 'idem_machine_diagram', true),
	('auditor', 'idem_may_see', true);

/*
 * Row changes send no invalidation by themselves.  Row triggers, since logical
 * replication fires no others; ALWAYS, since it applies as a replica.
 */
CREATE FUNCTION @extschema@.idem_access_changed() RETURNS trigger
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_access_changed';
COMMENT ON FUNCTION @extschema@.idem_access_changed() IS
'Trigger on idem_access, idem_capability, idem_token_secret and idem_hook: tells every session to read them again.';

CREATE TRIGGER idem_access_changed AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_access
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_access_changed();
CREATE TRIGGER idem_access_emptied AFTER TRUNCATE ON @extschema@.idem_access
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_access_changed();
CREATE TRIGGER idem_access_changed AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idem_capability
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_access_changed();
CREATE TRIGGER idem_access_emptied AFTER TRUNCATE ON @extschema@.idem_capability
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_access_changed();
ALTER TABLE @extschema@.idem_access ENABLE ALWAYS TRIGGER idem_access_changed;
ALTER TABLE @extschema@.idem_access ENABLE ALWAYS TRIGGER idem_access_emptied;
ALTER TABLE @extschema@.idem_capability ENABLE ALWAYS TRIGGER idem_access_changed;
ALTER TABLE @extschema@.idem_capability ENABLE ALWAYS TRIGGER idem_access_emptied;

CREATE TYPE @extschema@.idem_access_result AS (outcome text);
COMMENT ON TYPE @extschema@.idem_access_result IS
'The row that idem_allow and idem_disallow return.';

CREATE FUNCTION @extschema@.idem_allow(
	role regrole,
	capability text,
	tenant_id text DEFAULT '*')
	RETURNS @extschema@.idem_access_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_allow';
COMMENT ON FUNCTION @extschema@.idem_allow(regrole, text, text) IS
'Lets a role, and who inherits its rights, call the functions of a capability for a tenant (*: for all): notes it in idem_access, grants EXECUTE on them, SELECT on the views that show what they return, and USAGE on the schema. Only for superusers and members of the extension''s owner (42501).
Rows that a dropped role of the same name left behind go: a row is left behind when the role may execute none of its capability''s functions.
Outcomes: allowed; duplicate (nothing was missing); in_progress (another transaction is changing access).
Errors: 22004, 22023 (unknown capability, no such role), 42501.';

CREATE FUNCTION @extschema@.idem_disallow(
	role regrole,
	capability text,
	tenant_id text DEFAULT '*')
	RETURNS @extschema@.idem_access_result
	LANGUAGE C VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'idem_disallow';
COMMENT ON FUNCTION @extschema@.idem_disallow(regrole, text, text) IS
'Takes back what idem_allow gave, EXECUTE on the functions that nothing else allowed to the role needs, and SELECT on their views. USAGE on the schema stays. Only for superusers and members of the extension''s owner (42501).
Outcomes: removed; duplicate (there was no such row); in_progress (another transaction is changing access).
Errors: 22004, 22023 (unknown capability, no such role), 42501.';

REVOKE ALL ON FUNCTION
	@extschema@.idem_access_changed(),
	@extschema@.idem_allow(regrole, text, text),
	@extschema@.idem_disallow(regrole, text, text)
	FROM PUBLIC;
