/*-------------------------------------------------------------------------
 * verify.c
 *	  The checker: is everything that must hold true of the tables true?
 *
 * Each invariant is one SELECT that returns what breaks it: tenant_id, entity,
 * key, detail.  $1 is the extension's schema.  They see the snapshot of the
 * calling statement, so that work which goes on meanwhile is never taken for
 * damage; positions move past snapshots, and are seen as they are now.
 *
 * The tables are read from end to end and joined by hash or sort.  What the
 * statistics say (nothing yet, after a restore) must not talk the planner into
 * a nested loop over 10^6 rows: it is forbidden, and no plan is kept.
 *-------------------------------------------------------------------------
 */
#include "call.h"
#include "relation.h"
#include "verify.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

typedef struct Invariant
{
	const char *name;
	const char *sql;
} Invariant;

/* The rows that have a state, whatever table they are in */
#define STATEFUL_ROWS \
	" (SELECT tenant_id, 'order' AS entity, order_id AS key, status, version FROM @schema@.idem_order" \
	" UNION ALL SELECT tenant_id, 'payment', payment_no, status, version FROM @schema@.idem_payment" \
	" UNION ALL SELECT tenant_id, 'refund', refund_no, status, version FROM @schema@.idem_refund" \
	" UNION ALL SELECT tenant_id, 'dispute', format('{\"channel\": %s, \"account\": %s, \"dispute_no\": %s}'," \
	" to_json(channel), to_json(account), to_json(dispute_no)), stage, version FROM @schema@.idem_dispute" \
	" UNION ALL SELECT tenant_id, 'anomaly', anomaly_no, status, version FROM @schema@.idem_anomaly" \
	" UNION ALL SELECT tenant_id, 'entitlement', grant_key, status, version FROM @schema@.idem_entitlement)"

/* Moves and marks of states, as the rules have them and as the definitions do */
#define RULED_MOVES \
	" machine, from_state, to_state, event, fact, guard IS NOT NULL FROM @schema@.idem_machine_move"
#define DEFINED_MOVES \
	" name, (x ->> 'from') COLLATE \"C\", (x ->> 'to') COLLATE \"C\", (x ->> 'event') COLLATE \"C\"," \
	" coalesce((x ->> 'fact')::boolean, false), x ->> 'guard' IS NOT NULL" \
	" FROM @schema@.idem_machine, jsonb_array_elements(definition -> 'moves') x"
#define RULED_MARKS \
	" s.machine, s.state, m.mark FROM @schema@.idem_machine_state s," \
	" LATERAL (VALUES ('initial', initial), ('final', final), ('active', active)) m (mark, it_is)" \
	" WHERE m.it_is"
#define DEFINED_MARKS \
	" d.name, x COLLATE \"C\", m.mark FROM @schema@.idem_machine d," \
	" LATERAL (VALUES ('initial'), ('final'), ('active')) m (mark)," \
	" jsonb_array_elements_text(coalesce(nullif(d.definition -> m.mark, 'null'), '[]')) x"

#define OWN_ENTITIES " ('order', 'payment', 'refund', 'dispute', 'anomaly', 'entitlement')"

static const Invariant invariants[] = {

	/* ---------- orders ---------- */

	/* Purchase 1 of an order that was paid has exactly one applied receipt */
	{
		"order_paid_once",
		"SELECT o.tenant_id, 'order', o.order_id,"
		" format('status %s, amount %s, applied receipts %s', o.status, o.amount, coalesce(r.n, 0))"
		" FROM @schema@.idem_order o LEFT JOIN"
		" (SELECT tenant_id, order_id, count(*) AS n FROM @schema@.idem_receipt"
		" WHERE disposition = 'applied' AND purchase_no = 1 GROUP BY tenant_id, order_id) r"
		" ON r.tenant_id = o.tenant_id AND r.order_id = o.order_id"
		" WHERE o.status IN ('paid', 'shipped', 'completed', 'refunded')"
		" AND coalesce(r.n, 0) <> CASE WHEN o.amount > 0 THEN 1 ELSE 0 END"
	},

	/* An order row follows purchase 1 */
	{
		"order_follows_purchase",
		"SELECT o.tenant_id, 'order', o.order_id,"
		" format('status %s, applied receipt %s', o.status, r.receipt_no)"
		" FROM @schema@.idem_order o JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = o.tenant_id AND r.order_id = o.order_id"
		" WHERE o.status IN ('pending', 'expired') AND r.disposition = 'applied' AND r.purchase_no = 1"
	},

	/* An order is refunded when all its money went back, and only then */
	{
		"order_refunded_in_full",
		"SELECT o.tenant_id, 'order', o.order_id,"
		" format('status %s; receipt %s: amount %s, refunded %s', o.status, r.receipt_no, r.amount, r.refunded)"
		" FROM @schema@.idem_order o JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = o.tenant_id AND r.order_id = o.order_id"
		" WHERE r.disposition = 'applied' AND r.purchase_no = 1"
		" AND CASE WHEN o.status = 'refunded' THEN r.refunded < r.amount"
		" ELSE o.status IN ('paid', 'shipped', 'completed') AND r.refunded >= r.amount END"
	},

	/* An order that is refunded knows where it came from, and no other does */
	{
		"order_refunded_from",
		"SELECT tenant_id, 'order', order_id, format('status %s, refunded from %s', status, coalesce(refunded_from, 'nowhere'))"
		" FROM @schema@.idem_order"
		" WHERE CASE WHEN status = 'refunded' THEN coalesce(refunded_from, '') NOT IN ('paid', 'shipped', 'completed')"
		" ELSE refunded_from IS NOT NULL END"
	},

	/* ---------- payments ---------- */

	/* One payable payment per order, over all purchases */
	{
		"one_active_payment",
		"SELECT tenant_id, 'order', order_id, format('active payments %s', string_agg(payment_no, ', ' ORDER BY payment_no))"
		" FROM @schema@.idem_payment WHERE status IN ('pending', 'closing', 'review')"
		" GROUP BY tenant_id, order_id HAVING count(*) > 1"
	},

	/* paid means: exactly one applied receipt of this payment */
	{
		"payment_paid_once",
		"SELECT p.tenant_id, 'payment', p.payment_no,"
		" format('status %s, applied receipts %s', p.status, coalesce(r.n, 0))"
		" FROM @schema@.idem_payment p LEFT JOIN"
		" (SELECT tenant_id, payment_no, count(*) AS n FROM @schema@.idem_receipt"
		" WHERE disposition = 'applied' GROUP BY tenant_id, payment_no) r"
		" ON r.tenant_id = p.tenant_id AND r.payment_no = p.payment_no"
		" WHERE coalesce(r.n, 0) <> CASE WHEN p.status = 'paid' THEN 1 ELSE 0 END"
	},

	/* Money that arrived for a payment shows in its status, and the reverse */
	{
		"payment_shows_money",
		"SELECT p.tenant_id, 'payment', p.payment_no,"
		" format('status %s, receipts %s, of these mismatch %s', p.status, coalesce(r.n, 0), coalesce(r.mismatch, 0))"
		" FROM @schema@.idem_payment p LEFT JOIN"
		" (SELECT tenant_id, payment_no, count(*) AS n,"
		" count(*) FILTER (WHERE disposition = 'applied') AS applied,"
		" count(*) FILTER (WHERE disposition = 'mismatch') AS mismatch FROM @schema@.idem_receipt"
		" WHERE disposition <> 'rejected' GROUP BY tenant_id, payment_no) r"
		" ON r.tenant_id = p.tenant_id AND r.payment_no = p.payment_no"
		" WHERE CASE p.status WHEN 'paid' THEN false"
		" WHEN 'paid_late' THEN r.n IS NULL"
		" WHEN 'review' THEN coalesce(r.mismatch, 0) = 0"
		" ELSE r.n > r.applied END"
	},

	/* What can still be paid is still to be paid */
	{
		"payment_still_payable",
		"SELECT p.tenant_id, 'payment', p.payment_no,"
		" format('status %s, order %s, applied receipt %s', p.status, coalesce(o.status, 'without a row'), coalesce(r.receipt_no, 'none'))"
		" FROM @schema@.idem_payment p"
		" LEFT JOIN @schema@.idem_order o ON o.tenant_id = p.tenant_id AND o.order_id = p.order_id"
		" LEFT JOIN @schema@.idem_receipt r ON r.tenant_id = p.tenant_id AND r.order_id = p.order_id"
		" AND r.purchase_no = p.purchase_no AND r.disposition = 'applied'"
		" WHERE p.status IN ('pending', 'review')"
		" AND (r.receipt_no IS NOT NULL OR o.status IN ('cancelled', 'expired'))"
	},

	/* A payment asks for what its order costs */
	{
		"payment_like_order",
		"SELECT p.tenant_id, 'payment', p.payment_no,"
		" format('%s %s, order %s %s', p.amount, p.currency, o.amount, o.currency)"
		" FROM @schema@.idem_payment p JOIN @schema@.idem_order o"
		" ON o.tenant_id = p.tenant_id AND o.order_id = p.order_id"
		" WHERE p.status = 'pending' AND (p.amount <> o.amount OR p.currency <> o.currency)"
	},

	/* The next purchase begins when this one is paid */
	{
		"purchase_after_purchase",
		"SELECT p.tenant_id, 'payment', p.payment_no, format('purchase %s, but %s is not paid', p.purchase_no, p.purchase_no - 1)"
		" FROM @schema@.idem_payment p LEFT JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = p.tenant_id AND r.order_id = p.order_id"
		" AND r.purchase_no = p.purchase_no - 1 AND r.disposition = 'applied'"
		" WHERE p.purchase_no > 1 AND r.receipt_no IS NULL"
	},

	/* A request key leads to its payment, and to one only */
	{
		"payment_key_leads",
		"SELECT k.tenant_id, 'payment_key', k.request_key, format('payment %s does not exist', k.payment_no)"
		" FROM @schema@.idem_payment_key k LEFT JOIN @schema@.idem_payment p"
		" ON p.tenant_id = k.tenant_id AND p.payment_no = k.payment_no"
		" WHERE k.payment_no IS NOT NULL AND p.payment_no IS NULL"
		" UNION ALL SELECT p.tenant_id, 'payment', p.payment_no,"
		" format('its request key %s also %s', p.request_key, coalesce('leads to ' || k.payment_no, 'is burned'))"
		" FROM @schema@.idem_payment p JOIN @schema@.idem_payment_key k"
		" ON k.tenant_id = p.tenant_id AND k.request_key = p.request_key"
	},

	/* A token that made a payment leads to it */
	{
		"token_leads",
		"SELECT u.tenant_id, 'token', encode(u.digest, 'hex'), format('payment %s does not exist', u.payment_no)"
		" FROM @schema@.idem_token_used u LEFT JOIN @schema@.idem_payment p"
		" ON p.tenant_id = u.tenant_id AND p.payment_no = u.payment_no"
		" WHERE u.payment_no IS NOT NULL AND p.payment_no IS NULL"
	},

	/* ---------- receipts ---------- */

	/* A purchase is paid once */
	{
		"one_applied_receipt",
		"SELECT tenant_id, 'order', order_id, format('purchase %s, applied receipts %s', purchase_no, string_agg(receipt_no, ', ' ORDER BY receipt_no))"
		" FROM @schema@.idem_receipt WHERE disposition = 'applied'"
		" GROUP BY tenant_id, order_id, purchase_no HAVING count(*) > 1"
	},

	/* Money is counted once */
	{
		"one_receipt_per_trade",
		"SELECT tenant_id, 'receipt', min(receipt_no), format('channel %s, account %s, trade %s: %s receipts', channel, account, trade_no, count(*))"
		" FROM @schema@.idem_receipt GROUP BY tenant_id, channel, account, trade_no HAVING count(*) > 1"
	},

	/* A receipt stands where its payment stands; without one it is orphan or rejected */
	{
		"receipt_of_payment",
		"SELECT r.tenant_id, 'receipt', r.receipt_no,"
		" format('%s, payment %s, order %s, purchase %s; the payment''s are %s, %s', r.disposition,"
		" coalesce(r.payment_no, 'none'), r.order_id, r.purchase_no, coalesce(p.order_id, 'none'), p.purchase_no)"
		" FROM @schema@.idem_receipt r LEFT JOIN @schema@.idem_payment p"
		" ON p.tenant_id = r.tenant_id AND p.payment_no = r.payment_no"
		" WHERE CASE WHEN r.disposition IN ('orphan', 'rejected') THEN r.payment_no IS NOT NULL"
		" ELSE p.payment_no IS NULL OR p.order_id IS DISTINCT FROM r.order_id"
		" OR p.purchase_no IS DISTINCT FROM r.purchase_no END"
	},

	/* A receipt's counters are the sums of its refunds and disputes, its excess is what exceeds it */
	{
		"receipt_sums",
		"SELECT r.tenant_id, 'receipt', r.receipt_no,"
		" format('refunded %s, by its refunds %s; reserved %s, by its refunds %s; disputed %s, by its disputes %s; amount %s, excess %s',"
		" r.refunded, coalesce(f.refunded, 0), r.refund_reserved, coalesce(f.reserved, 0),"
		" r.disputed, coalesce(d.disputed, 0), r.amount, r.excess)"
		" FROM @schema@.idem_receipt r LEFT JOIN"
		" (SELECT tenant_id, receipt_no, sum(amount) FILTER (WHERE status = 'succeeded') AS refunded,"
		" sum(amount) FILTER (WHERE status IN ('requested', 'processing', 'abnormal', 'succeeded')) AS reserved"
		" FROM @schema@.idem_refund GROUP BY tenant_id, receipt_no) f"
		" ON f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no"
		" LEFT JOIN (SELECT tenant_id, receipt_no, sum(amount) AS disputed FROM @schema@.idem_dispute"
		" WHERE stage <> 'won' GROUP BY tenant_id, receipt_no) d"
		" ON d.tenant_id = r.tenant_id AND d.receipt_no = r.receipt_no"
		" WHERE r.refunded <> coalesce(f.refunded, 0) OR r.refund_reserved <> coalesce(f.reserved, 0)"
		" OR r.disputed <> coalesce(d.disputed, 0)"
		" OR r.excess <> greatest(0, r.refund_reserved::numeric + r.disputed - greatest(coalesce(r.amount, 0), 0))"
	},

	/*
	 * Money that fits nothing goes back by itself or waits for a human, who
	 * may have decided; orphan and rejected money at least had an anomaly.
	 */
	{
		"receipt_cured",
		"SELECT r.tenant_id, 'receipt', r.receipt_no, format('%s, neither refunded nor in an anomaly', r.disposition)"
		" FROM @schema@.idem_receipt r"
		" WHERE r.disposition <> 'applied'"
		" AND NOT EXISTS (SELECT FROM @schema@.idem_refund f"
		" WHERE f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no)"
		" AND NOT EXISTS (SELECT FROM @schema@.idem_dispute d"
		" WHERE d.tenant_id = r.tenant_id AND d.receipt_no = r.receipt_no)"
		" AND NOT EXISTS (SELECT FROM @schema@.idem_anomaly a"
		" WHERE a.tenant_id = r.tenant_id AND a.entity = 'receipt' AND a.key = r.receipt_no"
		" AND (a.status = 'opened' OR a.resolution <> 'refund'))"
	},

	/* ---------- refunds ---------- */

	/* A refund sends back money of its receipt */
	{
		"refund_of_receipt",
		"SELECT f.tenant_id, 'refund', f.refund_no,"
		" format('receipt %s, payment %s, order %s, channel %s, account %s, currency %s; the receipt''s are %s, %s, %s, %s, %s',"
		" f.receipt_no, coalesce(f.payment_no, 'none'), coalesce(f.order_id, 'none'), f.channel, f.account, f.currency,"
		" coalesce(r.payment_no, 'none'), coalesce(r.order_id, 'none'), r.channel, r.account, r.currency)"
		" FROM @schema@.idem_refund f LEFT JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = f.tenant_id AND r.receipt_no = f.receipt_no"
		" WHERE r.receipt_no IS NULL OR f.payment_no <> r.payment_no OR f.order_id <> r.order_id"
		" OR upper(f.currency) <> upper(r.currency) OR f.channel <> r.channel OR f.account <> r.account"
	},

	/* What the extension requests by itself bears its receipt's number: there is one */
	{
		"refund_automatic_once",
		"SELECT tenant_id, 'refund', refund_no, format('cause %s, receipt %s', cause, receipt_no)"
		" FROM @schema@.idem_refund"
		" WHERE CASE WHEN cause IN ('request', 'channel') THEN refund_no ~ '^A[0-9]+$' AND (cause = 'request' OR refund_no <> 'A' || receipt_no)"
		" ELSE refund_no <> 'A' || receipt_no END"
	},

	/* What is held was requested by the extension, and was not sent */
	{
		"refund_held",
		"SELECT tenant_id, 'refund', refund_no, format('held, cause %s, status %s, submitted %s', cause, status, coalesce(submitted_at::text, 'never'))"
		" FROM @schema@.idem_refund"
		" WHERE held AND (status <> 'requested' OR cause IN ('request', 'channel') OR submitted_at IS NOT NULL)"
	},

	/* What a channel said was refunded in all is accounted for; see refund_sum.c */
	{
		"receipt_reaches_sum",
		"SELECT r.tenant_id, 'receipt', r.receipt_no,"
		" format('told %s, of which %s is accounted for; refunded %s', r.refund_told, coalesce(f.amount, 0), r.refunded)"
		" FROM @schema@.idem_receipt r LEFT JOIN"
		" (SELECT f.tenant_id, f.receipt_no, sum(f.amount) AS amount"
		" FROM @schema@.idem_refund f JOIN @schema@.idem_receipt r USING (tenant_id, receipt_no)"
		" WHERE f.status IN ('processing', 'abnormal') OR ((f.status IN ('succeeded', 'reversed') OR f.takes_back)"
		" AND (f.status = 'succeeded' OR coalesce(f.settled_at > r.refund_told_at, true))"
		" AND NOT (f.status IN ('succeeded', 'reversed') AND f.cause = 'channel'"
		" AND coalesce(f.succeeded_at > r.refund_told_at, f.succeeded_at = 'infinity', false)))"
		" GROUP BY f.tenant_id, f.receipt_no) f ON f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no"
		" WHERE r.refund_told > coalesce(f.amount, 0)"
	},

	/* ---------- disputes ---------- */

	/* A dispute is about money of its trade */
	{
		"dispute_of_receipt",
		"SELECT d.tenant_id, 'dispute', d.dispute_no,"
		" format('channel %s, trade %s, receipt %s, payment %s, order %s, currency %s; the receipt''s are %s, %s, %s, %s, %s',"
		" d.channel, d.trade_no, d.receipt_no, coalesce(d.payment_no, 'none'), coalesce(d.order_id, 'none'), d.currency,"
		" r.channel, r.trade_no, coalesce(r.payment_no, 'none'), coalesce(r.order_id, 'none'), r.currency)"
		" FROM @schema@.idem_dispute d LEFT JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = d.tenant_id AND r.receipt_no = d.receipt_no"
		" WHERE d.receipt_no IS NOT NULL AND (r.receipt_no IS NULL OR d.channel <> r.channel OR d.trade_no <> r.trade_no"
		" OR d.payment_no <> r.payment_no OR d.order_id <> r.order_id OR upper(d.currency) <> upper(r.currency))"
	},

	/* ---------- notifications ---------- */

	/* Money that a channel was answered for is on the books */
	{
		"notification_heard",
		"SELECT n.tenant_id, 'notification', n.channel || '/' || n.account || '/' || n.notify_id,"
		" format('outcome %s, trade %s: no receipt', n.outcome, n.trade_no)"
		" FROM @schema@.idem_notification n LEFT JOIN"
		" (SELECT DISTINCT tenant_id, channel, trade_no FROM @schema@.idem_receipt) r"
		" ON r.tenant_id = n.tenant_id AND r.channel = n.channel AND r.trade_no = n.trade_no"
		" WHERE n.kind = 'paid' AND n.outcome IN ('paid', 'late', 'surplus', 'mismatch', 'duplicate')"
		" AND r.trade_no IS NULL"
	},

	/* What was routed has arrived */
	{
		"notification_routed",
		"SELECT n.tenant_id, 'notification', n.channel || '/' || n.account || '/' || n.notify_id,"
		" format('routed to %s, and not there', n.routed_to)"
		" FROM @schema@.idem_notification n LEFT JOIN"
		" (SELECT DISTINCT tenant_id, channel, notify_id FROM @schema@.idem_notification) t"
		" ON t.tenant_id = n.routed_to AND t.channel = n.channel AND t.notify_id = n.notify_id"
		" WHERE n.routed_to IS NOT NULL AND t.tenant_id IS NULL"
	},

	/* ---------- entitlements ---------- */

	/* What was revoked is the sum of its revocations, and shows in the status */
	{
		"entitlement_sums",
		"SELECT e.tenant_id, 'entitlement', e.grant_key,"
		" format('status %s, quantity %s, withheld %s, revoked %s, by its revocations %s',"
		" e.status, e.quantity, e.withheld, e.revoked, coalesce(r.quantity, 0))"
		" FROM @schema@.idem_entitlement e LEFT JOIN"
		" (SELECT tenant_id, grant_key, sum(quantity) AS quantity FROM @schema@.idem_revocation"
		" GROUP BY tenant_id, grant_key) r ON r.tenant_id = e.tenant_id AND r.grant_key = e.grant_key"
		" WHERE e.revoked <> coalesce(r.quantity, 0) OR e.withheld::numeric + e.revoked > e.quantity"
		" OR e.status <> CASE WHEN e.revoked = 0 THEN 'granted'"
		" WHEN e.withheld + e.revoked < e.quantity THEN 'partly_revoked' ELSE 'revoked' END"
		" UNION ALL SELECT r.tenant_id, 'revocation', format('%s, %s', r.grant_key, r.revoke_no), 'nothing was granted under this key'"
		" FROM @schema@.idem_revocation r LEFT JOIN @schema@.idem_entitlement e"
		" ON e.tenant_id = r.tenant_id AND e.grant_key = r.grant_key WHERE e.grant_key IS NULL"
	},

	/* What a payment pays for is tied to the money that paid its purchase */
	{
		"entitlement_of_receipt",
		"SELECT e.tenant_id, 'entitlement', e.grant_key,"
		" format('payment %s, order %s, purchase %s, receipt %s: %s, order %s, purchase %s', coalesce(e.payment_no, 'none'),"
		" e.order_id, e.purchase_no, coalesce(e.receipt_no, 'none'), coalesce(r.disposition, 'none'), r.order_id, r.purchase_no)"
		" FROM @schema@.idem_entitlement e"
		" LEFT JOIN @schema@.idem_receipt r ON r.tenant_id = e.tenant_id AND r.receipt_no = e.receipt_no"
		" LEFT JOIN @schema@.idem_payment p ON p.tenant_id = e.tenant_id AND p.payment_no = e.payment_no"
		" WHERE CASE WHEN e.payment_no IS NULL THEN e.receipt_no IS NOT NULL OR (e.campaign IS NULL AND NOT e.free)"
		" ELSE r.disposition IS DISTINCT FROM 'applied' OR (r.order_id, r.purchase_no) IS DISTINCT FROM (e.order_id, e.purchase_no)"
		" OR (p.order_id, p.purchase_no) IS DISTINCT FROM (e.order_id, e.purchase_no) END"
	},

	/* Money that went back took its share with it */
	{
		"entitlement_follows_refund",
		"SELECT e.tenant_id, 'entitlement', e.grant_key,"
		" format('quantity %s, withheld %s, revoked %s, on refund %s; of receipt %s %s of %s went back',"
		" e.quantity, e.withheld, e.revoked, e.on_refund, r.receipt_no, r.refunded, r.amount)"
		" FROM @schema@.idem_entitlement e JOIN @schema@.idem_receipt r"
		" ON r.tenant_id = e.tenant_id AND r.receipt_no = e.receipt_no"
		" WHERE r.refunded > 0 AND e.on_refund <> 'none' AND e.withheld::numeric + e.revoked <"
		" CASE WHEN e.on_refund = 'full' OR r.refunded >= r.amount THEN e.quantity"
		" ELSE div(e.quantity::numeric * r.refunded, r.amount) END"
	},

	/* A campaign's counters are the sums of what it granted, in its limits */
	{
		"campaign_counts",
		"WITH standing AS (SELECT tenant_id, campaign, user_id, sum(quantity - withheld - revoked) AS n"
		" FROM @schema@.idem_entitlement WHERE campaign IS NOT NULL GROUP BY tenant_id, campaign, user_id)"
		" SELECT tenant_id, 'campaign', campaign, format('granted %s, by its entitlements %s, ceiling %s, total %s',"
		" coalesce(c.granted::text, 'no row'), coalesce(s.n, 0), c.ceiling, c.total)"
		" FROM @schema@.idem_campaign c FULL JOIN"
		" (SELECT tenant_id, campaign, sum(n) AS n FROM standing GROUP BY tenant_id, campaign) s USING (tenant_id, campaign)"
		" WHERE c.granted IS DISTINCT FROM coalesce(s.n, 0) OR c.granted > c.ceiling"
		" OR (c.total IS NULL) <> (c.ceiling IS NULL) OR c.ceiling < c.total"
		" UNION ALL SELECT tenant_id, 'campaign_user', format('%s, %s', campaign, user_id),"
		" format('granted %s, by the entitlements %s, ceiling %s', coalesce(u.granted::text, 'no row'), coalesce(s.n, 0), u.ceiling)"
		" FROM @schema@.idem_campaign_user u FULL JOIN standing s USING (tenant_id, campaign, user_id)"
		" WHERE u.granted IS DISTINCT FROM coalesce(s.n, 0) OR u.granted > u.ceiling"
	},

	/* ---------- hooks ---------- */

	/* A hook can be called */
	{
		"hook_stands",
		"SELECT NULL, 'hook', format('%s.%s', h.entity, h.to_state), format('%s as role %s: %s', h.function, h.role,"
		" CASE WHEN s.state IS NULL THEN 'there is no such state' WHEN to_regrole(quote_ident(h.role)) IS NULL THEN 'the role is missing'"
		" ELSE 'the function is missing' END)"
		" FROM @schema@.idem_hook h LEFT JOIN @schema@.idem_machine_state s ON s.machine = h.entity AND s.state = h.to_state"
		" WHERE s.state IS NULL OR to_regrole(quote_ident(h.role)) IS NULL OR to_regprocedure(h.function) IS NULL"
	},

	/* What failed of a hook, a human can see */
	{
		"hook_failure_shown",
		"SELECT f.tenant_id, f.entity, f.key, format('the hook of %s.%s has failed, and no anomaly tells of it', f.entity, f.to_state)"
		" FROM @schema@.idem_hook_failure f WHERE NOT EXISTS (SELECT FROM @schema@.idem_anomaly a"
		" WHERE a.tenant_id = f.tenant_id AND a.kind = 'hook_failed' AND a.entity = f.entity AND a.key = f.key)"
	},

	/* ---------- requests ---------- */

	/* A request has a response once it is finished, and not before */
	{
		"request_answered",
		"SELECT tenant_id, 'request', format('%s, %s', scope, key),"
		" format('status %s, on_expiry %s, response %s', status, on_expiry, coalesce(response_status::text, 'none'))"
		" FROM @schema@.idem_request"
		" WHERE status NOT IN ('started', 'completed', 'failed', 'released') OR on_expiry NOT IN ('resume', 'unknown')"
		" OR (status IN ('completed', 'failed')) <> (response_status IS NOT NULL)"
		" OR (response IS NOT NULL AND response_status IS NULL)"
	},

	/* Attempts to come are later than all that there are */
	{
		"attempt_drawn",
		"SELECT r.tenant_id, 'request', format('%s, %s', r.scope, r.key),"
		" format('attempt %s, the last one drawn is %s', r.attempt, s.last_value)"
		" FROM @schema@.idem_request r, @schema@.idem_attempt s WHERE r.attempt > s.last_value"
	},

	/* ---------- the log and its readers ---------- */

	/* Events and batches to come are numbered above all that there are */
	{
		"number_drawn",
		"SELECT e.tenant_id, 'event', e.id::text, format('number %s, the last one drawn is %s', e.seq, s.last_value)"
		" FROM @schema@.idem_outbox e, @schema@.idem_outbox_seq s WHERE e.seq > s.last_value"
		" UNION ALL SELECT NULL, 'subscription', p.subscription, format('batch %s, the last one drawn is %s', p.batch, s.last_value)"
		" FROM @schema@.idem_position p, @schema@.idem_batch_seq s WHERE p.batch > s.last_value"
	},

	/* Whatever is kept for a subscription is in one of its slots */
	{
		"slot_of_subscription",
		"SELECT DISTINCT x.tenant_id, 'subscription', x.subscription, format('%s in slot %s, slots %s', x.what, x.slot, coalesce(s.slots, 0))"
		" FROM (SELECT NULL AS tenant_id, subscription, 'position' AS what, slot FROM @schema@.idem_position"
		" UNION ALL SELECT tenant_id, subscription, 'parked event', slot FROM @schema@.idem_parked_event"
		" UNION ALL SELECT tenant_id, subscription, 'dead event', slot FROM @schema@.idem_dead_event) x"
		" LEFT JOIN @schema@.idem_subscription s ON s.subscription = x.subscription"
		" WHERE s.subscription IS NULL OR x.slot NOT BETWEEN 0 AND s.slots - 1"
	},

	/* An event that failed will be tried again, or was given up */
	{
		"parked_or_dead",
		"SELECT p.tenant_id, 'event', p.id::text, format('parked and dead for subscription %s', p.subscription)"
		" FROM @schema@.idem_parked_event p JOIN @schema@.idem_dead_event d"
		" ON d.subscription = p.subscription AND d.seq = p.seq"
	},

	/* The first of each key that is parked has its time, and the rest come after it */
	{
		"parked_comes_again",
		"SELECT tenant_id, 'event', id::text, format('the first of %s %s that is parked for subscription %s, and never comes', aggregatetype, aggregateid, subscription)"
		" FROM (SELECT *, row_number() OVER (PARTITION BY subscription, slot, tenant_id, aggregatetype, aggregateid ORDER BY seq) AS n"
		" FROM @schema@.idem_parked_event) p WHERE n = 1 AND next_at IS NULL"
	},

	/* ---------- states and their history ---------- */

	/* Every row is in a state that its machine has */
	{
		"state_declared",
		"SELECT r.tenant_id, r.entity, r.key, format('status %s', r.status)"
		" FROM" STATEFUL_ROWS " r LEFT JOIN @schema@.idem_machine_state s"
		" ON s.machine = r.entity AND s.state = r.status WHERE s.state IS NULL"
	},

	/* The last move of a row led to where the row is */
	{
		"history_ends_in_state",
		"SELECT r.tenant_id, r.entity, r.key,"
		" format('status %s, version %s; the last move went to %s, version %s', r.status, r.version, h.to_state, h.version)"
		" FROM (SELECT DISTINCT ON (tenant_id, entity, key) tenant_id, entity, key, to_state, version"
		" FROM @schema@.idem_history WHERE entity IN" OWN_ENTITIES
		" ORDER BY tenant_id, entity, key, version DESC, at DESC) h"
		" JOIN" STATEFUL_ROWS " r ON r.tenant_id = h.tenant_id AND r.entity = h.entity AND r.key = h.key"
		" WHERE h.to_state <> r.status OR h.version > r.version"
	},

	/* What has a history was not deleted */
	{
		"history_of_row",
		"SELECT h.tenant_id, h.entity, h.key, 'its history is here, but the row is gone'"
		" FROM (SELECT DISTINCT tenant_id, entity, key FROM @schema@.idem_history WHERE entity IN" OWN_ENTITIES ") h"
		" LEFT JOIN" STATEFUL_ROWS " r ON r.tenant_id = h.tenant_id AND r.entity = h.entity AND r.key = h.key"
		" WHERE r.key IS NULL"
	},

	/* Each move begins where the one before it ended, versions strictly ascend */
	{
		"history_without_gap",
		"SELECT tenant_id, entity, key,"
		" format('version %s from %s follows version %s to %s', version, coalesce(from_state, 'nothing'), last_version, last_state)"
		" FROM (SELECT tenant_id, entity, key, version, from_state,"
		" lag(to_state) OVER moves AS last_state, lag(version) OVER moves AS last_version"
		" FROM @schema@.idem_history WHERE entity IN" OWN_ENTITIES
		" WINDOW moves AS (PARTITION BY tenant_id, entity, key ORDER BY version, at)) h"
		" WHERE last_state IS NOT NULL AND (from_state IS DISTINCT FROM last_state OR version <= last_version)"
	},

	/* Each move was one that the machine has */
	{
		"history_is_legal",
		"SELECT h.tenant_id, h.entity, h.key,"
		" format('version %s: %s from %s to %s', h.version, h.event, coalesce(h.from_state, 'nothing'), h.to_state)"
		" FROM @schema@.idem_history h"
		" LEFT JOIN @schema@.idem_machine_move m ON m.machine = h.entity"
		" AND m.from_state = h.from_state AND m.to_state = h.to_state AND m.event = h.event"
		" LEFT JOIN @schema@.idem_machine_state s ON s.machine = h.entity AND s.state = h.to_state AND s.initial"
		" WHERE h.entity IN" OWN_ENTITIES
		" AND CASE WHEN h.from_state IS NULL THEN s.state IS NULL ELSE m.machine IS NULL END"
	},

	/* ... and where somebody else's machine judged it, in that version of its rules */
	{
		"history_by_its_rules",
		"SELECT h.tenant_id, h.entity, h.key,"
		" format('%s from %s to %s, by machine %s, version %s', h.event, coalesce(h.from_state, 'nothing'),"
		" h.to_state, h.machine, h.machine_version)"
		" FROM @schema@.idem_history h JOIN @schema@.idem_machine_version v"
		" ON v.name = h.machine AND v.version = h.machine_version"
		" WHERE NOT CASE WHEN h.from_state IS NULL THEN v.definition -> 'initial' ? h.to_state"
		" ELSE v.definition -> 'moves' @> jsonb_build_array(jsonb_build_object("
		"'from', h.from_state, 'to', h.to_state, 'event', h.event)) END"
	},

	/* ---------- definitions ---------- */

	/* The rules are those of the definition */
	{
		"rules_as_defined",
		"SELECT DISTINCT NULL, 'machine', name, format('its rules are not those of its definition, version %s', version)"
		" FROM @schema@.idem_machine JOIN (SELECT machine FROM"
		" ((SELECT" RULED_MOVES " EXCEPT SELECT" DEFINED_MOVES ")"
		" UNION ALL (SELECT" DEFINED_MOVES " EXCEPT SELECT" RULED_MOVES ")) a (machine)"
		" UNION ALL SELECT machine FROM"
		" ((SELECT" RULED_MARKS " EXCEPT SELECT" DEFINED_MARKS ")"
		" UNION ALL (SELECT" DEFINED_MARKS " EXCEPT SELECT" RULED_MARKS ")) b (machine)) c"
		" ON c.machine = name WHERE definition IS NOT NULL"
	},

	/* The definition in force is one of those that are kept, the last one */
	{
		"definition_kept",
		"SELECT NULL, 'machine', m.name, format('version %s is not the last one that is kept', m.version)"
		" FROM @schema@.idem_machine m LEFT JOIN"
		" (SELECT DISTINCT ON (name) * FROM @schema@.idem_machine_version ORDER BY name, version DESC) v"
		" ON v.name = m.name AND v.version = m.version AND v.definition = m.definition AND v.defined_by = m.defined_by"
		" WHERE m.definition IS NOT NULL AND v.name IS NULL"
	},

	/* ---------- events ---------- */

	/* Each move has its event, as long as events are kept */
	{
		"move_has_event",
		"SELECT h.tenant_id, h.entity, h.key, format('version %s to %s has no event', h.version, h.to_state)"
		" FROM @schema@.idem_history h"
		" WHERE h.entity IN" OWN_ENTITIES
		" AND h.at >= (SELECT min(created_at) FROM @schema@.idem_outbox)"
		" AND NOT EXISTS (SELECT FROM @schema@.idem_outbox e WHERE e.id = h.event_id)"
	},

	/* Each event of ours tells of one move */
	{
		"event_has_move",
		"SELECT e.tenant_id, 'event', e.id::text, format('%s of %s %s, moves %s', e.type, e.aggregatetype, e.aggregateid, coalesce(h.n, 0))"
		" FROM @schema@.idem_outbox e"
		" JOIN @schema@.idem_machine_state s ON e.type = s.machine || '.' || s.state"
		" JOIN @schema@.idem_machine m ON m.name = s.machine AND m.builtin"
		" LEFT JOIN (SELECT event_id, count(*) AS n FROM @schema@.idem_history WHERE event_id IS NOT NULL GROUP BY event_id) h"
		" ON h.event_id = e.id"
		" WHERE coalesce(h.n, 0) <> 1"
	},

	/* ---------- what enforces all this ---------- */

	/* The triggers are there and fire */
	{
		"trigger_stands",
		"SELECT NULL, 'table', w.tab, format('trigger %s is %s', w.trigger,"
		" CASE t.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'enabled on replicas only' ELSE 'missing' END)"
		" FROM (VALUES ('idem_order', 'zz_idem_guard'), ('idem_order', 'zz_idem_record'), ('idem_order', 'zz_idem_truncate'),"
		" ('idem_payment', 'zz_idem_guard'), ('idem_payment', 'zz_idem_record'), ('idem_payment', 'zz_idem_truncate'),"
		" ('idem_payment_key', 'zz_idem_guard'), ('idem_payment_key', 'zz_idem_truncate'),"
		" ('idem_receipt', 'zz_idem_guard'), ('idem_receipt', 'zz_idem_truncate'),"
		" ('idem_refund', 'zz_idem_guard'), ('idem_refund', 'zz_idem_record'), ('idem_refund', 'zz_idem_truncate'),"
		" ('idem_dispute', 'zz_idem_guard'), ('idem_dispute', 'zz_idem_record'), ('idem_dispute', 'zz_idem_truncate'),"
		" ('idem_cluster', 'zz_idem_guard'), ('idem_cluster', 'zz_idem_truncate'),"
		" ('idem_anomaly', 'zz_idem_guard'), ('idem_anomaly', 'zz_idem_record'), ('idem_anomaly', 'zz_idem_truncate'),"
		" ('idem_notification', 'zz_idem_guard'), ('idem_notification', 'zz_idem_truncate'),"
		" ('idem_entitlement', 'zz_idem_guard'), ('idem_entitlement', 'zz_idem_record'), ('idem_entitlement', 'zz_idem_truncate'),"
		" ('idem_revocation', 'zz_idem_guard'), ('idem_revocation', 'zz_idem_truncate'),"
		" ('idem_campaign', 'zz_idem_guard'), ('idem_campaign', 'zz_idem_truncate'),"
		" ('idem_campaign_user', 'zz_idem_guard'), ('idem_campaign_user', 'zz_idem_truncate'),"
		" ('idem_hook', 'idem_hook_changed'), ('idem_hook', 'idem_hook_emptied'),"
		" ('idem_lease', 'zz_idem_guard'), ('idem_lease', 'zz_idem_truncate'),"
		" ('idem_request', 'zz_idem_guard'), ('idem_request', 'zz_idem_truncate'),"
		" ('idem_history', 'zz_idem_guard'), ('idem_history', 'zz_idem_truncate'),"
		" ('idem_outbox_0', 'zz_idem_guard'), ('idem_outbox_0', 'zz_idem_truncate'), ('idem_outbox_0', 'idem_outbox_stamp'),"
		" ('idem_outbox_1', 'zz_idem_guard'), ('idem_outbox_1', 'zz_idem_truncate'), ('idem_outbox_1', 'idem_outbox_stamp'),"
		" ('idem_outbox_2', 'zz_idem_guard'), ('idem_outbox_2', 'zz_idem_truncate'), ('idem_outbox_2', 'idem_outbox_stamp'),"
		" ('idem_outbox_3', 'zz_idem_guard'), ('idem_outbox_3', 'zz_idem_truncate'), ('idem_outbox_3', 'idem_outbox_stamp'),"
		" ('idem_outbox_ring', 'idem_outbox_turned'), ('idem_outbox_ring', 'idem_outbox_emptied'),"
		" ('idem_inbox', 'zz_idem_guard'), ('idem_inbox', 'zz_idem_truncate'),"
		" ('idem_token_used', 'zz_idem_guard'),"
		" ('idem_machine', 'zz_idem_rules'), ('idem_machine', 'zz_idem_truncate'),"
		" ('idem_machine_state', 'zz_idem_rules'), ('idem_machine_state', 'zz_idem_truncate'),"
		" ('idem_machine_move', 'zz_idem_rules'), ('idem_machine_move', 'zz_idem_truncate'),"
		" ('idem_machine_version', 'zz_idem_guard'), ('idem_machine_version', 'zz_idem_truncate'),"
		" ('idem_entity', 'zz_idem_guard'), ('idem_entity', 'zz_idem_truncate'),"
		" ('idem_access', 'idem_access_changed'), ('idem_access', 'idem_access_emptied'),"
		" ('idem_capability', 'idem_access_changed'), ('idem_capability', 'idem_access_emptied'),"
		" ('idem_token_secret', 'idem_secret_changed'), ('idem_token_secret', 'idem_secret_emptied')) w (tab, trigger)"
		" LEFT JOIN pg_class c ON c.relname = w.tab AND c.relnamespace = $1"
		" LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = w.trigger"
		" WHERE coalesce(t.tgenabled, 'D') NOT IN ('O', 'A')"
		" UNION ALL SELECT NULL, 'database', 'idem_drop_guard', 'the event trigger is missing or disabled'"
		" WHERE NOT EXISTS (SELECT FROM pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid"
		" WHERE p.proname = 'idem_drop_guard' AND p.pronamespace = $1 AND t.evtenabled IN ('O', 'A'))"
	},

	/* The unique indexes are there and hold */
	{
		"index_stands",
		"SELECT NULL, 'index', w.name, CASE WHEN i.indexrelid IS NULL THEN 'missing' ELSE 'not unique, or not valid' END"
		" FROM (VALUES ('idem_order_pkey'), ('idem_payment_pkey'), ('idem_payment_active'), ('idem_payment_request_key'), ('idem_payment_key_pkey'),"
		" ('idem_receipt_pkey'), ('idem_receipt_trade'), ('idem_receipt_payment'), ('idem_receipt_applied'),"
		" ('idem_refund_pkey'), ('idem_refund_channel'), ('idem_dispute_pkey'), ('idem_cluster_pkey'), ('idem_anomaly_pkey'), ('idem_anomaly_open'),"
		" ('idem_notification_pkey'), ('idem_channel_event_pkey'), ('idem_channel_event_change_pkey'), ('idem_channel_account_pkey'),"
		" ('idem_entitlement_pkey'), ('idem_revocation_pkey'), ('idem_campaign_pkey'), ('idem_campaign_user_pkey'), ('idem_hook_pkey'),"
		" ('idem_lease_pkey'), ('idem_request_pkey'), ('idem_inbox_pkey'), ('idem_subscription_pkey'), ('idem_parked_event_pkey'), ('idem_access_pkey'), ('idem_entity_pkey'),"
		" ('idem_token_used_pkey'), ('idem_token_secret_pkey')) w (name)"
		" LEFT JOIN pg_class c ON c.relname = w.name AND c.relnamespace = $1"
		" LEFT JOIN pg_index i ON i.indexrelid = c.oid"
		" WHERE i.indexrelid IS NULL OR NOT (i.indisunique AND i.indisvalid AND i.indisready AND i.indislive)"
	}
};

/* A subscription stands somewhere in each of its slots */
static const Invariant position_in_slot = {
	"position_in_slot",
	"SELECT NULL, 'subscription', s.subscription, format('no position in slot %s', n)"
	" FROM @schema@.idem_subscription s CROSS JOIN LATERAL generate_series(0, s.slots - 1) n"
	" LEFT JOIN @schema@.idem_position p ON p.subscription = s.subscription AND p.slot = n"
	" WHERE p.subscription IS NULL"
};

/*
 * Let the planner do what is right for whole tables, and nothing else, with the
 * memory that is meant for maintenance.
 */
static void
plan_for_whole_tables(void)
{
	char		memory_kb[16];

	snprintf(memory_kb, sizeof(memory_kb), "%d", Max(work_mem, maintenance_work_mem));
	idem_pin("work_mem", memory_kb);
	idem_pin("enable_nestloop", "off");
	idem_pin("enable_seqscan", "on");
	idem_pin("enable_hashjoin", "on");
	idem_pin("enable_mergejoin", "on");
	idem_pin("enable_hashagg", "on");
	idem_pin("enable_sort", "on");
	idem_pin("jit", "off");
}

/* Emit a row for everything that breaks the invariant */
static void
check_invariant(IdemCall *call, const Invariant *invariant)
{
	Oid			argtypes[] = {OIDOID};
	Datum		args[] = {ObjectIdGetDatum(call->house->nspoid)};
	Datum		name = CStringGetTextDatum(invariant->name);
	char	   *sql = idem_statement_text(call->house, invariant->sql);
	int			rc = SPI_execute_with_args(sql, lengthof(args), argtypes, args, NULL, true, 0);

	if (rc != SPI_OK_SELECT)
		elog(ERROR, "could not check \"%s\": %s", invariant->name, SPI_result_code_string(rc));

	for (uint64 row = 0; row < SPI_processed; row++)
	{
		idem_put(call, VERIFY_INVARIANT, name);
		for (int column = VERIFY_TENANT_ID; column <= VERIFY_DETAIL; column++)
			idem_put_nullable(call, column, idem_result(call, row, column));
		idem_emit(call);
	}
	SPI_freetuptable(SPI_tuptable);
}

/*
 * Positions are moved between two tables, of which one is then emptied; to a
 * snapshot of before they are nowhere.  So nobody may move them from here on, and
 * what is there by now is seen.
 */
static void
check_positions(IdemCall *call)
{
	LockRelationOid(relation_oid(call->house, "idem_position_0"), AccessShareLock);
	LockRelationOid(relation_oid(call->house, "idem_position_1"), AccessShareLock);
	PushActiveSnapshot(GetLatestSnapshot());
	check_invariant(call, &position_in_slot);
	PopActiveSnapshot();
}

/*
 * idem_verify() -> rows (invariant, tenant_id, entity, key, detail)
 *
 * Every invariant that is broken, and by what.
 */
PG_FUNCTION_INFO_V1(idem_verify);
Datum
idem_verify(PG_FUNCTION_ARGS)
{
	IdemCall   *call = idem_enter(fcinfo);

	idem_begin_rows(call);
	idem_connect(call);
	plan_for_whole_tables();
	for (int i = 0; i < (int) lengthof(invariants); i++)
	{
		CHECK_FOR_INTERRUPTS();
		check_invariant(call, &invariants[i]);
	}
	check_positions(call);
	verify_attached_tables(call);
	return idem_leave_rows(call);
}
