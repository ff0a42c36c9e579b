/*
 * stuck: everything that waits for a human, or has waited too long, with the
 * call to make.
 *
 * Each part of the view reads by an index that holds little but what is to be
 * shown.  What a caller has to decide or to find out stands in the call in
 * angle brackets; no function takes such a decision or number.  A fact would be
 * recorded whatever it says: there the brackets have no quotes, and the call
 * does not run before they are replaced.
 */

CREATE INDEX idem_payment_review ON @extschema@.idem_payment (tenant_id, payment_no) WHERE status = 'review';
CREATE INDEX idem_payment_due ON @extschema@.idem_payment (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX idem_refund_open ON @extschema@.idem_refund (created_at)
	WHERE status IN ('requested', 'processing', 'abnormal');
CREATE INDEX idem_request_unknown ON @extschema@.idem_request (lease_until)
	WHERE status = 'started' AND on_expiry = 'unknown';

CREATE FUNCTION @extschema@.idem_may_see(of_tenant text) RETURNS boolean
	LANGUAGE C STABLE PARALLEL UNSAFE COST 1000
	AS 'MODULE_PATHNAME', 'idem_may_see';
COMMENT ON FUNCTION @extschema@.idem_may_see(text) IS
'Whether the caller is an auditor of a tenant, or of all. What views ask before they show a row.';
REVOKE ALL ON FUNCTION @extschema@.idem_may_see(text) FROM PUBLIC;

CREATE VIEW @extschema@.idem_stuck WITH (security_barrier) AS
WITH house AS (
	SELECT relnamespace::pg_catalog.regnamespace::pg_catalog.text AS schema
	FROM pg_catalog.pg_class WHERE oid = '@extschema@.idem_anomaly'::pg_catalog.regclass
), waits AS (
	/* money that is not what was asked for, for a payment */
	SELECT 'review'::pg_catalog.text AS kind, p.tenant_id::pg_catalog.text, p.payment_no::pg_catalog.text AS key,
		r.created_at AS since, r.amount,
		pg_catalog.format('receipt %s of %s %s %s waits for a decision; %s %s were asked for',
			r.receipt_no, r.channel, r.amount, r.currency, p.amount, p.currency) AS why,
		pg_catalog.format('idem_resolve_review(%L, %L, %L, %L, %L)',
			p.tenant_id, p.payment_no, '<accept|refund>', '<reason>', r.receipt_no) AS action
	FROM @extschema@.idem_payment p
	JOIN @extschema@.idem_receipt r ON r.tenant_id = p.tenant_id AND r.payment_no = p.payment_no AND r.disposition = 'mismatch'
	WHERE p.status = 'review' AND r.refund_reserved = 0
	UNION ALL
	/* payments that nobody asks the channel about */
	SELECT CASE p.status WHEN 'closing' THEN 'closing' ELSE 'check_overdue' END, p.tenant_id, p.payment_no,
		p.next_check_at, p.amount,
		pg_catalog.format('%s at %s, and nobody has asked the channel since', p.status, coalesce(p.channel, 'no channel')),
		CASE p.status WHEN 'closing' THEN
			pg_catalog.format('idem_finish_close(%L, %L, %L)', p.tenant_id, p.payment_no, '<closed|already_paid|not_exist|refused|unknown>')
		ELSE
			pg_catalog.format('idem_report_payment(%L, %L, %s)', p.tenant_id, p.payment_no, '<paid|unpaid|closed|not_exist|unknown>')
		END
	FROM @extschema@.idem_payment p
	WHERE p.next_check_at < pg_catalog.statement_timestamp() - interval '15 minutes' AND p.status <> 'review'
	UNION ALL
	/* refunds that do not get on */
	SELECT CASE WHEN f.status = 'abnormal' THEN 'refund_abnormal' WHEN f.held THEN 'refund_held' ELSE 'refund_' || f.status END,
		f.tenant_id, f.refund_no, coalesce(f.submitted_at, f.created_at), f.amount,
		CASE WHEN f.status = 'abnormal' THEN pg_catalog.format('%s could not pay it back (%s)', f.channel, f.cause)
			WHEN f.status = 'processing' THEN pg_catalog.format('%s has not said what became of it (%s)', f.channel, f.cause)
			WHEN f.held THEN pg_catalog.format('held until somebody lets it go (%s)', f.cause)
			ELSE pg_catalog.format('nobody has sent it to %s (%s)', f.channel, f.cause) END,
		CASE WHEN f.status = 'abnormal' THEN pg_catalog.format('idem_retry_refund(%L, %L)', f.tenant_id, f.refund_no)
			WHEN f.status = 'processing' THEN pg_catalog.format('idem_settle_refund(%L, %L, %s)', f.tenant_id, f.refund_no, '<succeeded|failed|closed|abnormal>')
			WHEN f.held THEN pg_catalog.format('idem_release_refunds(%L, ARRAY[%L])', f.tenant_id, f.refund_no)
			ELSE pg_catalog.format('idem_submit_refund(%L, %L)', f.tenant_id, f.refund_no) END
	FROM @extschema@.idem_refund f
	WHERE f.status IN ('requested', 'processing', 'abnormal')
		AND (f.status = 'abnormal' OR (f.status = 'requested' AND f.held)
			OR (f.status = 'requested' AND f.created_at < pg_catalog.statement_timestamp() - interval '1 hour')
			OR coalesce(f.submitted_at, f.created_at) < pg_catalog.statement_timestamp() - interval '1 day')
	UNION ALL
	/* hooks that failed */
	SELECT 'hook_failed', h.tenant_id, h.key, h.failed_at, NULL,
		pg_catalog.format('the hook of %s.%s has failed, attempts %s: %s %s', h.entity, h.to_state, h.attempts, h.sqlstate, h.message),
		pg_catalog.format('idem_retry_hooks(%L, %L)', h.entity, h.to_state)
	FROM @extschema@.idem_hook_failure h
	UNION ALL
	/* requests of which nobody knows what became */
	SELECT 'request_unknown', q.tenant_id, q.key, q.lease_until, NULL,
		pg_catalog.format('scope %s: its worker is gone, and what it did outside is unknown', q.scope),
		pg_catalog.format('idem_resolve_request(%L, %L, %L, %L)', q.tenant_id, q.scope, q.key, '<completed|released>')
	FROM @extschema@.idem_request q
	WHERE q.status = 'started' AND q.on_expiry = 'unknown' AND q.lease_until <= pg_catalog.statement_timestamp()
	UNION ALL
	/* facts that fit nothing, but for those shown above, and money that is on its way back */
	SELECT a.kind, a.tenant_id, a.key, a.opened_at,
		CASE WHEN a.detail ->> 'amount' ~ '^-?[0-9]{1,18}$' THEN (a.detail ->> 'amount')::bigint END,
		pg_catalog.format('%s of %s %s, seen %s times', a.kind, a.entity, a.key, a.hits),
		CASE WHEN a.kind = 'orphan' AND a.entity = 'receipt' THEN
			pg_catalog.format('idem_adopt_receipt(%L, %L, %L)', a.tenant_id, a.key, '<payment_no>')
		WHEN a.kind = 'rejected' AND a.entity = 'receipt' THEN
			pg_catalog.format('idem_refund_receipt(%L, %L, %L)', a.tenant_id, a.key, '<reason>')
		ELSE
			pg_catalog.format('idem_resolve_anomaly(%L, %L, %L, %L)', a.tenant_id, a.anomaly_no, '<resolution>', '<reason>')
		END
	FROM @extschema@.idem_anomaly a
	WHERE a.status = 'opened'
		AND NOT (a.kind = 'mismatch' AND EXISTS (SELECT FROM @extschema@.idem_receipt r
			JOIN @extschema@.idem_payment p ON p.tenant_id = r.tenant_id AND p.payment_no = r.payment_no AND p.status = 'review'
			WHERE r.tenant_id = a.tenant_id AND r.receipt_no = a.key AND r.disposition = 'mismatch' AND r.refund_reserved = 0))
		AND NOT (a.kind IN ('late', 'surplus') AND a.entity = 'receipt' AND EXISTS (SELECT FROM @extschema@.idem_refund f
			WHERE f.tenant_id = a.tenant_id AND f.refund_no = 'A' || a.key AND f.status IN ('requested', 'processing', 'abnormal')))
		AND NOT (a.kind = 'refund_abnormal' AND EXISTS (SELECT FROM @extschema@.idem_refund f
			WHERE f.tenant_id = a.tenant_id AND f.refund_no = a.key AND f.status = 'abnormal'))
		AND NOT (a.kind = 'hook_failed' AND EXISTS (SELECT FROM @extschema@.idem_hook_failure h
			WHERE h.tenant_id = a.tenant_id AND h.entity = a.entity AND h.key = a.key))
)
SELECT kind, tenant_id, key, since, amount, why,
	pg_catalog.format('SELECT * FROM %s.%s', schema, action) AS next_action
FROM waits, house
WHERE @extschema@.idem_may_see(tenant_id);
COMMENT ON VIEW @extschema@.idem_stuck IS
'Everything of the caller''s tenants (as auditor) that waits for a human or has waited too long: kind says of what (docs/stuck.md has an entry for each), key is the thing''s, since is when it began to wait, amount in minor units, next_action the call to make, in which angle brackets stand for what a human has to decide or to find out.';
