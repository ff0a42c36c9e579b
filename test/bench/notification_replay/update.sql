\set i random(1, 20000)
UPDATE peer.heard SET hits = hits + 1, last_hit_at = clock_timestamp() WHERE tenant_id = 'again' AND channel = 'alipay' AND account = '' AND notify_id = 'notify-' || :i RETURNING outcome, ack, digest;
