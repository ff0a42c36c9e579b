\set i random(1, :payments)
SELECT payment_no, status FROM peer.payment WHERE tenant_id = 'read' AND payment_no = (1000000000000000 + :i)::text;
