/*
 * guard: the triggers on the extension's own tables, all of them idem_guard.
 *
 * A trigger knows its table by its arguments alone.  zz_ makes it the last of
 * the table's triggers.  Only events are ever deleted, by those who read them,
 * and requests and uses of tokens, by the sweep.
 */

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_order
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=order', 'entity=order', 'state=status', 'tenant=tenant_id', 'key=order_id',
		'version=version', 'frozen=tenant_id', 'frozen=order_id', 'frozen=created_at', 'once=buyer_id');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_order
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=order', 'entity=order', 'state=status', 'tenant=tenant_id', 'key=order_id',
		'version=version', 'frozen=tenant_id', 'frozen=order_id', 'frozen=created_at', 'once=buyer_id',
		'outbox=on', 'aggregate=order', 'aggregate_id=order_id', 'payload=order_id', 'payload=amount',
		'payload=currency');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_order
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_payment
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=payment', 'entity=payment', 'state=status', 'tenant=tenant_id', 'key=payment_no',
		'version=version', 'frozen=tenant_id', 'frozen=payment_no', 'frozen=order_id', 'frozen=purchase_no',
		'frozen=amount', 'frozen=currency', 'frozen=request_key', 'frozen=repurchase', 'frozen=created_at', 'once=channel',
		'once=account', 'once=submitted_at');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_payment
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=payment', 'entity=payment', 'state=status', 'tenant=tenant_id', 'key=payment_no',
		'version=version', 'frozen=tenant_id', 'frozen=payment_no', 'frozen=order_id', 'frozen=purchase_no',
		'frozen=amount', 'frozen=currency', 'frozen=request_key', 'frozen=repurchase', 'frozen=created_at', 'once=channel',
		'once=account', 'once=submitted_at', 'outbox=on', 'aggregate=order', 'aggregate_id=order_id',
		'payload=order_id', 'payload=purchase_no', 'payload=payment_no', 'payload=amount', 'payload=currency',
		'payload=channel', 'payload=account');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_payment
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_refund
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=refund', 'entity=refund', 'state=status', 'tenant=tenant_id', 'key=refund_no',
		'version=version', 'frozen=tenant_id', 'frozen=refund_no', 'frozen=receipt_no', 'frozen=amount',
		'frozen=currency', 'frozen=cause', 'frozen=created_at', 'once=payment_no', 'once=order_id',
		'once=purchase_no');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_refund
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=refund', 'entity=refund', 'state=status', 'tenant=tenant_id', 'key=refund_no',
		'version=version', 'frozen=tenant_id', 'frozen=refund_no', 'frozen=receipt_no', 'frozen=amount',
		'frozen=currency', 'frozen=cause', 'frozen=created_at', 'once=payment_no', 'once=order_id',
		'once=purchase_no', 'birth=request', 'outbox=on', 'aggregate=order',
		'aggregate_id=order_id', 'payload=order_id', 'payload=purchase_no', 'payload=payment_no',
		'payload=receipt_no', 'payload=refund_no', 'payload=amount', 'payload=currency', 'payload=channel',
		'payload=account');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_refund
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_dispute
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=dispute', 'entity=dispute', 'state=stage', 'tenant=tenant_id', 'key=channel',
		'key=account', 'key=dispute_no', 'version=version', 'frozen=tenant_id', 'frozen=channel',
		'frozen=account', 'frozen=dispute_no', 'frozen=trade_no', 'frozen=currency', 'frozen=created_at',
		'once=receipt_no', 'once=payment_no', 'once=order_id', 'once=purchase_no');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_dispute
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=dispute', 'entity=dispute', 'state=stage', 'tenant=tenant_id', 'key=channel',
		'key=account', 'key=dispute_no', 'version=version', 'frozen=tenant_id', 'frozen=channel',
		'frozen=account', 'frozen=dispute_no', 'frozen=trade_no', 'frozen=currency', 'frozen=created_at',
		'once=receipt_no', 'once=payment_no', 'once=order_id', 'once=purchase_no', 'birth=open',
		'outbox=on', 'aggregate=order', 'aggregate_id=order_id', 'payload=order_id', 'payload=purchase_no',
		'payload=payment_no', 'payload=receipt_no', 'payload=dispute_no', 'payload=amount',
		'payload=currency', 'payload=channel', 'payload=account');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_dispute
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_anomaly
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=anomaly', 'entity=anomaly', 'state=status', 'tenant=tenant_id', 'key=anomaly_no',
		'version=version', 'frozen=tenant_id', 'frozen=anomaly_no', 'frozen=kind', 'frozen=entity', 'frozen=key',
		'frozen=opened_at', 'once=order_id', 'once=resolution', 'once=resolved_by', 'once=resolved_at');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_anomaly
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=anomaly', 'entity=anomaly', 'state=status', 'tenant=tenant_id', 'key=anomaly_no',
		'version=version', 'frozen=tenant_id', 'frozen=anomaly_no', 'frozen=kind', 'frozen=entity', 'frozen=key',
		'frozen=opened_at', 'once=order_id', 'once=resolution', 'once=resolved_by', 'once=resolved_at',
		'birth=open', 'outbox=on', 'aggregate=anomaly', 'payload=anomaly_no', 'payload=kind', 'payload=entity',
		'payload=key', 'payload=order_id');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_anomaly
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* No machine: the same fact may get another disposition and other sums, but stays what it was. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_receipt
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=receipt', 'tenant=tenant_id', 'key=receipt_no', 'frozen=tenant_id', 'frozen=receipt_no',
		'frozen=channel', 'frozen=account', 'frozen=trade_no', 'frozen=reported_payment_no', 'frozen=amount',
		'frozen=currency', 'frozen=created_at', 'once=payment_no', 'once=order_id', 'once=purchase_no');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_receipt
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* Where the tables live is told, never forgotten. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_cluster
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=cluster', 'key=system_identifier');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_cluster
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* What a channel said stays as it came; only what became of it is noted. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_notification
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=notification', 'tenant=tenant_id', 'key=channel', 'key=account', 'key=notify_id',
		'frozen=tenant_id', 'frozen=channel', 'frozen=account', 'frozen=notify_id', 'frozen=payment_no',
		'frozen=trade_no', 'frozen=biz_no', 'frozen=event', 'frozen=amount', 'frozen=currency',
		'frozen=refund_amount', 'frozen=refund_currency', 'frozen=channel_refund_no', 'frozen=occurred_at',
		'frozen=payload', 'frozen=digest', 'frozen=problem', 'frozen=received_at', 'once=routed_to');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_notification
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* A key that was burned stays burned, one that is bound stays bound. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_payment_key
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=payment_key', 'tenant=tenant_id', 'key=request_key', 'frozen=tenant_id',
		'frozen=request_key', 'frozen=payment_no', 'frozen=repurchase', 'frozen=asked_payment_no',
		'frozen=created_at');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_payment_key
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_entitlement
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=entitlement', 'entity=entitlement', 'state=status', 'tenant=tenant_id', 'key=grant_key',
		'version=version', 'frozen=tenant_id', 'frozen=grant_key', 'frozen=user_id', 'frozen=benefit',
		'frozen=quantity', 'frozen=withheld', 'frozen=payment_no', 'frozen=receipt_no', 'frozen=order_id',
		'frozen=purchase_no', 'frozen=campaign', 'frozen=on_refund', 'frozen=free', 'frozen=granted_at',
		'grows=revoked');
CREATE TRIGGER zz_idem_record AFTER INSERT OR UPDATE ON @extschema@.idem_entitlement
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'machine=entitlement', 'entity=entitlement', 'state=status', 'tenant=tenant_id', 'key=grant_key',
		'version=version', 'frozen=tenant_id', 'frozen=grant_key', 'frozen=user_id', 'frozen=benefit',
		'frozen=quantity', 'frozen=withheld', 'frozen=payment_no', 'frozen=receipt_no', 'frozen=order_id',
		'frozen=purchase_no', 'frozen=campaign', 'frozen=on_refund', 'frozen=free', 'frozen=granted_at',
		'grows=revoked', 'birth=grant', 'outbox=on', 'aggregate=order', 'aggregate_id=order_id',
		'payload=order_id', 'payload=purchase_no', 'payload=payment_no', 'payload=receipt_no', 'payload=grant_key',
		'payload=user_id', 'payload=benefit', 'payload=quantity', 'payload=withheld', 'payload=revoked',
		'payload=campaign');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_entitlement
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* A revocation only ever takes more, where a refund has the number of one that was made by hand. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_revocation
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=revocation', 'tenant=tenant_id', 'key=grant_key', 'key=revoke_no', 'frozen=tenant_id',
		'frozen=grant_key', 'frozen=revoke_no', 'frozen=asked', 'frozen=reason', 'frozen=created_at',
		'grows=quantity');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_revocation
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* Counters go up and down, what they count stays. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_campaign
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=campaign', 'tenant=tenant_id', 'key=campaign', 'frozen=tenant_id', 'frozen=campaign',
		'frozen=created_at');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_campaign
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_campaign_user
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=campaign_user', 'tenant=tenant_id', 'key=campaign', 'key=user_id', 'frozen=tenant_id',
		'frozen=campaign', 'frozen=user_id');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_campaign_user
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* A lease is lost and won, but its fence never comes again. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_lease
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=lease', 'tenant=tenant_id', 'key=name', 'frozen=tenant_id', 'frozen=name',
		'grows=fence');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_lease
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* A key stays what it is; its row is used again, and swept. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON @extschema@.idem_request
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'own=on', 'entity=request', 'tenant=tenant_id', 'key=scope', 'key=key', 'frozen=tenant_id',
		'frozen=scope', 'frozen=key');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_request
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* What was used stays used, until it may be forgotten. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON @extschema@.idem_token_used
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'append_only=on');

/* What happened is not rewritten. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE OR DELETE ON @extschema@.idem_history
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'append_only=on');
CREATE TRIGGER zz_idem_truncate BEFORE TRUNCATE ON @extschema@.idem_history
	FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_guard();

/* Events are thrown away by their readers, not changed. */
CREATE TRIGGER zz_idem_guard BEFORE UPDATE ON @extschema@.idem_outbox
	FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_guard(
		'append_only=on');
