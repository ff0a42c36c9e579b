\set i random(1, :payments)
SELECT payment_no, status FROM peer.payment WHERE tenant_id = 'read' AND request_key = 'read-' || :i;
