--
-- channel: what channels call things, and whose their accounts are.
--
\set SHOW_CONTEXT never
\set VERBOSITY sqlstate

-- What comes with the extension.
SELECT channel, event, has_refund, kind, refund_amount_is, after_success FROM idem_channel_event
ORDER BY channel, event, has_refund;

-- One's own channel.
SELECT * FROM idem_set_channel_event('till', 'sold', false, 'paid');
SELECT * FROM idem_set_channel_event('till', 'sold', false, 'paid', 'delta', 'stale');
SELECT * FROM idem_set_channel_event('till', 'sold', true, 'refunded', 'cumulative');
SELECT * FROM idem_set_channel_event('till', 'sold', true, 'refunded', 'delta');
SELECT * FROM idem_set_channel_event('till', 'sold', true, 'refund_failed', 'delta', 'reverse');
SELECT * FROM idem_channel_event_change WHERE channel = 'till' ORDER BY channel, event, has_refund;

-- A seed is changed beside it, never in it; back again is a change, too.
SELECT * FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'paid');
SELECT * FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'none');
SELECT * FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'none');
SELECT kind FROM idem_channel_event WHERE event = 'TRADE_FINISHED' AND NOT has_refund;
SELECT outcome, ack FROM idem_receive_notification('channel', 'alipay', 'n1', 'none', 'T1', 'TRADE_FINISHED', 100, 'CNY');
SELECT * FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'paid');
SELECT outcome, ack FROM idem_receive_notification('channel', 'alipay', 'n2', 'none', 'T1', 'TRADE_FINISHED', 100, 'CNY');
SELECT * FROM idem_set_channel_event('alipay', 'TRADE_FINISHED', false, 'paid');

-- In the same statement, too.
SELECT outcome, (idem_receive_notification('channel', 'till', 'n3', 'none', 'T2', 'void', 100, 'CNY')).outcome AS now
FROM idem_set_channel_event('till', 'void', false, 'none');

-- Every kind and every word is taken, and no other.
SELECT word, (idem_set_channel_event('till', 'kind ' || word, false, word)).outcome
FROM unnest('{paid,failed,closed,refunded,refund_failed,refund_closed,refund_abnormal,refund_reversed,dispute_opened,dispute_won,dispute_lost,none}'::text[]) AS word;
SELECT * FROM idem_set_channel_event('till', 'x', false, 'unmapped');
SELECT * FROM idem_set_channel_event('till', 'x', false, '');
SELECT * FROM idem_set_channel_event('till', 'x', false, 'paid', 'both');
SELECT * FROM idem_set_channel_event('till', 'x', false, 'paid', 'delta', 'never');
SELECT * FROM idem_set_channel_event('', 'x', false, 'paid');
SELECT * FROM idem_set_channel_event('till', '', false, 'paid');
SELECT * FROM idem_set_channel_event(repeat('x', 256), 'x', false, 'paid');
SELECT * FROM idem_set_channel_event(NULL, 'x', false, 'paid');
SELECT * FROM idem_set_channel_event('till', NULL, false, 'paid');
SELECT * FROM idem_set_channel_event('till', 'x', NULL, 'paid');
SELECT * FROM idem_set_channel_event('till', 'x', false, NULL);
SELECT * FROM idem_set_channel_event('till', 'x', false, 'paid', NULL);
SELECT * FROM idem_set_channel_event('till', 'x', false, 'paid', 'delta', NULL);
INSERT INTO idem_channel_event_change VALUES ('till', 'x', false, 'unmapped');

--
-- Accounts.
--
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1', 'on');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1', auto_refund => 'hold');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1', 'hold');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a1');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a0', 'hold');
SELECT * FROM idem_set_channel_account('channel', 'till', 'a0', 'off');
SELECT * FROM idem_channel_account WHERE tenant_id = 'channel' ORDER BY account;
SELECT * FROM idem_set_channel_account('channel', 'till', 'shared');
SELECT * FROM idem_set_channel_account('channel_2', 'till', 'shared');
SELECT * FROM idem_set_channel_account('channel_2', 'till', 'a2');
SELECT * FROM idem_set_channel_account('', 'till', 'a1');
SELECT * FROM idem_set_channel_account('channel', '', 'a1');
SELECT * FROM idem_set_channel_account('channel', 'till', '');
SELECT * FROM idem_set_channel_account(NULL, 'till', 'a1');
SELECT * FROM idem_set_channel_account('channel', NULL, 'a1');
SELECT * FROM idem_set_channel_account('channel', 'till', NULL);

--
-- An account that goes: its money stays, its word no longer counts. With the last one goes the check.
--
SELECT * FROM idem_remove_channel_account('channel_gone', 'till', 'g1');
SELECT outcome FROM idem_set_channel_account('channel_gone', 'till', 'g1', 'hold');
SELECT outcome FROM idem_set_channel_account('channel_gone', 'till', 'g2');
SELECT count(outcome) FROM generate_series(1, 3) i, idem_create_payment('channel_gone', 'o' || i, 100, 'CNY', channel => 'till', payment_no => 'gone_' || i);
SELECT outcome FROM idem_confirm_payment('channel_gone', 'gone_1', 'till', 'T1', 100, 'CNY', account => 'g1');
SELECT outcome FROM idem_request_refund('channel_gone', 'gone_1', 'R1', 40, 'CNY');
SELECT * FROM idem_remove_channel_account('channel_gone', 'till', 'g1');
SELECT * FROM idem_remove_channel_account('channel_gone', 'till', 'g1');
SELECT outcome, status FROM idem_confirm_payment('channel_gone', 'gone_1', 'till', 'T1', 100, 'CNY', account => 'g1');
SELECT outcome, status FROM idem_confirm_payment('channel_gone', 'gone_2', 'till', 'T2', 100, 'CNY', account => 'g1');
SELECT outcome, status, remainder FROM idem_settle_refund('channel_gone', 'R1', 'succeeded');
SELECT outcome, remainder FROM idem_request_refund('channel_gone', 'gone_1', 'R2', 60, 'CNY');
SELECT * FROM idem_remove_channel_account('channel_gone', 'till', 'g2');
SELECT outcome, status FROM idem_confirm_payment('channel_gone', 'gone_3', 'till', 'T3', 100, 'CNY', account => 'g1');
SELECT outcome FROM idem_set_channel_account('channel_gone', 'till', 'g1');
SELECT payment_no, account, trade_no, disposition, refund_reserved, refunded FROM idem_receipt WHERE tenant_id = 'channel_gone' ORDER BY trade_no;
SELECT kind, entity, status FROM idem_anomaly WHERE tenant_id = 'channel_gone' ORDER BY 1, 2;
SELECT account, auto_refund FROM idem_channel_account WHERE tenant_id = 'channel_gone';
SELECT * FROM idem_remove_channel_account('', 'till', 'g1');
SELECT * FROM idem_remove_channel_account('channel', '', 'g1');
SELECT * FROM idem_remove_channel_account('channel', 'till', NULL);

--
-- Whose is it?
--
SELECT t, outcome FROM unnest('{channel,channel_2}'::text[]) AS t, idem_create_payment(t, 'o', 100, 'CNY', channel => 'till', account => CASE t WHEN 'channel' THEN 'a1' ELSE 'a2' END, payment_no => 'both_01');
SELECT outcome FROM idem_create_payment('channel', 'p', 100, 'CNY', payment_no => 'open_01');
SELECT outcome FROM idem_create_payment('channel_2', 'p', 100, 'CNY', channel => 'other', payment_no => 'open_01');
SELECT outcome FROM idem_create_payment('channel_2', 'q', 100, 'CNY', payment_no => 'alone_1');
SELECT outcome FROM idem_create_payment('channel', 'r', 100, 'CNY', payment_no => 'twins_1');
SELECT outcome FROM idem_create_payment('channel_2', 'r', 100, 'CNY', payment_no => 'twins_1');
\pset null (none)
-- the only one that has the payment, whatever the account: he rejects what is not his
SELECT idem_tenant_of('till', 'a2', 'alone_1'), idem_tenant_of('till', 'a1', 'alone_1'), idem_tenant_of('till', NULL, 'alone_1'), idem_tenant_of('other', 'x', 'alone_1');
-- of two, the one on this account, then of this channel, then the one that says nothing; neither if both fit as well
SELECT idem_tenant_of('till', 'a1', 'both_01'), idem_tenant_of('till', 'a2', 'both_01'), idem_tenant_of('till', 'a3', 'both_01'), idem_tenant_of('till', NULL, 'both_01');
SELECT idem_tenant_of('till', 'x', 'open_01'), idem_tenant_of('other', 'x', 'open_01');
SELECT idem_tenant_of('till', 'x', 'twins_1'), idem_tenant_of('till', 'a1', 'twins_1'), idem_tenant_of('till', 'shared', 'twins_1');
-- no such payment: the account's only tenant
SELECT idem_tenant_of('till', 'a1', 'unknown'), idem_tenant_of('till', 'a2', NULL), idem_tenant_of('till', 'shared', NULL), idem_tenant_of('till', 'a3', NULL), idem_tenant_of('other', 'a1', NULL);
SELECT idem_tenant_of(NULL, 'a1', 'alone_1'), idem_tenant_of('till', NULL, NULL), idem_tenant_of('', '', '');
SELECT idem_tenant_of(channel => 'till', account => repeat('x', 300), payment_no => repeat('x', 300));
SELECT tenant_id FROM idem_tenant_of('till', 'a1', 'alone_1');

SELECT * FROM idem_verify() WHERE tenant_id LIKE 'channel%' OR tenant_id IS NULL;
