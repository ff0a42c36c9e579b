\set n :n + 1
\set id :n * :clients - :client_id
SELECT outcome, ack, receipt_no FROM idem_receive_notification('idem-' || :turn, 'alipay', 'notify-' || :id, 'pay-' || :id, 'trade-' || :id, 'TRADE_SUCCESS', 9900, 'CNY', occurred_at => now(), payload => peer.alipay_body('pay-' || :id, 'trade-' || :id)::jsonb);
