-- One call of pgbench's: the next callback is delivered.
\set n :n + 1
\set callback (:n - 1) * 64 + :client_id + 1
INSERT INTO answer (asked, said, payment_no) SELECT 'confirm', outcome, c.payment_no FROM callback c, idem_confirm_payment('shop', c.payment_no, c.channel, c.trade_no, c.amount, 'CNY') WHERE c.id = :callback;
