\set i random(1, :payments)
SELECT payment_no, status FROM peer.payment_key k JOIN peer.payment p USING (tenant_id, payment_no) WHERE k.tenant_id = 'read' AND k.request_key = 'read-' || :i;
