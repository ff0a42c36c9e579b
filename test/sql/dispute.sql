--
-- dispute: money that a bank takes back.
--
CREATE TEMP VIEW books AS
	SELECT r.tenant_id, r.trade_no, r.disposition, r.amount, r.refund_reserved AS reserved, r.refunded, r.disputed, r.excess,
		(SELECT string_agg(d.dispute_no || ' ' || d.stage || ' ' || d.amount, ', ' ORDER BY d.dispute_no)
		 FROM idem_dispute d WHERE d.tenant_id = r.tenant_id AND d.receipt_no = r.receipt_no) AS disputes
	FROM idem_receipt r;
CREATE TEMP VIEW anomalies AS
	SELECT tenant_id, kind, entity, CASE entity WHEN 'receipt' THEN '(receipt)' ELSE key END AS key, status, resolution, hits
	FROM idem_anomaly;

--
-- Every stage, every word of the channel: 60 of 100.
--
CREATE TEMP TABLE state (n int, s text);
INSERT INTO state VALUES (1, 'unknown'), (2, 'opened'), (3, 'won'), (4, 'lost');
SELECT r.outcome, count(*) FROM state, idem_create_payment('dispute', 'order_' || s, 100, 'CNY', payment_no => 'pay_' || s) r GROUP BY 1;
SELECT r.outcome, count(*) FROM state, idem_confirm_payment('dispute', 'pay_' || s, 'stripe', 'T_' || s, 100, 'CNY', 'acct') r GROUP BY 1;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'opened', 60, 'cny') r WHERE s <> 'unknown' ORDER BY n;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, s, 60, 'CNY') r WHERE s IN ('won', 'lost') ORDER BY n;
SELECT trade_no, disputed, excess, disputes FROM books WHERE tenant_id = 'dispute' ORDER BY trade_no;
BEGIN;
SELECT s, r.outcome, r.receipt_no IS NOT NULL AS receipt, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'opened', 60, 'CNY') r WHERE s <> 'unknown' ORDER BY n;
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
SELECT s, r.outcome, r.receipt_no IS NOT NULL AS receipt, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'opened', 60, 'CNY') r WHERE s = 'unknown';
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'won', 60, 'CNY') r ORDER BY n;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'won', 60, 'CNY') r ORDER BY n;
SELECT key::jsonb->>'dispute_no' AS dispute, kind, status, resolution FROM anomalies WHERE tenant_id = 'dispute' ORDER BY 1;
ROLLBACK;
BEGIN;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'lost', 60, 'CNY') r ORDER BY n;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'lost', 60, 'CNY') r ORDER BY n;
SELECT key::jsonb->>'dispute_no' AS dispute, kind, status, resolution FROM anomalies WHERE tenant_id = 'dispute' ORDER BY 1;
ROLLBACK;
-- unknown words, no money, an empty key, another currency: kept
BEGIN;
SELECT s, r.outcome, r.remainder, r.stage FROM state, idem_record_dispute('dispute', 'stripe', 'acct', 'T_' || s, 'd_' || s, 'drawn', 60, 'CNY') r ORDER BY n;
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute', 'stripe', 'acct', 'T_opened', 'd_opened', NULL, 60, 'CNY');
SELECT a, r.outcome, r.remainder, r.stage FROM unnest('{0,-1,NULL}'::bigint[]) a, idem_record_dispute('dispute', 'stripe', 'acct', 'T_opened', 'd_opened', 'lost', a, 'CNY') r;
SELECT c, r.outcome, r.remainder, r.stage FROM unnest('{USD,EURO,"",NULL}'::text[]) c, idem_record_dispute('dispute', 'stripe', 'acct', 'T_opened', 'd_opened', 'lost', 60, c) r;
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute', '', 'acct', 'T_opened', 'd_opened', 'lost', 60, 'CNY');
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute', 'stripe', 'acct', '', 'd_opened', 'lost', 60, 'CNY');
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute', 'stripe', 'acct', 'T_opened', '', 'lost', 60, 'CNY');
-- the same dispute about another trade
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute', 'stripe', 'acct', 'T_unknown', 'd_opened', 'lost', 60, 'CNY');
SELECT key, kind, status, hits FROM anomalies WHERE tenant_id = 'dispute' AND key NOT LIKE '%d_lost%' AND key NOT LIKE '%d_won%' ORDER BY key, kind;
SELECT trade_no, disputed, excess, disputes FROM books WHERE tenant_id = 'dispute' ORDER BY trade_no;
ROLLBACK;
-- another tenant's, another account's
SELECT outcome, receipt_no, remainder, stage FROM idem_record_dispute('dispute_others', 'stripe', 'acct', 'T_unknown', 'd_1', 'opened', 60, 'CNY');
SELECT outcome, receipt_no, remainder, stage FROM idem_record_dispute('dispute', 'stripe', 'acct_2', 'T_unknown', 'd_1', 'opened', 60, 'CNY');
SELECT outcome, receipt_no, remainder, stage FROM idem_record_dispute('dispute', 'wechat', 'acct', 'T_unknown', 'd_1', 'opened', 60, 'CNY');

--
-- What is disputed cannot be refunded a second time; what was won can.
--
SELECT outcome FROM idem_create_order('dispute_chargeback', 'o', 100, 'CNY');
SELECT outcome FROM idem_create_payment('dispute_chargeback', 'o', 100, 'CNY', payment_no => 'chargeback_1');
SELECT outcome FROM idem_confirm_payment('dispute_chargeback', 'chargeback_1', 'stripe', 'T1', 100, 'CNY');
SELECT outcome, remainder FROM idem_request_refund('dispute_chargeback', 'chargeback_1', 'r1', 30, 'CNY');
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute_chargeback', 'stripe', NULL, 'T1', 'd1', 'opened', 50, 'CNY');
SELECT outcome, remainder FROM idem_request_refund('dispute_chargeback', 'chargeback_1', 'r2', 21, 'CNY');
SELECT outcome, remainder FROM idem_request_refund('dispute_chargeback', 'chargeback_1', 'r2', 20, 'CNY');
SELECT outcome, status FROM idem_submit_refund('dispute_chargeback', 'r1');
-- the bank takes all of it: what was not sent cannot be sent any more
SELECT outcome, remainder, stage FROM idem_record_dispute('dispute_chargeback', 'stripe', NULL, 'T1', 'd2', 'opened', 100, 'CNY');
SELECT trade_no, reserved, refunded, disputed, excess, disputes FROM books WHERE tenant_id = 'dispute_chargeback';
SELECT outcome, status FROM idem_submit_refund('dispute_chargeback', 'r2');
SELECT outcome, status FROM idem_settle_refund('dispute_chargeback', 'r1', 'failed');
SELECT outcome, status FROM idem_retry_refund('dispute_chargeback', 'r1');
SELECT outcome, status, refund_no IS NOT NULL AS refund, remainder FROM idem_cancel_order('dispute_chargeback', 'o');
SELECT kind, entity, status FROM anomalies WHERE tenant_id = 'dispute_chargeback' ORDER BY kind, key;
-- what was sent is booked when it succeeds, whoever pays
SELECT outcome, status, remainder FROM idem_settle_refund('dispute_chargeback', 'r1', 'succeeded');
SELECT trade_no, reserved, refunded, disputed, excess, disputes FROM books WHERE tenant_id = 'dispute_chargeback';
SELECT outcome, remainder FROM idem_cancel_refund('dispute_chargeback', 'r2');
SELECT outcome, remainder FROM idem_record_dispute('dispute_chargeback', 'stripe', NULL, 'T1', 'd2', 'won', 100, 'CNY');
SELECT outcome, remainder FROM idem_record_dispute('dispute_chargeback', 'stripe', NULL, 'T1', 'd1', 'lost', 50, 'CNY');
SELECT trade_no, reserved, refunded, disputed, excess, disputes FROM books WHERE tenant_id = 'dispute_chargeback';
-- a dispute does not refund the order, and a refunded one can be disputed
SELECT outcome FROM idem_create_order('dispute_chargeback', 'o2', 100, 'CNY');
SELECT outcome FROM idem_create_payment('dispute_chargeback', 'o2', 100, 'CNY', payment_no => 'chargeback_2');
SELECT outcome FROM idem_confirm_payment('dispute_chargeback', 'chargeback_2', 'stripe', 'T2', 100, 'CNY');
SELECT outcome, remainder FROM idem_record_dispute('dispute_chargeback', 'stripe', NULL, 'T2', 'd3', 'lost', 100, 'CNY');
SELECT status FROM idem_get_order('dispute_chargeback', 'o2');
SELECT outcome FROM idem_ship_order('dispute_chargeback', 'o2');
SELECT outcome, remainder FROM idem_settle_refund('dispute_chargeback', 'console', 'succeeded', amount => 100, payment_no => 'chargeback_2');
SELECT status FROM idem_get_order('dispute_chargeback', 'o2');
SELECT trade_no, reserved, refunded, disputed, excess FROM books WHERE tenant_id = 'dispute_chargeback' AND trade_no = 'T2';

--
-- Out of order, and of two decisions the later one.
--
SELECT outcome FROM idem_create_payment('dispute_shuffle', 'o', 100, 'CNY', payment_no => 'shuffle_1');
SELECT outcome FROM idem_confirm_payment('dispute_shuffle', 'shuffle_1', 'stripe', 'T1', 100, 'CNY');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 60, 'CNY', '2024-01-03');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'opened', 60, 'CNY', '2024-01-01');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'won', 60, 'CNY', '2024-01-02');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'won', 60, 'CNY', '2024-01-04');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 60, 'CNY', '2024-01-03');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 60, 'CNY');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'opened', 60, 'CNY', '2024-01-05');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 70, 'CNY', '2024-01-06');
-- another amount at the same stage
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 71, 'CNY', '2024-01-05');
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', 'd1', 'lost', 72, 'CNY', '2024-01-07');
-- the account that one side does not know
SELECT outcome, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', 'acct', 'T1', 'd1', 'lost', 72, 'CNY');
SELECT key, version, from_state, to_state, event FROM idem_history WHERE tenant_id = 'dispute_shuffle' AND entity = 'dispute' ORDER BY version;
SELECT aggregatetype, aggregateid, type, payload - '{at,receipt_no}'::text[] AS payload FROM idem_outbox WHERE tenant_id = 'dispute_shuffle' AND type LIKE 'dispute.%' ORDER BY (payload->>'version')::int;

-- A dispute that came before its money binds to it when it is told again, also by a word that is stale.
SELECT outcome, receipt_no, stage FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T2', 'd2', 'lost', 60, 'CNY');
SELECT outcome, receipt_no, stage FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T2', 'd2', 'lost', 60, 'CNY');
SELECT outcome, receipt_no, stage FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T2', 'd2', 'opened', 60, 'CNY');
SELECT outcome FROM idem_create_payment('dispute_shuffle', 'o2', 100, 'CNY', payment_no => 'shuffle_2');
SELECT outcome FROM idem_confirm_payment('dispute_shuffle', 'shuffle_2', 'stripe', 'T2', 100, 'CNY');
SELECT outcome, receipt_no IS NOT NULL AS receipt, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T2', 'd2', 'opened', 60, 'CNY');
SELECT outcome, receipt_no IS NOT NULL AS receipt, stage, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T2', 'd2', 'lost', 60, 'CNY');
SELECT trade_no, disputed, disputes FROM books WHERE tenant_id = 'dispute_shuffle' ORDER BY trade_no;
-- money without a payment
SELECT outcome FROM idem_confirm_payment('dispute_shuffle', 'shuffle_9', 'stripe', 'T9', 50, 'CNY');
SELECT outcome, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T9', 'd9', 'opened', 20, 'CNY');
SELECT r.outcome FROM idem_receipt, idem_adopt_receipt(tenant_id, receipt_no, 'shuffle_1') r WHERE tenant_id = 'dispute_shuffle' AND trade_no = 'T9';
SELECT r.outcome, r.amount, r.remainder FROM idem_receipt, idem_refund_receipt(tenant_id, receipt_no, 'whose?') r WHERE tenant_id = 'dispute_shuffle' AND trade_no = 'T9';
-- more than a bigint holds
SELECT outcome, remainder FROM idem_record_dispute('dispute_shuffle', 'stripe', '', 'T9', 'd10', 'opened', 9223372036854775807, 'CNY');

--
-- What the table itself refuses.
--
\set ON_ERROR_ROLLBACK on
\set VERBOSITY terse
UPDATE idem_dispute SET stage = 'opened' WHERE tenant_id = 'dispute_shuffle' AND dispute_no = 'd1';
UPDATE idem_dispute SET trade_no = 'T3' WHERE tenant_id = 'dispute_shuffle' AND dispute_no = 'd1';
UPDATE idem_dispute SET receipt_no = 'x' WHERE tenant_id = 'dispute_shuffle' AND dispute_no = 'd1';
UPDATE idem_dispute SET amount = 0 WHERE tenant_id = 'dispute_shuffle' AND dispute_no = 'd1';
DELETE FROM idem_dispute;
TRUNCATE idem_dispute;
-- Nothing of the record's own keys may be NULL or too long.
SELECT idem_record_dispute(NULL, 'stripe', '', 'T1', 'd1', 'opened', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_record_dispute('dispute_shuffle', NULL, '', 'T1', 'd1', 'opened', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_record_dispute('dispute_shuffle', 'stripe', '', NULL, 'd1', 'opened', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_record_dispute('dispute_shuffle', 'stripe', '', 'T1', NULL, 'opened', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_record_dispute('dispute_shuffle', 'stripe', repeat('x', 256), 'T1', 'd1', 'opened', 1, 'CNY');
\echo :LAST_ERROR_SQLSTATE

SELECT * FROM idem_verify();
