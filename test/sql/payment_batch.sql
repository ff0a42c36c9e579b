-- idem_create_payments: many in one call, each with its own answer.
\pset null '-'

-- one for each kind of answer; bad ones stop no other
SELECT outcome FROM idem_create_payment('batch', 'b-paid', 7, 'CNY', payment_no => 'batch-paid');
SELECT outcome FROM idem_confirm_payment('batch', 'batch-paid', 'alipay', 'bt1', 7, 'CNY');
SELECT outcome FROM idem_create_payment('batch', 'b-open', 7, 'CNY', request_key => 'bk-open', channel => 'alipay');
SELECT outcome FROM idem_cancel_request_key('batch', 'bk-burned');
SELECT ord, outcome, payment_no IS NOT NULL AS handle, blocking_no IS NOT NULL AS blocked, status, order_id,
       amount, currency, request_key, error
  FROM idem_create_payments('batch', '[
	{"order_id": "b1", "amount": 100, "currency": "cny", "request_key": "bk1"},
	{"order_id": "b1", "amount": 100, "currency": "CNY", "request_key": "bk2"},
	{"order_id": "b1", "amount": 200, "currency": "CNY", "request_key": "bk3"},
	{"order_id": "b2", "amount": 1e2, "currency": "CNY", "request_key": "bk1"},
	{"order_id": "b1", "amount": 100, "currency": "CNY", "request_key": "bk1"},
	{"order_id": "b-paid", "amount": 7, "currency": "CNY"},
	{"order_id": "b-open", "amount": 7, "currency": "CNY", "request_key": "bk-open"},
	{"order_id": "b-open", "amount": 7, "currency": "CNY", "channel": "wechat"},
	{"order_id": "b3", "amount": 7, "currency": "CNY", "request_key": "bk-burned"},
	{"order_id": "b4", "amount": 7, "currency": "CNY", "payment_no": "batch-b4", "expires_in": "1 hour",
	 "metadata": {"a": [1, 2]}, "account": "m1", "repurchase": false, "token": null, "wait": "0"},
	{"order_id": "b5", "amount": 7.0, "currency": "CNY", "request_key": null, "expires_in": null, "metadata": 5},
	{"order_id": "", "amount": 7, "currency": "CNY"},
	{"amount": 7, "currency": "CNY"},
	{"order_id": "b6", "amount": 0, "currency": "CNY"},
	{"order_id": "b6", "amount": 7.5, "currency": "CNY"},
	{"order_id": "b6", "amount": "7", "currency": "CNY"},
	{"order_id": "b6", "amount": 9223372036854775808, "currency": "CNY"},
	{"order_id": "b6", "amount": 7, "currency": "CN"},
	{"order_id": "b6", "amount": 7},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "repurchase": true},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "repurchase": "yes"},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "expires_in": "soon"},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "expires_in": "-1 day"},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "payment_no": "x"},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "token": "x"},
	{"order_id": "b6", "amount": 7, "currency": "CNY", "colour": "red"},
	"b6", null, []
  ]');
SELECT order_id, purchase_no, amount, currency, status, account, metadata,
       CASE WHEN payment_no LIKE 'batch%' THEN payment_no END AS payment_no, expires_at - created_at AS lives
  FROM idem_payment WHERE tenant_id = 'batch' ORDER BY order_id;

-- again: nothing new
SELECT count(*) AS rows, array_agg(DISTINCT outcome) AS outcomes
  FROM idem_create_payments('batch', '[
	{"order_id": "b1", "amount": 100, "currency": "CNY", "request_key": "bk1"},
	{"order_id": "b4", "amount": 7, "currency": "CNY"},
	{"order_id": "b5", "amount": 7, "currency": "CNY", "request_key": "bk-new"}]');

-- more than a slice, with every order twice, from both ends
SELECT outcome, count(*), count(DISTINCT payment_no) AS payments
  FROM idem_create_payments('batch-2', (
	SELECT jsonb_agg(jsonb_build_object('order_id', 'o' || abs(i), 'amount', 5, 'currency', 'CNY', 'request_key', 'k' || i)
					 ORDER BY i)
	  FROM generate_series(-500, 500) i WHERE i <> 0))
 GROUP BY outcome ORDER BY outcome;
SELECT min(ord), max(ord), count(DISTINCT ord), bool_and(outcome = 'replayed') AS all_replayed,
       bool_and(order_id = 'o' || abs(ord - 501 + (ord > 500)::int)) AS in_order
  FROM idem_create_payments('batch-2', (
	SELECT jsonb_agg(jsonb_build_object('order_id', 'o' || abs(i), 'amount', 5, 'currency', 'CNY', 'request_key', 'k' || i)
					 ORDER BY i)
	  FROM generate_series(-500, 500) i WHERE i <> 0));
SELECT count(*) AS payments, count(DISTINCT order_id) AS orders, count(DISTINCT payment_no) AS numbers
  FROM idem_payment WHERE tenant_id = 'batch-2';
SELECT count(request_key) AS made, (SELECT count(*) FROM idem_payment_key WHERE tenant_id = 'batch-2') AS bound
  FROM idem_payment WHERE tenant_id = 'batch-2';
SELECT count(*) AS births FROM idem_history WHERE tenant_id = 'batch-2' AND from_state IS NULL;
SELECT count(*) AS events FROM idem_outbox WHERE tenant_id = 'batch-2' AND type = 'payment.pending';

-- an expired payment in its way, and money that came before
UPDATE idem_payment SET expires_at = now() - interval '1 second' WHERE tenant_id = 'batch' AND order_id = 'b4';
SELECT outcome FROM idem_confirm_payment('batch', 'batch-b7', 'alipay', 'bt7', 7, 'CNY');
SELECT ord, outcome, payment_no, blocking_no
  FROM idem_create_payments('batch', '[
	{"order_id": "b4", "amount": 7, "currency": "CNY", "payment_no": "batch-b4b"},
	{"order_id": "b7", "amount": 7, "currency": "CNY", "payment_no": "batch-b7"}]');

-- nothing, and nonsense
SELECT * FROM idem_create_payments('batch', '[]');
SELECT * FROM idem_create_payments('batch', '{}');
SELECT * FROM idem_create_payments('batch', '1');
SELECT * FROM idem_create_payments('batch', NULL);
SELECT * FROM idem_verify();
