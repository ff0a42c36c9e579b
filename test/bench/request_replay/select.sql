\set i random(1, :payments)
SELECT status, fingerprint, response_status, response FROM peer.request_done WHERE tenant_id = 'bench' AND scope = 'done' AND key = 'done-' || :i;
