--
-- refund_settle: what channels say of refunds.
--
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.payment_no, r.trade_no, r.disposition, r.amount, r.refund_reserved AS reserved, r.refunded, r.excess,
		(SELECT string_agg(CASE WHEN refund_no = 'A' || receipt_no THEN 'A' ELSE refund_no END || ' ' || cause || ' ' || status || ' ' || f.amount, ', ' ORDER BY f.created_at)
		 FROM idem_refund f WHERE f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no) AS refunds
	FROM idem_receipt r;
CREATE TEMP VIEW anomalies AS
	SELECT tenant_id, kind, entity, CASE entity WHEN 'receipt' THEN '(receipt)' ELSE key END AS key, status, resolution, hits
	FROM idem_anomaly;

--
-- Every state of a refund, 60 of 100 in each; the last one failed in a way that takes successes back.
--
CREATE TEMP TABLE state (n int, s text, result text);
INSERT INTO state VALUES (1, 'requested', NULL), (2, 'processing', NULL), (3, 'succeeded', 'succeeded'), (4, 'failed', 'failed'),
	(5, 'closed', 'closed'), (6, 'abnormal', 'abnormal'), (7, 'cancelled', NULL), (8, 'reversed', 'succeeded');
SELECT r.outcome, count(*) FROM state, idem_create_payment('settle', 'order_' || s, 100, 'CNY', payment_no => 'pay_' || s) r GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_confirm_payment('settle', 'pay_' || s, 'alipay', 'T_' || s, 100, 'CNY', 'm1') r GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_request_refund('settle', 'pay_' || s, 'r_' || s, 60, 'CNY') r GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_submit_refund('settle', 'r_' || s) r WHERE s NOT IN ('requested', 'cancelled') GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_settle_refund('settle', 'r_' || s, result) r WHERE result IS NOT NULL GROUP BY 1;
SELECT outcome FROM idem_settle_refund('settle', 'r_reversed', 'reversed');
SELECT outcome FROM idem_cancel_refund('settle', 'r_cancelled');

-- succeeded
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'succeeded') r WHERE s IN ('succeeded', 'reversed') ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'succeeded') r WHERE s NOT IN ('succeeded', 'reversed') ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'succeeded') r ORDER BY n;
SELECT payment_no, reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'settle' ORDER BY payment_no;
SELECT kind, entity, key, status, resolution FROM anomalies WHERE tenant_id = 'settle' AND kind = 'refund_abnormal';
SELECT outcome FROM idem_cancel_refund('settle', 'r_requested');
ROLLBACK;
-- failed
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'failed') r WHERE s NOT IN ('requested', 'processing', 'abnormal') ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'failed') r WHERE s IN ('requested', 'processing', 'abnormal') ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'failed') r WHERE s IN ('requested', 'processing', 'abnormal') ORDER BY n;
ROLLBACK;
-- closed
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'closed') r ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'closed') r WHERE s IN ('requested', 'processing', 'abnormal') ORDER BY n;
ROLLBACK;
-- abnormal
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'abnormal') r ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'abnormal') r WHERE s IN ('requested', 'processing', 'abnormal') ORDER BY n;
SELECT kind, key, status FROM anomalies WHERE tenant_id = 'settle' AND kind = 'refund_abnormal' ORDER BY key;
ROLLBACK;
-- timeout: the reserve stays, and the channel is to be asked at once
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'timeout') r ORDER BY n;
SELECT status, next_check_at <= clock_timestamp() AS due FROM idem_refund WHERE tenant_id = 'settle' AND status IN ('requested', 'processing', 'abnormal') ORDER BY 1;
COMMIT;
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'timeout') r WHERE s IN ('requested', 'processing', 'abnormal') ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS due_is_due;
ROLLBACK;
-- reversed: before the success was told, too
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'reversed') r ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'reversed') r ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'succeeded') r ORDER BY n;
SELECT payment_no, reserved, refunded, refunds FROM books WHERE tenant_id = 'settle' ORDER BY payment_no;
SELECT kind, key, status, hits FROM anomalies WHERE tenant_id = 'settle' AND kind = 'refund_reversed' ORDER BY key;
ROLLBACK;

-- A word that nobody knows, an amount that is none, a currency that is none, an empty key: kept.
BEGIN;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, 'perhaps') r ORDER BY n;
SELECT s, r.* FROM state, idem_settle_refund('settle', 'r_' || s, NULL) r WHERE n = 1;
SELECT kind, count(*) FROM anomalies WHERE tenant_id = 'settle' AND entity = 'refund' AND kind = 'unmapped_event' GROUP BY 1;
SELECT a, r.* FROM unnest('{0,-1}'::bigint[]) a, idem_settle_refund('settle', 'r_processing', 'succeeded', amount => a) r;
SELECT c, r.* FROM unnest('{"",EURO,12}'::text[]) c, idem_settle_refund('settle', 'r_processing', 'succeeded', currency => c) r;
SELECT * FROM idem_settle_refund('settle', '', 'succeeded', amount => 1, payment_no => 'pay_processing');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', channel_refund_no => '');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', payment_no => '');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', channel => '');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', trade_no => '');
SELECT kind, key, status, hits FROM anomalies WHERE tenant_id = 'settle' AND key IN ('r_processing', 'pay_processing') AND kind <> 'unmapped_event' ORDER BY kind, key;
SELECT payment_no, reserved, refunded, refunds FROM books WHERE tenant_id = 'settle' AND payment_no = 'pay_processing';
ROLLBACK;

-- A refund of ours, said to be about something else: another payment, channel, account, trade.
BEGIN;
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', payment_no => 'pay_requested');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', channel => 'wechat');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', channel => 'alipay', account => 'm2');
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', trade_no => 'T_requested');
SELECT kind, key, status, hits FROM anomalies WHERE tenant_id = 'settle' AND kind = 'refund_unmatched';
-- another tenant knows neither the refund nor the money
SELECT * FROM idem_settle_refund('settle_others', 'r_processing', 'succeeded', amount => 60, payment_no => 'pay_processing', channel => 'alipay', account => 'm1', trade_no => 'T_processing');
SELECT kind, key, status, hits FROM anomalies WHERE tenant_id = 'settle_others';
-- all of it said as we know it
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', 'C1', 60, now(), 'pay_processing', 'alipay', 'm1', 'T_processing', 'cny');
SELECT channel_refund_no, settled_at = now() AS settled_then FROM idem_refund WHERE tenant_id = 'settle' AND refund_no = 'r_processing';
ROLLBACK;

-- Booked at our amount, whatever is said.
BEGIN;
SELECT * FROM idem_settle_refund('settle', 'r_processing', 'succeeded', amount => 59);
SELECT * FROM idem_settle_refund('settle', 'r_requested', 'succeeded', currency => 'USD');
SELECT payment_no, reserved, refunded FROM books WHERE tenant_id = 'settle' AND payment_no IN ('pay_processing', 'pay_requested') ORDER BY 1;
SELECT a.kind, a.key, detail->>'amount' AS amount, detail->>'currency' AS currency, detail->>'our_amount' AS ours FROM idem_anomaly a WHERE tenant_id = 'settle' AND kind = 'refund_amount_differs' ORDER BY key;
ROLLBACK;

--
-- Section 6.5, line by line.
--

-- Refund callback twice: counters once.
SELECT outcome FROM idem_create_payment('settle_lines', 'o1', 100, 'CNY', payment_no => 'lines_1');
SELECT outcome FROM idem_confirm_payment('settle_lines', 'lines_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_request_refund('settle_lines', 'lines_1', 'r1', 60, 'CNY');
SELECT outcome FROM idem_submit_refund('settle_lines', 'r1');
SELECT * FROM idem_settle_refund('settle_lines', 'r1', 'succeeded', 'X1', 60);
SELECT * FROM idem_settle_refund('settle_lines', 'r1', 'succeeded', 'X1', 60);
SELECT * FROM idem_settle_refund('settle_lines', NULL, 'succeeded', 'X1', 60, channel => 'alipay');
SELECT * FROM idem_settle_refund('settle_lines', NULL, 'succeeded', 'X1', 60, payment_no => 'lines_1');
SELECT reserved, refunded, refunds FROM books WHERE tenant_id = 'settle_lines' AND payment_no = 'lines_1';
SELECT type, count(*) FROM idem_outbox WHERE tenant_id = 'settle_lines' AND type LIKE 'refund.%' GROUP BY 1 ORDER BY 1;

-- Refund callback before our row, or a refund of the channel's console: adopted.
SELECT * FROM idem_settle_refund('settle_lines', 'console_1', 'succeeded', 'X2', 10, channel => 'alipay', trade_no => 'T1');
SELECT * FROM idem_settle_refund('settle_lines', NULL, 'succeeded', 'X3', 10, payment_no => 'lines_1');
SELECT * FROM idem_settle_refund('settle_lines', 'console_1', 'succeeded', 'X2', 10, channel => 'alipay', trade_no => 'T1');
SELECT * FROM idem_settle_refund('settle_lines', 'other_name', 'succeeded', 'X3', 10, payment_no => 'lines_1');
SELECT reserved, refunded, refunds FROM books WHERE tenant_id = 'settle_lines' AND payment_no = 'lines_1';
-- Our own request for what was adopted under its number is the same refund.
SELECT outcome, refund_no, status, amount FROM idem_request_refund('settle_lines', 'lines_1', 'console_1', 10, 'CNY');
-- If it does not fit: succeeded all the same, with an excess.
SELECT * FROM idem_settle_refund('settle_lines', NULL, 'succeeded', 'X4', 50, payment_no => 'lines_1');
SELECT reserved, refunded, excess FROM books WHERE tenant_id = 'settle_lines' AND payment_no = 'lines_1';
SELECT kind, entity, status FROM anomalies WHERE tenant_id = 'settle_lines';

-- Refund success for a refund we hold as failed, closed or cancelled: re-reserved, or an excess.
SELECT r.outcome, count(*) FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_create_payment('settle_edges', s, 100, 'CNY', payment_no => 'edge_' || s) r GROUP BY 1;
SELECT r.outcome, count(*) FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_confirm_payment('settle_edges', 'edge_' || s, 'alipay', s, 100, 'CNY') r GROUP BY 1;
SELECT r.outcome, count(*) FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_request_refund('settle_edges', 'edge_' || s, 'r_' || s, 60, 'CNY') r GROUP BY 1;
SELECT s, r.outcome, r.remainder FROM unnest('{failed,closed}'::text[]) s, idem_settle_refund('settle_edges', 'r_' || s, s) r;
SELECT outcome, remainder FROM idem_cancel_refund('settle_edges', 'r_cancelled');
BEGIN;
SELECT s, r.* FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_settle_refund('settle_edges', 'r_' || s, 'succeeded') r;
SELECT payment_no, reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'settle_edges' ORDER BY 1;
SELECT count(*) FROM anomalies WHERE tenant_id = 'settle_edges';
ROLLBACK;
SELECT s, r.outcome, r.remainder FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_request_refund('settle_edges', 'edge_' || s, 'r2_' || s, 80, 'CNY') r;
SELECT s, r.* FROM unnest('{failed,closed,cancelled}'::text[]) s, idem_settle_refund('settle_edges', 'r_' || s, 'succeeded') r;
SELECT payment_no, reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'settle_edges' ORDER BY 1;
SELECT kind, entity, status, count(*) FROM anomalies WHERE tenant_id = 'settle_edges' GROUP BY 1, 2, 3;

-- Late and surplus money that went back by itself: its anomaly is resolved.
SELECT outcome FROM idem_create_order('settle_cured', 'late', 90, 'CNY');
SELECT outcome FROM idem_create_payment('settle_cured', 'late', 90, 'CNY', payment_no => 'cured_late');
SELECT outcome FROM idem_cancel_order('settle_cured', 'late');
SELECT outcome FROM idem_confirm_payment('settle_cured', 'cured_late', 'alipay', 'T1', 90, 'CNY');
SELECT outcome FROM idem_create_payment('settle_cured', 'surplus', 80, 'CNY', payment_no => 'cured_surplus');
SELECT outcome FROM idem_confirm_payment('settle_cured', 'cured_surplus', 'alipay', 'T2', 80, 'CNY');
SELECT outcome FROM idem_confirm_payment('settle_cured', 'cured_surplus', 'alipay', 'T3', 80, 'CNY');
SELECT kind, status FROM anomalies WHERE tenant_id = 'settle_cured' ORDER BY kind;
SELECT cause, r.outcome, r.status FROM idem_refund f, idem_submit_refund(tenant_id, refund_no) r WHERE tenant_id = 'settle_cured' ORDER BY cause;
SELECT cause, r.* FROM idem_refund f, idem_settle_refund(tenant_id, refund_no, 'succeeded') r WHERE tenant_id = 'settle_cured' ORDER BY cause;
SELECT kind, status, resolution FROM anomalies WHERE tenant_id = 'settle_cured' ORDER BY kind;
SELECT trade_no, disposition, reserved, refunded, refunds FROM books WHERE tenant_id = 'settle_cured' ORDER BY 1;
SELECT status FROM idem_get_order('settle_cured', 'late');
-- A human cancelled the automatic one and sent the money back in two parts.
BEGIN;
SELECT outcome FROM idem_confirm_payment('settle_cured', 'cured_surplus', 'alipay', 'T4', 80, 'CNY');
SELECT r.outcome FROM idem_refund f, idem_cancel_refund(tenant_id, refund_no) r WHERE tenant_id = 'settle_cured' AND f.status = 'requested';
SELECT n, r.outcome FROM idem_receipt c, generate_series(1, 2) n, idem_request_refund(tenant_id, payment_no, 'part_' || n, 40, 'CNY', receipt_no => receipt_no) r
WHERE tenant_id = 'settle_cured' AND trade_no = 'T4' ORDER BY n;
SELECT outcome FROM idem_settle_refund('settle_cured', 'part_1', 'succeeded');
SELECT kind, status FROM anomalies WHERE tenant_id = 'settle_cured' AND status = 'opened';
SELECT outcome FROM idem_settle_refund('settle_cured', 'part_2', 'succeeded');
SELECT kind, status FROM anomalies WHERE tenant_id = 'settle_cured' AND status = 'opened';
ROLLBACK;

--
-- Time: a failure older than the last submit is that of an earlier attempt.
--
SELECT outcome FROM idem_create_payment('settle_time', 'o', 100, 'CNY', payment_no => 'time_1');
SELECT outcome FROM idem_confirm_payment('settle_time', 'time_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_request_refund('settle_time', 'time_1', 'r1', 60, 'CNY');
SELECT outcome FROM idem_submit_refund('settle_time', 'r1');
SELECT * FROM idem_settle_refund('settle_time', 'r1', 'failed', occurred_at => now() - interval '1 minute');
SELECT * FROM idem_settle_refund('settle_time', 'r1', 'closed', occurred_at => now() - interval '1 minute');
SELECT * FROM idem_settle_refund('settle_time', 'r1', 'abnormal', occurred_at => now() - interval '1 minute');
-- but channels tell whole seconds
SELECT r.* FROM idem_refund, idem_settle_refund(tenant_id, refund_no, 'failed', occurred_at => date_trunc('second', submitted_at)) r WHERE tenant_id = 'settle_time';
SELECT outcome FROM idem_retry_refund('settle_time', 'r1');
-- a success is a success, whenever
SELECT * FROM idem_settle_refund('settle_time', 'r1', 'succeeded', occurred_at => now() - interval '1 hour');
SELECT * FROM idem_settle_refund('settle_time', 'r1', 'failed', occurred_at => now() + interval '1 hour');

--
-- The channel's number is learnt, and may be another one after a retry.
--
SELECT outcome FROM idem_create_payment('settle_numbers', 'o', 100, 'CNY', payment_no => 'numbers_1');
SELECT outcome FROM idem_confirm_payment('settle_numbers', 'numbers_1', 'stripe', 'T1', 100, 'CNY', 'acct');
SELECT outcome FROM idem_request_refund('settle_numbers', 'numbers_1', 'r1', 30, 'CNY');
SELECT outcome FROM idem_settle_refund('settle_numbers', 'r1', 'succeeded');
SELECT outcome FROM idem_settle_refund('settle_numbers', 'r1', 'succeeded', 're_1');
SELECT outcome, status FROM idem_settle_refund('settle_numbers', NULL, 'succeeded', 're_1', 30, channel => 'stripe', account => 'acct');
SELECT outcome FROM idem_request_refund('settle_numbers', 'numbers_1', 'r2', 30, 'CNY');
SELECT outcome FROM idem_submit_refund('settle_numbers', 'r2');
SELECT outcome FROM idem_settle_refund('settle_numbers', 'r2', 'failed', 're_2');
SELECT outcome FROM idem_retry_refund('settle_numbers', 'r2');
SELECT outcome FROM idem_settle_refund('settle_numbers', 'r2', 'succeeded', 're_3');
SELECT refund_no, channel_refund_no, status, version FROM idem_refund WHERE tenant_id = 'settle_numbers' ORDER BY 1;
-- One refund under two numbers of ours would be booked twice: kept for a human.
SELECT outcome FROM idem_request_refund('settle_numbers', 'numbers_1', 'r3', 10, 'CNY');
SELECT outcome, status FROM idem_settle_refund('settle_numbers', 'r3', 'succeeded', 're_1');
SELECT kind, key, status FROM anomalies WHERE tenant_id = 'settle_numbers';
SELECT outcome, status FROM idem_settle_refund('settle_numbers', 'r3', 'succeeded', 're_4');
-- The channel's number of another payment's refund: neither is touched.
SELECT outcome FROM idem_create_payment('settle_numbers', 'o1', 100, 'CNY', payment_no => 'numbers_3');
SELECT outcome FROM idem_confirm_payment('settle_numbers', 'numbers_3', 'stripe', 'T3', 100, 'CNY', 'acct');
SELECT * FROM idem_settle_refund('settle_numbers', NULL, 'reversed', 're_1', 30, payment_no => 'numbers_3');
SELECT * FROM idem_settle_refund('settle_numbers', 'new', 'succeeded', 're_1', 30, payment_no => 'numbers_3');
SELECT payment_no, reserved, refunded FROM books WHERE tenant_id = 'settle_numbers' ORDER BY 1;
-- The same number on another account, or at another channel, is another refund.
SELECT outcome FROM idem_create_payment('settle_numbers', 'o2', 100, 'CNY', payment_no => 'numbers_2');
SELECT outcome FROM idem_confirm_payment('settle_numbers', 'numbers_2', 'stripe', 'T2', 100, 'CNY', 'acct_2');
SELECT * FROM idem_settle_refund('settle_numbers', 'console', 'succeeded', 're_1', 5, channel => 'stripe', account => 'acct_2', trade_no => 'T2');
-- A number of the channel's that fills the key.
SELECT * FROM idem_settle_refund('settle_numbers', NULL, 'succeeded', repeat('x', 255), 5, channel => 'stripe', account => 'acct_2', trade_no => 'T2');
SELECT * FROM idem_settle_refund('settle_numbers', NULL, 'succeeded', repeat('x', 255), 5, channel => 'stripe', account => 'acct_2', trade_no => 'T2');
SELECT refund_no ~ '^C[0-9a-f]{64}$' AS digest FROM idem_refund WHERE tenant_id = 'settle_numbers' AND channel_refund_no LIKE 'xxx%';

--
-- Adoption: what is known, what is not.
--
SELECT outcome FROM idem_create_payment('settle_adopt', 'o', 100, 'CNY', payment_no => 'adopt_1');
SELECT outcome FROM idem_confirm_payment('settle_adopt', 'adopt_1', 'alipay', 'T1', 100, 'CNY', 'm1');
SELECT outcome FROM idem_confirm_payment('settle_adopt', 'adopt_1', 'alipay', 'T2', 100, 'CNY', 'm1');
-- in every definite state
BEGIN;
SELECT x, r.* FROM unnest('{succeeded,failed,closed,abnormal,reversed,timeout}'::text[]) WITH ORDINALITY AS u (x, n),
	idem_settle_refund('settle_adopt', 'a_' || x, x, amount => 10, channel => 'alipay', account => 'm1', trade_no => 'T1') r ORDER BY n;
SELECT trade_no, reserved, refunded, excess, refunds FROM books WHERE tenant_id = 'settle_adopt' ORDER BY trade_no;
SELECT kind, key, status FROM anomalies WHERE tenant_id = 'settle_adopt' AND entity = 'refund' ORDER BY kind;
ROLLBACK;
-- the receipt: by payment (the applied one), by trade, by both; what does not fit
BEGIN;
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b1', 'succeeded', amount => 1, payment_no => 'adopt_1');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b2', 'succeeded', amount => 2, payment_no => 'adopt_1', channel => 'alipay', trade_no => 'T1');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b3', 'succeeded', amount => 3, channel => 'alipay', account => 'm1', trade_no => 'T1', currency => 'cny');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b4', 'succeeded', amount => 4, payment_no => 'adopt_1', account => '');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b5', 'succeeded', amount => 5, payment_no => 'adopt_1', account => 'm2');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b6', 'succeeded', amount => 6, channel => 'alipay', account => 'm2', trade_no => 'T1');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b7', 'succeeded', amount => 7, payment_no => 'adopt_2', channel => 'alipay', account => 'm1', trade_no => 'T1');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b8', 'succeeded', amount => 8, payment_no => 'adopt_1', trade_no => 'T9');
SELECT outcome FROM idem_settle_refund('settle_adopt', 'b9', 'succeeded', amount => 9);
SELECT trade_no, refunded, refunds FROM books WHERE tenant_id = 'settle_adopt' ORDER BY trade_no;
SELECT kind, key, status FROM anomalies WHERE tenant_id = 'settle_adopt' AND kind = 'refund_unmatched' ORDER BY key;
ROLLBACK;
-- the amount: none, 0, negative, another currency
BEGIN;
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c1', 'succeeded', payment_no => 'adopt_1');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c2', 'succeeded', amount => 0, payment_no => 'adopt_1');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c3', 'succeeded', amount => -1, payment_no => 'adopt_1');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c4', 'succeeded', amount => 1, payment_no => 'adopt_1', currency => 'USD');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c5', 'succeeded', amount => 9223372036854775807, payment_no => 'adopt_1');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'c6', 'succeeded', amount => 1, payment_no => 'adopt_1');
SELECT trade_no, refunded, excess, refunds FROM books WHERE tenant_id = 'settle_adopt' AND trade_no = 'T1';
SELECT kind, entity, key, status FROM anomalies WHERE tenant_id = 'settle_adopt' AND kind <> 'surplus' ORDER BY kind, key;
ROLLBACK;
-- the number: an automatic one is its receipt's only
BEGIN;
SELECT outcome, status FROM idem_settle_refund('settle_adopt', 'A123', 'succeeded', amount => 1, payment_no => 'adopt_1');
SELECT trade_no, r.outcome, r.status, r.remainder FROM idem_receipt, idem_settle_refund(tenant_id, 'A' || receipt_no, 'succeeded', amount => 1, payment_no => payment_no, trade_no => trade_no) r
WHERE tenant_id = 'settle_adopt' ORDER BY trade_no;
ROLLBACK;
-- C and the channel's number is taken by a caller: kept
BEGIN;
SELECT outcome FROM idem_request_refund('settle_adopt', 'adopt_1', 'CX', 1, 'CNY');
SELECT outcome FROM idem_settle_refund('settle_adopt', NULL, 'succeeded', 'X', 2, payment_no => 'adopt_1');
SELECT trade_no, refunded, refunds FROM books WHERE tenant_id = 'settle_adopt' AND trade_no = 'T1';
ROLLBACK;
-- a refund that came before its money: told again, it is adopted
BEGIN;
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'early', 'succeeded', amount => 10, payment_no => 'adopt_3');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'early', 'succeeded', amount => 10, payment_no => 'adopt_3');
SELECT outcome FROM idem_create_payment('settle_adopt', 'o3', 100, 'CNY', payment_no => 'adopt_3');
SELECT outcome FROM idem_confirm_payment('settle_adopt', 'adopt_3', 'alipay', 'T3', 100, 'CNY');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'early', 'succeeded', amount => 10, payment_no => 'adopt_3');
SELECT kind, key, status, resolution, hits FROM anomalies WHERE tenant_id = 'settle_adopt' AND kind = 'refund_unmatched';
ROLLBACK;
-- money without a payment: refunded by an operator, or at the console
BEGIN;
SELECT outcome FROM idem_confirm_payment('settle_adopt', 'adopt_9', 'alipay', 'T9', 50, 'CNY', 'm1');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'console', 'succeeded', amount => 20, payment_no => 'adopt_9');
SELECT outcome, status, remainder FROM idem_settle_refund('settle_adopt', 'console', 'succeeded', amount => 20, channel => 'alipay', account => 'm1', trade_no => 'T9');
SELECT r.outcome, r.status, r.amount, r.remainder FROM idem_receipt, idem_refund_receipt(tenant_id, receipt_no, 'whose?') r WHERE tenant_id = 'settle_adopt' AND trade_no = 'T9';
SELECT r.outcome, r.status, r.remainder FROM idem_refund, idem_settle_refund(tenant_id, refund_no, 'succeeded') r WHERE tenant_id = 'settle_adopt' AND cause = 'orphan';
SELECT disposition, reserved, refunded, refunds FROM books WHERE tenant_id = 'settle_adopt' AND trade_no = 'T9';
ROLLBACK;

--
-- What only notifications tell: failures that take a success back, and sums.
--
CREATE FUNCTION tell(refund text, event text, at timestamptz DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT outcome || ' ' || coalesce(status, '') FROM idem_receive_notification('settle_told', 'stripe', NULL, 'told_1', 'pi_1', event, 100, 'CNY', biz_no => refund, refund_amount => 20, occurred_at => at, channel_refund_no => 're_' || refund) $$;
SELECT outcome FROM idem_create_payment('settle_told', 'o', 100, 'CNY', payment_no => 'told_1');
SELECT outcome FROM idem_confirm_payment('settle_told', 'told_1', 'stripe', 'pi_1', 100, 'CNY');
SELECT n, r.outcome, s.outcome FROM generate_series(1, 5) n, idem_request_refund('settle_told', 'told_1', 'told_' || n, 20, 'CNY') r, idem_submit_refund('settle_told', 'told_' || n) s ORDER BY n;
-- in order, in the other order, and without times
SELECT tell('told_1', 'refund.updated.succeeded', now() + interval '1 hour'), tell('told_1', 'refund.updated.failed', now() + interval '2 hours');
SELECT tell('told_1', 'refund.updated.succeeded', now() + interval '1 hour'), tell('told_1', 'refund.failed', now() + interval '2 hours');
SELECT tell('told_2', 'refund.updated.failed', now() + interval '2 hours'), tell('told_2', 'refund.updated.succeeded', now() + interval '1 hour');
SELECT tell('told_3', 'refund.updated.succeeded'), tell('told_3', 'refund.updated.failed');
-- a failure that is older than the success, or than the last submit, takes nothing back
SELECT tell('told_4', 'refund.updated.failed', now() + interval '1 hour'), r.outcome FROM idem_retry_refund('settle_told', 'told_4') r;
SELECT tell('told_4', 'refund.updated.failed', now() + interval '1 hour');
SELECT r.outcome FROM idem_retry_refund('settle_told', 'told_4') r;
SELECT tell('told_4', 'refund.updated.succeeded', now() + interval '30 minutes'), tell('told_4', 'refund.updated.succeeded', now() + interval '3 hours');
SELECT tell('told_4', 'refund.updated.failed', now() + interval '1 hour'), tell('told_4', 'refund.updated.failed', now() - interval '1 hour');
-- closed, likewise
SELECT tell('told_5', 'refund.updated.canceled', now() + interval '2 hours'), tell('told_5', 'refund.updated.succeeded', now() + interval '1 hour');
SELECT refund_no, status, takes_back FROM idem_refund WHERE tenant_id = 'settle_told' ORDER BY 1;
SELECT reserved, refunded, excess FROM books WHERE tenant_id = 'settle_told';
-- sums: what is news of a cumulative amount, whatever the order; a known refund is booked at our amount
CREATE FUNCTION tell_sum(refund text, total bigint) RETURNS text LANGUAGE sql AS $$
	SELECT outcome || ' ' || coalesce(status, '') FROM idem_receive_notification('settle_sums', 'alipay', NULL, 'sums_1', 'T1', 'TRADE_SUCCESS', 100, 'CNY', biz_no => refund, refund_amount => total) $$;
SELECT outcome FROM idem_create_payment('settle_sums', 'o', 100, 'CNY', payment_no => 'sums_1');
SELECT outcome FROM idem_confirm_payment('settle_sums', 'sums_1', 'alipay', 'T1', 100, 'CNY');
SELECT outcome FROM idem_request_refund('settle_sums', 'sums_1', 'ours', 10, 'CNY');
BEGIN;
SELECT tell_sum('a', 20), tell_sum('b', 50), tell_sum('ours', 60), tell_sum('a', 20), tell_sum('b', 50), tell_sum('ours', 60);
SELECT refunded, regexp_replace(refunds, 'C\d+-', 'C...-') AS refunds FROM books WHERE tenant_id = 'settle_sums';
ROLLBACK;
BEGIN;
SELECT tell_sum('ours', 60), tell_sum('b', 50), tell_sum('a', 20), tell_sum(NULL, 60), tell_sum(NULL, 60), tell_sum(NULL, 55);
SELECT refunded, regexp_replace(refunds, 'C\d+-', 'C...-') AS refunds FROM books WHERE tenant_id = 'settle_sums';
ROLLBACK;
DROP FUNCTION tell;
DROP FUNCTION tell_sum;

-- Nothing of the record's own keys may be NULL or too long.
\set ON_ERROR_ROLLBACK on
\set VERBOSITY terse
SELECT idem_settle_refund('settle_adopt', NULL, 'succeeded');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_settle_refund(NULL, 'x', 'succeeded');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_settle_refund('settle_adopt', repeat('x', 256), 'succeeded');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_settle_refund('settle_adopt', 'x', 'succeeded', repeat('x', 256));
\echo :LAST_ERROR_SQLSTATE
SELECT idem_settle_refund('settle_adopt', 'x', 'succeeded', payment_no => repeat('x', 256));
\echo :LAST_ERROR_SQLSTATE

SELECT * FROM idem_verify();
