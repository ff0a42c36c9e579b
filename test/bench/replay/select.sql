\set i random(1, :payments)
SELECT * FROM peer.payment WHERE tenant_id = 'read' AND payment_no = (1000000000000000 + :i)::text;
