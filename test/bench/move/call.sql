\set i random(1, 200000)
SELECT outcome, to_state, version FROM idem_move('peer.moved_attached', jsonb_build_object('tenant_id', 'bench', 'id', (:i)::text), 'next');
