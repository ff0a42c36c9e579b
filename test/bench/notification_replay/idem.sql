\set i random(1, 20000)
SELECT outcome, ack, status FROM idem_receive_notification('again', 'alipay', 'notify-' || :i, 'pay-' || :i, 'trade-' || :i, 'TRADE_SUCCESS', 9900, 'CNY');
