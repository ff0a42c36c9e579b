CREATE TABLE peer.notification (LIKE idem_notification INCLUDING ALL);

-- What Alipay sends when a trade is paid.
CREATE FUNCTION peer.alipay_body(payment_no text, trade_no text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT '{"app_id": "2021003141652419", "auth_app_id": "2021003141652419", "buyer_id": "2088102959172412", "buyer_logon_id": "159****5620",'
	' "buyer_pay_amount": "99.00", "charset": "utf-8", "fund_bill_list": "[{\"amount\":\"99.00\",\"fundChannel\":\"PCREDIT\"}]",'
	' "gmt_create": "2026-11-29 12:00:01", "gmt_payment": "2026-11-29 12:00:07", "invoice_amount": "99.00", "notify_time": "2026-11-29 12:00:08",'
	' "notify_type": "trade_status_sync", "out_trade_no": "' || payment_no || '", "point_amount": "0.00", "receipt_amount": "99.00",'
	' "seller_id": "2088441398712654", "subject": "A book of verses", "total_amount": "99.00", "trade_no": "' || trade_no || '",'
	' "trade_status": "TRADE_SUCCESS", "version": "1.0"}'
$$;
