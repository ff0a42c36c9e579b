\set i random(1, :payments)
SELECT * FROM idem_create_payment('read', 'read-' || :i, 9900, 'CNY', 'read-' || :i);
