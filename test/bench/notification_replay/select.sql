\set i random(1, 20000)
SELECT outcome, ack, digest FROM peer.heard WHERE tenant_id = 'again' AND channel = 'alipay' AND account = '' AND notify_id = 'notify-' || :i;
