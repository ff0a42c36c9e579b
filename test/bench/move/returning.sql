\set i random(1, 200000)
UPDATE peer.moved_bare SET status = CASE status WHEN 'pending' THEN 'paid' WHEN 'paid' THEN 'shipped' WHEN 'shipped' THEN 'refunded' ELSE 'paid' END, version = version + 1 WHERE tenant_id = 'bench' AND id = (:i)::text AND status IN ('pending', 'paid', 'shipped', 'refunded') RETURNING status, version;
