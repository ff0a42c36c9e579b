--
-- notification: what channels tell, each once, whatever it fits.
--
\set SHOW_CONTEXT never

-- What became of a tenant's money, payments and anomalies, and how often each was told.
CREATE TEMP VIEW heard AS
	SELECT tenant_id, channel, account, notify_id, kind, outcome, ack, hits FROM idem_notification;
CREATE TEMP VIEW money AS
	SELECT r.tenant_id, r.trade_no, r.reported_payment_no AS reported, r.payment_no, r.disposition, r.amount, r.currency,
		(SELECT f.status || ' ' || f.amount FROM idem_refund f WHERE f.tenant_id = r.tenant_id AND f.refund_no = 'A' || r.receipt_no) AS refund,
		(SELECT string_agg(a.kind || ' x' || a.hits, ', ' ORDER BY a.anomaly_no) FROM idem_anomaly a
		 WHERE a.tenant_id = r.tenant_id AND a.entity = 'receipt' AND a.key = r.receipt_no AND a.status = 'opened') AS anomalies
	FROM idem_receipt r;
CREATE TEMP VIEW moves AS
	SELECT tenant_id, aggregateid, type FROM idem_outbox WHERE type NOT LIKE 'anomaly.%';

--
-- 6.5: a duplicate callback, by its id and by its fact.
--
SELECT outcome FROM idem_create_payment('dup', 'o', 100, 'CNY', payment_no => 'pay_001', channel => 'alipay');
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, refund_no
FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'cny', occurred_at => '2024-01-01 00:00:00+00', payload => '{"notify_time": "1", "a": 1}');
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, refund_no
FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'cny', occurred_at => '2024-01-02 00:00:00+00', payload => '{"notify_time": "2", "a": 1}');
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, refund_no
FROM idem_receive_notification('dup', 'alipay', 'n2', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('dup', 'alipay', 'n3', 'pay_001', 'T1', 'TRADE_FINISHED', 100, 'CNY');
SELECT * FROM heard WHERE tenant_id = 'dup' ORDER BY notify_id;
SELECT version, paid_at = '2024-01-01 00:00:00+00' AS paid_at FROM idem_payment p JOIN idem_receipt r USING (tenant_id, payment_no) WHERE tenant_id = 'dup';
SELECT * FROM moves WHERE tenant_id = 'dup' ORDER BY type;
SELECT count(*) FROM idem_anomaly WHERE tenant_id = 'dup';
SELECT event, reason FROM idem_history WHERE tenant_id = 'dup' AND entity = 'payment' ORDER BY version;

--
-- 6.5: the same id with another body is tampered with; what was said first holds.
--
SELECT outcome, ack, status, payment_no, receipt_no FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 99, 'cny', payload => '{"a": 1}');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'cny', payload => '{"a": 2}');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'cny');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'cny', payload => '{"a": 1.0}');
-- on another account, or of another channel, it is another id
SELECT outcome, ack FROM idem_receive_notification('dup', 'wechat', 'n1', 'pay_001', 'T1', 'NOTPAY', 100, 'cny');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', 'n1', 'pay_001', 'T1', 'WAIT_BUYER_PAY', 100, 'cny', 'a9');
SELECT * FROM heard WHERE tenant_id = 'dup' AND notify_id = 'n1' ORDER BY channel, account;
SELECT kind, entity, key, status, hits, detail FROM idem_anomaly WHERE tenant_id = 'dup';

-- Without an id, all that was said is one.
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', NULL, 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', NULL, 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', '', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', NULL, 'pay_001', 'T1', 'TRADE_SUCCESS', 101, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('dup', 'alipay', NULL, 'pay_001', 'T1', 'TRADE_SUCCESS', 101, 'CNY', occurred_at => '2024-01-01 00:00:00+00');
SELECT amount, occurred_at IS NOT NULL AS at, outcome, hits FROM idem_notification WHERE tenant_id = 'dup' AND notify_id LIKE 'sha256:%' AND length(notify_id) = 71 ORDER BY 1, 2;

--
-- 6.5: another amount or currency: review, once.
--
SELECT outcome FROM generate_series(1, 2) i, idem_create_payment('mis', 'o' || i, 100, 'CNY', payment_no => 'pay_00' || i);
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt, refund_no FROM idem_receive_notification('mis', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 99, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('mis', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 99, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('mis', 'alipay', 'n2', 'pay_001', 'T1', 'TRADE_SUCCESS', 99, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('mis', 'alipay', 'n3', 'pay_002', 'T2', 'TRADE_SUCCESS', 100, 'USD');
SELECT * FROM money WHERE tenant_id = 'mis' ORDER BY trade_no;
SELECT * FROM heard WHERE tenant_id = 'mis' ORDER BY notify_id;

--
-- 6.5: another merchant's account, another channel: rejected, the payment untouched.
--
SELECT outcome FROM idem_create_payment('rej', 'o', 100, 'CNY', payment_no => 'pay_001', channel => 'alipay', account => 'a1');
SELECT outcome FROM idem_set_channel_account('rej', 'wechat', 'w1');
SELECT n, outcome, ack, status, payment_no, refund_no FROM (VALUES
	(1, 'alipay', 'TRADE_SUCCESS', 'a2'), (2, 'alipay', 'TRADE_CLOSED', 'a2'), (3, 'wechat', 'TRANSACTION.SUCCESS', 'w2'), (4, 'wechat', 'CLOSED', 'w1'), (5, 'wechat', 'CLOSED', 'w2'),
	(6, 'wechat', 'CLOSED', NULL)) AS said (n, channel, event, account),
	idem_receive_notification('rej', channel, 'n' || n, 'pay_001', 'T' || n, event, 100, 'CNY', account) ORDER BY n;
SELECT outcome, ack, status FROM idem_receive_notification('rej', 'alipay', 'n2', 'pay_001', 'T2', 'TRADE_CLOSED', 100, 'CNY', 'a2');
SELECT status, version FROM idem_payment WHERE tenant_id = 'rej';
SELECT * FROM heard WHERE tenant_id = 'rej' ORDER BY channel, notify_id;
SELECT kind, entity, CASE entity WHEN 'notification' THEN key END AS key, order_id, hits FROM idem_anomaly WHERE tenant_id = 'rej' ORDER BY anomaly_no;
-- judged anew at each delivery: the account was entered meanwhile
SELECT outcome, ack FROM idem_receive_notification('rej', 'wechat', 'n7', 'pay_009', 'T7', 'TRANSACTION.SUCCESS', 100, 'CNY', 'w3');
SELECT outcome FROM idem_set_channel_account('rej', 'wechat', 'w3');
SELECT outcome FROM idem_create_payment('rej', 'o9', 100, 'CNY', payment_no => 'pay_009');
SELECT outcome, ack, status, payment_no FROM idem_receive_notification('rej', 'wechat', 'n7', 'pay_009', 'T7', 'TRANSACTION.SUCCESS', 100, 'CNY', 'w3');
SELECT outcome, ack, status FROM idem_receive_notification('rej', 'wechat', 'n7', 'pay_009', 'T7', 'TRANSACTION.SUCCESS', 100, 'CNY', 'w3');
SELECT * FROM heard WHERE tenant_id = 'rej' AND notify_id = 'n7';

--
-- Money that came through another channel, or on another account, goes back there, and is disputed there: that channel speaks for it.
--
SELECT outcome FROM idem_create_payment('away', 'o', 100, 'CNY', payment_no => 'pay_001', channel => 'alipay');
SELECT outcome FROM idem_create_payment('away', 'p', 100, 'CNY', payment_no => 'pay_002', channel => 'wechat', account => 'w1');
SELECT n, outcome FROM (VALUES
	(1, 'alipay', 'pay_001', 'TRADE_SUCCESS', NULL), (2, 'wechat', 'pay_001', 'TRANSACTION.SUCCESS', NULL), (3, 'stripe', 'pay_001', 'payment_intent.succeeded', NULL), (4, 'wechat', 'pay_002', 'TRANSACTION.SUCCESS', 'w2')) AS said (n, channel, payment, event, account),
	idem_receive_notification('away', channel, 'n' || n, payment, 'T' || n, event, 100, 'CNY', account) ORDER BY n;
SELECT trade_no, outcome FROM idem_receipt r, idem_refund_receipt('away', r.receipt_no, 'not ours') WHERE tenant_id = 'away' AND disposition = 'rejected';
SELECT r.trade_no, s.outcome FROM idem_refund f JOIN idem_receipt r USING (tenant_id, receipt_no), idem_submit_refund('away', f.refund_no) s WHERE f.tenant_id = 'away' ORDER BY 1;
SELECT trade_no, n.outcome, ack, n.status FROM idem_refund f JOIN idem_receipt r USING (tenant_id, receipt_no),
	idem_receive_notification('away', 'wechat', 'back ' || trade_no, reported_payment_no, trade_no, 'REFUND.SUCCESS', 100, 'CNY', nullif(r.account, ''), f.refund_no, 100) n
WHERE f.tenant_id = 'away' AND r.channel = 'wechat' ORDER BY trade_no;
SELECT outcome, ack, status FROM idem_receive_notification('away', 'stripe', 'n5', 'pay_001', 'T3', 'charge.dispute.created', 40, 'CNY', biz_no => 'd5');
-- but not for a trade that is not its money, from another account, nor of what the payment itself has become
SELECT n, outcome, ack, status FROM (VALUES
	(6, 'wechat', 'pay_001', 'T6', 'REFUND.SUCCESS', NULL), (7, 'wechat', 'pay_002', 'T4', 'REFUND.SUCCESS', 'w3'), (8, 'wechat', 'pay_001', 'T2', 'CLOSED', NULL), (9, 'stripe', 'pay_001', 'T2', 'charge.dispute.created', NULL)) AS said (n, channel, payment, trade, event, account),
	idem_receive_notification('away', channel, 'n' || n, payment, trade, event, 100, 'CNY', account, 'x' || n, CASE WHEN event <> 'CLOSED' THEN 40 END) ORDER BY n;
SELECT channel, trade_no, disposition, refund_reserved, refunded, disputed, excess FROM idem_receipt WHERE tenant_id = 'away' ORDER BY trade_no;

-- whoever names no account means the payment's own
SELECT outcome FROM idem_create_payment('away', 'q', 100, 'CNY', payment_no => 'pay_003', channel => 'stripe', account => 's1');
SELECT outcome FROM idem_receive_notification('away', 'stripe', 'q1', 'pay_003', 'T10', 'payment_intent.succeeded', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('away', 'stripe', 'q2', 'pay_003', 'T10', 'charge.dispute.created', 100, 'CNY', biz_no => 'd11');
SELECT outcome, stage, remainder FROM idem_record_dispute('away', 'stripe', 's1', 'T10', 'd11', 'won', 100, 'CNY');
-- but not at another channel: what that one tells of the money names its own, or none
SELECT outcome FROM idem_create_payment('away', 'r', 100, 'CNY', payment_no => 'pay_004', channel => 'wechat', account => 'w1');
SELECT n, outcome, ack FROM (VALUES
	(12, NULL, 'payment_intent.succeeded', NULL), (13, 's1', 'refund.updated.succeeded', 30), (14, NULL, 'charge.dispute.created', 40), (15, 's1', 'charge.dispute.created', 40)) AS said (n, account, event, amount),
	idem_receive_notification('away', 'stripe', 'q' || n, 'pay_004', 'T12', event, 100, 'CNY', account, CASE amount WHEN 30 THEN 'r12' WHEN 40 THEN 'd12' END, amount) ORDER BY n;
SELECT r.channel, r.account, d.account AS disputed_on, refund_reserved, refunded, disputed FROM idem_receipt r LEFT JOIN idem_dispute d USING (tenant_id, receipt_no) WHERE r.tenant_id = 'away' AND r.trade_no = 'T12';

--
-- 6.5: after our close, the order cancelled: late, and on its way back.
--
SELECT outcome FROM idem_create_order('late', 'o', 100, 'CNY');
SELECT outcome FROM idem_create_payment('late', 'o', 100, 'CNY', payment_no => 'pay_001');
SELECT outcome FROM idem_cancel_order('late', 'o');
SELECT outcome, ack, status, payment_no, refund_no = 'A' || receipt_no AS refund FROM idem_receive_notification('late', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
-- a handle stands while the refund is still to be sent
SELECT outcome, ack, status, payment_no, refund_no = 'A' || receipt_no AS refund FROM idem_receive_notification('late', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM money WHERE tenant_id = 'late';
SELECT status FROM idem_order WHERE tenant_id = 'late';

--
-- 6.5: after our close, the order pending: applied, and the other attempt closes; that one is paid, too: surplus.
--
SELECT outcome FROM idem_create_payment('twice', 'o', 100, 'CNY', payment_no => 'pay_001');
SELECT outcome FROM idem_close_payment('twice', 'pay_001');
SELECT outcome FROM idem_create_payment('twice', 'o', 100, 'CNY', payment_no => 'pay_002');
SELECT outcome, ack, status, payment_no FROM idem_receive_notification('twice', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT payment_no, status FROM idem_payment WHERE tenant_id = 'twice' ORDER BY payment_no;
SELECT outcome, ack, status, payment_no, refund_no = 'A' || receipt_no AS refund FROM idem_receive_notification('twice', 'wechat', 'n2', 'pay_002', 'T2', 'TRANSACTION.SUCCESS', 100, 'CNY');
-- 6.5: one attempt, two trade numbers
SELECT outcome, ack, status, payment_no, refund_no = 'A' || receipt_no AS refund FROM idem_receive_notification('twice', 'alipay', 'n3', 'pay_001', 'T3', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM money WHERE tenant_id = 'twice' ORDER BY trade_no;
SELECT type, count(*) FROM moves WHERE tenant_id = 'twice' GROUP BY type ORDER BY type;

--
-- 6.5: an unknown payment: come again, while it is young; then it is a human's.
--
SELECT outcome, ack, status, payment_no, receipt_no IS NOT NULL AS receipt FROM idem_receive_notification('orphan', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n2', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM heard WHERE tenant_id = 'orphan' ORDER BY notify_id;
SELECT * FROM money WHERE tenant_id = 'orphan';
BEGIN;
SET LOCAL idem.orphan_grace = 0;
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM heard WHERE tenant_id = 'orphan' ORDER BY notify_id;
ROLLBACK;
-- its age is the fact's, not the id's
BEGIN;
SET LOCAL session_replication_role = replica;
UPDATE idem_notification SET received_at = now() - interval '299 seconds' WHERE tenant_id = 'orphan' AND notify_id = 'n1';
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n3', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
UPDATE idem_notification SET received_at = now() - interval '300 seconds' WHERE tenant_id = 'orphan' AND notify_id = 'n1';
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n3', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('orphan', 'alipay', 'n4', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
ROLLBACK;
-- creating the payment adopts its money; the channel, told to come again, hears so
SELECT outcome, status FROM idem_create_payment('orphan', 'o', 100, 'CNY', payment_no => 'pay_001');
SELECT outcome, ack, status FROM idem_receive_notification('orphan', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('orphan', 'alipay', 'n1', 'pay_001', 'T1', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM heard WHERE tenant_id = 'orphan' ORDER BY notify_id;
SELECT kind, status, hits, resolution FROM idem_anomaly WHERE tenant_id = 'orphan';
-- a failure, and a close, of what is unknown
SELECT outcome, ack, status FROM idem_receive_notification('orphan', 'alipay', 'n5', 'pay_002', 'T2', 'TRADE_CLOSED', 100, 'CNY');
SELECT outcome FROM idem_create_payment('orphan', 'o2', 100, 'CNY', payment_no => 'pay_002');
SELECT outcome, ack, status, payment_no FROM idem_receive_notification('orphan', 'alipay', 'n5', 'pay_002', 'T2', 'TRADE_CLOSED', 100, 'CNY');

--
-- Every kind that is about a payment, in every state of it.
--
SELECT outcome FROM idem_set_channel_event('desk', 'paid', false, 'paid');
SELECT outcome FROM idem_set_channel_event('desk', 'failed', false, 'failed');
SELECT outcome FROM idem_set_channel_event('desk', 'closed', false, 'closed');
SELECT outcome FROM idem_set_channel_event('desk', 'none', false, 'none');
CREATE TEMP TABLE state (n int, s text);
INSERT INTO state VALUES (0, 'unknown'), (1, 'pending'), (2, 'closing'), (3, 'review'), (4, 'paid'), (5, 'paid_late'), (6, 'failed'), (7, 'closed');
SELECT s, r.outcome FROM state, idem_create_payment('cells', 'order_' || s, 100, 'CNY', payment_no => 'cell_' || s) r WHERE n > 0 ORDER BY n;
SELECT outcome, status FROM idem_begin_close('cells', 'cell_closing');
SELECT outcome, status FROM idem_confirm_payment('cells', 'cell_review', 'desk', 'first', 99, 'CNY');
SELECT outcome, status FROM idem_confirm_payment('cells', 'cell_paid', 'desk', 'second', 100, 'CNY');
SELECT outcome, status FROM idem_fail_payment('cells', 'cell_paid_late');
SELECT outcome, status FROM idem_confirm_payment('cells', 'cell_paid_late', 'desk', 'third', 99, 'CNY');
SELECT outcome, status FROM idem_fail_payment('cells', 'cell_failed');
SELECT outcome, status FROM idem_close_payment('cells', 'cell_closed');
BEGIN;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'n' || n, 'cell_' || s, 'T' || n, 'paid', 100, 'CNY') r ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'n' || n, 'cell_' || s, 'T' || n, 'failed', 100, 'CNY') r ORDER BY n;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'n' || n, 'cell_' || s, 'T' || n, 'failed', 100, 'CNY') r ORDER BY n;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'm' || n, 'cell_' || s, 'T' || n, 'failed', 100, 'CNY') r ORDER BY n;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'n' || n, 'cell_' || s, 'T' || n, 'closed', 100, 'CNY') r ORDER BY n;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'm' || n, 'cell_' || s, 'T' || n, 'closed', 100, 'CNY') r ORDER BY n;
SELECT payment_no, status, next_check_at IS NOT NULL AS looked_at_once_more FROM idem_payment WHERE tenant_id = 'cells' AND status = 'closed' ORDER BY payment_no;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'n' || n, 'cell_' || s, 'T' || n, 'none', 100, 'CNY') r ORDER BY n;
SELECT count(*) FROM idem_anomaly WHERE tenant_id = 'cells' AND entity <> 'receipt';
-- an event that nobody has mapped: one anomaly, however many tell it
SELECT s, r.outcome, r.ack, r.status, r.payment_no FROM state, idem_receive_notification('cells', 'desk', 'm' || n, 'cell_' || s, 'T' || n, 'void', 100, 'CNY') r ORDER BY n;
SELECT outcome, ack FROM idem_receive_notification('cells', 'desk', 'm8', 'cell_paid', 'T8', NULL, 100, 'CNY');
SELECT outcome, ack FROM idem_receive_notification('cells', 'desk', 'm9', 'cell_paid', 'T9', 'paid', 100, 'CNY', refund_amount => 1);
SELECT kind, entity, key, hits FROM idem_anomaly WHERE tenant_id = 'cells' AND entity <> 'receipt' ORDER BY key;
-- mapped since: it is judged when it comes again
SELECT outcome FROM idem_set_channel_event('desk', 'void', false, 'closed');
SELECT outcome, ack, status, payment_no FROM idem_receive_notification('cells', 'desk', 'm1', 'cell_pending', 'T1', 'void', 100, 'CNY');
ROLLBACK;

--
-- Every kind that is about a refund or a dispute, told once, again, and under another id.
--
SELECT outcome FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind, idem_set_channel_event('desk', kind, kind LIKE 'refund%', kind);
SELECT DISTINCT p.outcome, n.outcome FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind,
	idem_create_payment('back', kind, 100, 'CNY', channel => 'desk', account => 'd1', payment_no => 'p_' || kind) p, idem_receive_notification('back', 'desk', 'paid ' || kind, 'p_' || kind, 'T ' || kind, 'paid', 100, 'CNY', 'd1') n;
SELECT r.outcome, s.outcome FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed}'::text[]) AS kind, idem_request_refund('back', 'p_' || kind, 'r_' || kind, 40, 'CNY') r, idem_submit_refund('back', r.refund_no) s;
CREATE FUNCTION pg_temp.told(kind text, id text, account text = 'd1') RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(', ', outcome, 'ack ' || ack, status, payment_no, CASE WHEN receipt_no IS NOT NULL THEN 'receipt' END, refund_no)
	FROM idem_receive_notification('back', 'desk', id || kind, 'p_' || kind, 'T ' || kind, kind, CASE WHEN kind LIKE 'disp%' THEN 40 END, 'cny', account,
		biz_no => 'r_' || kind, refund_amount => CASE WHEN kind LIKE 'refund%' THEN 40 END)
$$;
SELECT kind, pg_temp.told(kind, 'n1 ', 'd2') AS foreign FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind;
SELECT kind, pg_temp.told(kind, 'n1 ') AS first FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind;
SELECT kind, pg_temp.told(kind, 'n1 ') AS again FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind;
SELECT kind, pg_temp.told(kind, 'n2 ') AS other_id FROM unnest('{refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost}'::text[]) AS kind;
SELECT reported_payment_no, refund_reserved, refunded, disputed FROM idem_receipt WHERE tenant_id = 'back' ORDER BY 1;
-- 6.5: a failure that is older than the refund's last submit is stale, under whichever id; an id that was heard stays heard
SELECT outcome FROM idem_retry_refund('back', 'r_refund_failed');
SELECT pg_temp.told('refund_failed', 'n1 ');
SELECT outcome, ack, status FROM idem_receive_notification('back', 'desk', 'old', 'p_refund_failed', 'T refund_failed', 'refund_failed', NULL, 'CNY', 'd1', biz_no => 'r_refund_failed', refund_amount => 40, occurred_at => '2024-01-01 00:00:00+00');
SELECT outcome, ack, status FROM idem_receive_notification('back', 'desk', 'new', 'p_refund_failed', 'T refund_failed', 'refund_failed', NULL, 'CNY', 'd1', biz_no => 'r_refund_failed', refund_amount => 40, occurred_at => clock_timestamp() + interval '1 hour');

--
-- Amounts that are none, another currency, another tenant's payment and account: recorded, never applied.
--
SELECT outcome FROM generate_series(1, 6) i, idem_create_payment('odd', 'o' || i, 100, 'CNY', payment_no => 'odd_00' || i);
SELECT n, outcome, ack, status, refund_no FROM (VALUES
	(1, 0, 'CNY'), (2, -1, 'CNY'), (3, NULL, 'CNY'), (4, 100, NULL), (5, 100, 'RMB '), (6, 9223372036854775807, 'CNY')) AS said (n, amount, currency),
	idem_receive_notification('odd', 'alipay', 'n' || n, 'odd_00' || n, 'T' || n, 'TRADE_SUCCESS', amount, currency) ORDER BY n;
SELECT outcome, ack, status FROM idem_receive_notification('odd', 'alipay', 'n7', 'odd_001', '', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('odd', 'alipay', 'n8', NULL, NULL, 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('odd', '', 'n9', 'odd_002', 'T9', 'TRADE_SUCCESS', 100, 'CNY');
SELECT outcome, ack, status FROM idem_receive_notification('odd', 'alipay', 'n10', '', 'T10', 'TRADE_CLOSED', 100, 'CNY');
SELECT * FROM money WHERE tenant_id = 'odd' ORDER BY trade_no, amount;
SELECT outcome FROM idem_create_payment('odd_2', 'o', 100, 'CNY', payment_no => 'theirs_1', channel => 'alipay', account => 'b1');
SELECT outcome, ack, status FROM idem_receive_notification('odd', 'alipay', 'n11', 'theirs_1', 'T11', 'TRADE_SUCCESS', 100, 'CNY', 'b1');
SELECT outcome, ack, status FROM idem_receive_notification('odd_2', 'alipay', 'n11', 'theirs_1', 'T11', 'TRADE_SUCCESS', 100, 'CNY', 'a1');
SELECT outcome, ack, status FROM idem_receive_notification('odd_2', 'alipay', 'n11', 'theirs_1', 'T11', 'TRADE_SUCCESS', 100, 'CNY', 'b1');
SELECT * FROM heard WHERE notify_id = 'n11' ORDER BY tenant_id, account;

--
-- Keys that are too long are stood for by their digests; nothing else raises but tenant and channel.
--
SELECT outcome, ack, status FROM idem_receive_notification('long', 'alipay', repeat('n', 300), repeat('p', 300), repeat('t', 300), 'TRADE_SUCCESS', 100, 'CNY', repeat('a', 300), repeat('b', 300), NULL, NULL, NULL, repeat('c', 300), repeat('d', 300));
SELECT outcome, ack, status FROM idem_receive_notification('long', 'alipay', repeat('n', 300), repeat('p', 300), repeat('t', 300), 'TRADE_SUCCESS', 100, 'CNY', repeat('a', 300), repeat('b', 300), NULL, NULL, NULL, repeat('c', 300), repeat('d', 300));
SELECT outcome, ack FROM idem_receive_notification('long', 'alipay', 'n', 'p', 't', repeat('e', 100000), 100, 'CNY', payload => to_jsonb(repeat('j', 100000)));
SELECT length(notify_id), length(payment_no), length(trade_no), length(account), length(biz_no), length(channel_refund_no), length(event), outcome, hits FROM idem_notification WHERE tenant_id = 'long' ORDER BY 1;
\set VERBOSITY sqlstate
SELECT * FROM idem_receive_notification(NULL, 'alipay', 'n', 'p', 't', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM idem_receive_notification(repeat('x', 256), 'alipay', 'n', 'p', 't', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM idem_receive_notification('long', NULL, 'n', 'p', 't', 'TRADE_SUCCESS', 100, 'CNY');
SELECT * FROM idem_receive_notification('long', repeat('x', 256), 'n', 'p', 't', 'TRADE_SUCCESS', 100, 'CNY');
\set VERBOSITY default
SELECT outcome, ack FROM idem_receive_notification('', '', NULL, NULL, NULL, NULL, NULL, NULL);

--
-- Nobody's: under tenant unrouted, until somebody knows better.
--
SELECT outcome FROM idem_create_payment('home', 'o', 100, 'CNY', payment_no => 'home_01');
SELECT outcome, ack, status, payment_no FROM idem_receive_notification('unrouted', 'alipay', 'stray', 'home_01', 'T1', 'TRADE_SUCCESS', 100, 'CNY', 'a1', payload => '{"a": 1}');
SELECT outcome, ack FROM idem_receive_notification('unrouted', 'alipay', 'stray', 'home_01', 'T1', 'TRADE_SUCCESS', 100, 'CNY', 'a1', payload => '{"a": 1}');
SELECT outcome, ack FROM idem_receive_notification('unrouted', 'alipay', 'quiet', 'home_01', 'T1', 'WAIT_BUYER_PAY', 100, 'CNY', 'a1');
SELECT count(*) FROM idem_receipt WHERE tenant_id = 'unrouted';
SELECT kind, entity, key, status, hits FROM idem_anomaly WHERE tenant_id = 'unrouted' AND key LIKE '%stray';
SELECT outcome, ack, status, payment_no FROM idem_reroute_notification('alipay', 'a1', 'stray', 'home');
SELECT outcome, ack, status, payment_no FROM idem_reroute_notification('alipay', 'a1', 'stray', 'home');
SELECT outcome, ack, status, payment_no FROM idem_reroute_notification('alipay', 'a1', 'stray', 'odd');
SELECT outcome, ack FROM idem_receive_notification('unrouted', 'alipay', 'stray', 'home_01', 'T1', 'TRADE_SUCCESS', 100, 'CNY', 'a1', payload => '{"a": 1}');
SELECT tenant_id, outcome, hits, routed_to, payload FROM idem_notification WHERE notify_id = 'stray' ORDER BY tenant_id;
SELECT kind, status, resolution FROM idem_anomaly WHERE tenant_id = 'unrouted' AND key LIKE '%stray';
\set VERBOSITY sqlstate
SELECT * FROM idem_reroute_notification('alipay', 'a1', 'no such', 'home');
SELECT * FROM idem_reroute_notification('alipay', '', 'stray', 'home');
SELECT * FROM idem_reroute_notification('alipay', 'a1', 'stray', 'unrouted');
SELECT * FROM idem_reroute_notification('alipay', 'a1', 'stray', '');
SELECT * FROM idem_reroute_notification('alipay', 'a1', 'stray', NULL);
SELECT * FROM idem_reroute_notification('', 'a1', 'stray', 'home');
SELECT * FROM idem_reroute_notification('alipay', NULL, 'stray', 'home');
SELECT * FROM idem_reroute_notification('alipay', 'a1', NULL, 'home');

-- What was said is not rewritten.
UPDATE idem_notification SET amount = 1 WHERE tenant_id = 'dup';
UPDATE idem_notification SET payload = '{}' WHERE tenant_id = 'dup';
UPDATE idem_notification SET routed_to = 'odd' WHERE tenant_id = 'unrouted' AND notify_id = 'stray';
DELETE FROM idem_notification WHERE tenant_id = 'dup';
TRUNCATE idem_notification;
\set VERBOSITY default

SELECT * FROM idem_verify() WHERE tenant_id IN ('dup', 'mis', 'rej', 'late', 'twice', 'orphan', 'cells', 'odd', 'odd_2', 'long', 'home', 'unrouted', 'back') OR tenant_id IS NULL;
