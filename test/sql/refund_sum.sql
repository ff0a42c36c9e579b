--
-- refund_sum: refunds that a channel tells as a sum, by name, or both.
--
\set SHOW_CONTEXT never

-- One payment of 100 a story, its money there; what the channel tells of it, at a minute of the day.
CREATE FUNCTION pg_temp.begin_story(story text) RETURNS text LANGUAGE sql AS $$
	SELECT (idem_create_payment('sum', story, 100, 'USD', channel => 'stripe', payment_no => 'sum_' || story)).outcome || ', ' ||
		(idem_receive_notification('sum', 'stripe', story || ' paid', 'sum_' || story, 'pi_' || story, 'payment_intent.succeeded', 100, 'USD')).outcome
$$;
CREATE FUNCTION pg_temp.tell_sum(story text, sum bigint, minute int, refund_no text = NULL) RETURNS text LANGUAGE sql AS $$
	SELECT outcome || coalesce(' ' || status, '') FROM idem_receive_notification('sum', 'stripe', format('%s sum %s at %s', story, sum, minute), 'sum_' || story, 'pi_' || story, 'charge.refunded', 100, 'USD',
		biz_no => refund_no, refund_amount => sum, occurred_at => timestamptz '2024-05-01 00:00:00+00' + minute * interval '1 minute')
$$;
CREATE FUNCTION pg_temp.tell_refund(story text, refund text, amount bigint, minute int, refund_no text = NULL, event text = 'refund.updated') RETURNS text LANGUAGE sql AS $$
	SELECT outcome || coalesce(' ' || status, '') FROM idem_receive_notification('sum', 'stripe', format('%s %s %s', story, refund, event), 'sum_' || story, 'pi_' || story, event, NULL, NULL,
		biz_no => refund_no, channel_refund_no => 're_' || story || refund, refund_amount => amount, refund_currency => 'usd', occurred_at => timestamptz '2024-05-01 00:00:00+00' + minute * interval '1 minute')
$$;
CREATE FUNCTION pg_temp.ask(story text, refund_no text, amount bigint) RETURNS text LANGUAGE sql AS $$
	SELECT (idem_request_refund('sum', 'sum_' || story, refund_no, amount, 'USD')).outcome || ', ' || (idem_submit_refund('sum', refund_no)).outcome
$$;
CREATE FUNCTION pg_temp.as_if_then(no text) RETURNS void LANGUAGE sql AS $$
	UPDATE idem_refund SET submitted_at = '2024-05-01 00:00:00+00' WHERE tenant_id = 'sum' AND refund_no = no
$$;
CREATE TEMP VIEW books AS
	SELECT r.reported_payment_no AS payment, r.refund_reserved, r.refunded, r.excess, r.refund_told,
		(SELECT string_agg(CASE WHEN f.refund_no LIKE 'C' || r.receipt_no || '-%' THEN 'sum' ELSE f.refund_no END || coalesce(' (' || f.channel_refund_no || ')', '') || ' ' || f.status || ' ' || f.amount, ', ' ORDER BY f.created_at, f.refund_no)
		 FROM idem_refund f WHERE f.tenant_id = r.tenant_id AND f.receipt_no = r.receipt_no) AS refunds
	FROM idem_receipt r WHERE r.tenant_id = 'sum';

-- Sums alone, in order and not.
SELECT pg_temp.begin_story('plain');
SELECT pg_temp.tell_sum('plain', 30, 1), pg_temp.tell_sum('plain', 50, 2), pg_temp.tell_sum('plain', 100, 3);
SELECT pg_temp.begin_story('late');
SELECT pg_temp.tell_sum('late', 50, 2), pg_temp.tell_sum('late', 30, 1), pg_temp.tell_sum('late', 50, 2);
SELECT * FROM books WHERE payment IN ('sum_plain', 'sum_late') ORDER BY 1;
SELECT status FROM idem_payment WHERE tenant_id = 'sum' AND payment_no = 'sum_plain';

-- Sums and names: whichever comes first, the money is booked once.
SELECT pg_temp.begin_story('sum_first');
SELECT pg_temp.tell_sum('sum_first', 30, 1), pg_temp.tell_refund('sum_first', 'a', 30, 1), pg_temp.tell_refund('sum_first', 'a', 30, 1, event => 'charge.refund.updated');
SELECT pg_temp.begin_story('name_first');
SELECT pg_temp.tell_refund('name_first', 'a', 30, 1), pg_temp.tell_sum('name_first', 30, 1);
SELECT pg_temp.begin_story('both_last');
SELECT pg_temp.tell_sum('both_last', 50, 2), pg_temp.tell_refund('both_last', 'a', 30, 1), pg_temp.tell_refund('both_last', 'b', 20, 2), pg_temp.tell_sum('both_last', 30, 1);
SELECT pg_temp.begin_story('crossed');
SELECT pg_temp.tell_refund('crossed', 'b', 20, 2), pg_temp.tell_sum('crossed', 30, 1), pg_temp.tell_refund('crossed', 'a', 30, 1), pg_temp.tell_sum('crossed', 50, 2);
-- a younger one of the same amount is another one
SELECT pg_temp.begin_story('younger');
SELECT pg_temp.tell_sum('younger', 30, 1), pg_temp.tell_refund('younger', 'b', 30, 2), pg_temp.tell_sum('younger', 60, 2), pg_temp.tell_refund('younger', 'a', 30, 1);
SELECT * FROM books WHERE payment IN ('sum_sum_first', 'sum_name_first', 'sum_both_last', 'sum_crossed', 'sum_younger') ORDER BY 1;

-- One of ours is on its way: the sum may contain it.
SELECT pg_temp.begin_story('ours');
SELECT pg_temp.ask('ours', 'ours-1', 30);
SELECT pg_temp.tell_sum('ours', 30, 1);
SELECT * FROM books WHERE payment = 'sum_ours';
SELECT pg_temp.tell_sum('ours', 50, 2);
SELECT pg_temp.tell_refund('ours', 'x', 30, 1, 'ours-1');
SELECT * FROM books WHERE payment = 'sum_ours';
-- it did not: the sum that is told with it says so
SELECT pg_temp.begin_story('apart');
SELECT pg_temp.ask('apart', 'apart-1', 30);
SELECT pg_temp.tell_sum('apart', 50, 1);
SELECT pg_temp.tell_sum('apart', 80, 2, 'apart-1');
SELECT * FROM books WHERE payment = 'sum_apart';
-- it fails after that, and the sum may have counted it: it does not any more
SELECT pg_temp.begin_story('fails');
SELECT pg_temp.ask('fails', 'fails-1', 30);
SELECT pg_temp.tell_sum('fails', 50, 1);
SELECT pg_temp.as_if_then('fails-1');
SELECT pg_temp.tell_refund('fails', 'x', 30, 2, 'fails-1', 'refund.failed');
SELECT * FROM books WHERE payment = 'sum_fails';
-- it fails and was never paid out: what the sum exceeds the books by is booked then
SELECT pg_temp.begin_story('fails_too');
SELECT pg_temp.ask('fails_too', 'fails_too-1', 30);
SELECT pg_temp.tell_sum('fails_too', 30, 1);
SELECT outcome, status, remainder FROM idem_settle_refund('sum', 'fails_too-1', 'failed');
SELECT * FROM books WHERE payment = 'sum_fails_too';

-- Money that came back: an old sum does not send it again, a new one is smaller.
SELECT pg_temp.begin_story('back');
SELECT pg_temp.ask('back', 'back-1', 30), pg_temp.as_if_then('back-1');
SELECT pg_temp.tell_refund('back', 'x', 30, 1, 'back-1'), pg_temp.tell_refund('back', 'x', 30, 3, 'back-1', 'refund.failed');
SELECT pg_temp.tell_sum('back', 30, 2);
SELECT * FROM books WHERE payment = 'sum_back';
SELECT pg_temp.tell_sum('back', 20, 4);
SELECT * FROM books WHERE payment = 'sum_back';

-- It came back before the sum was told: then the sum does not contain it, and something else is booked.
SELECT pg_temp.begin_story('older');
SELECT pg_temp.tell_refund('older', 'a', 30, 1), pg_temp.tell_sum('older', 30, 4);
SELECT pg_temp.tell_refund('older', 'a', 30, 3, event => 'refund.failed');
SELECT * FROM books WHERE payment = 'sum_older';
-- It came back after that, and its success is told last: the sum contained it, and stays explained.
SELECT pg_temp.begin_story('taken');
SELECT pg_temp.ask('taken', 'taken-1', 30), pg_temp.as_if_then('taken-1');
SELECT pg_temp.tell_sum('taken', 30, 2), pg_temp.tell_refund('taken', 'x', 30, 3, 'taken-1', 'refund.failed'), pg_temp.tell_refund('taken', 'x', 30, 1, 'taken-1');
SELECT * FROM books WHERE payment = 'sum_taken';
-- A refund that nobody knows came back: the same, whatever is told first.
SELECT pg_temp.begin_story('back_abc'), pg_temp.begin_story('back_acb'), pg_temp.begin_story('back_cab'), pg_temp.begin_story('back_bca');
SELECT pg_temp.tell_sum('back_abc', 30, 2), pg_temp.tell_refund('back_abc', 'x', 30, 1), pg_temp.tell_refund('back_abc', 'x', 30, 3, event => 'refund.failed');
SELECT pg_temp.tell_sum('back_acb', 30, 2), pg_temp.tell_refund('back_acb', 'x', 30, 3, event => 'refund.failed'), pg_temp.tell_refund('back_acb', 'x', 30, 1);
SELECT pg_temp.tell_refund('back_cab', 'x', 30, 3, event => 'refund.failed'), pg_temp.tell_sum('back_cab', 30, 2), pg_temp.tell_refund('back_cab', 'x', 30, 1);
SELECT pg_temp.tell_refund('back_bca', 'x', 30, 1), pg_temp.tell_refund('back_bca', 'x', 30, 3, event => 'refund.failed'), pg_temp.tell_sum('back_bca', 30, 2);
SELECT * FROM books WHERE payment LIKE 'sum\_back\_%' ORDER BY 1;
-- A nameless one came back before the sum was told: what is booked in its place needs another number.
SELECT pg_temp.begin_story('again');
SELECT pg_temp.tell_sum('again', 30, 2);
SELECT s.outcome, s.status, s.remainder FROM idem_refund f, idem_settle_refund('sum', f.refund_no, 'reversed', occurred_at => '2024-05-01 00:01:00+00') s WHERE f.tenant_id = 'sum' AND f.order_id = 'again';
SELECT * FROM books WHERE payment = 'sum_again';

-- What a channel answers is the same refund as what it notifies of.
SELECT pg_temp.begin_story('asked');
SELECT pg_temp.tell_sum('asked', 30, 2);
SELECT outcome, status, remainder FROM idem_settle_refund('sum', NULL, 'succeeded', 're_asked', 30, payment_no => 'sum_asked');
SELECT outcome, status, remainder FROM idem_settle_refund('sum', NULL, 'succeeded', 're_asked', 30, payment_no => 'sum_asked');
SELECT * FROM books WHERE payment = 'sum_asked';
-- An older sum that is booked is a duplicate, though the latest is not reached yet.
SELECT pg_temp.begin_story('kept');
SELECT pg_temp.tell_refund('kept', 'a', 20, 1), pg_temp.ask('kept', 'kept-1', 30);
SELECT pg_temp.tell_sum('kept', 50, 3), pg_temp.tell_sum('kept', 20, 2), pg_temp.tell_sum('kept', 50, 4, 'kept-1');
SELECT * FROM books WHERE payment = 'sum_kept';

-- In whatever order it is told, it comes to the same: S a sum, N a refund by name, F one that fails after its success; ours is o, at a minute.
CREATE TEMP SEQUENCE told;
CREATE FUNCTION pg_temp.orders(facts text[]) RETURNS SETOF text[] LANGUAGE sql AS $$
	WITH RECURSIVE o (told, rest) AS (
		SELECT '{}'::text[], facts
		UNION ALL SELECT told || fact, array_remove(rest, fact) FROM o, unnest(rest) AS fact)
	SELECT told FROM o WHERE rest = '{}'
$$;
CREATE FUNCTION pg_temp.tell(story text, fact text) RETURNS void LANGUAGE sql AS $$
	SELECT CASE m[1] WHEN 'S' THEN pg_temp.tell_sum(story, m[3]::bigint, m[4]::int)
		ELSE pg_temp.tell_refund(story, m[2], m[3]::bigint, m[4]::int, CASE m[2] WHEN 'o' THEN story || '-o' END, CASE m[1] WHEN 'N' THEN 'refund.updated' ELSE 'refund.failed' END) END
	FROM regexp_match(fact, '(.)(.?)(..)@(.)') AS m
$$;
CREATE FUNCTION pg_temp.tell_in_any_order(facts text[], ours bigint = NULL) RETURNS TABLE (orders bigint, refunded bigint, refund_reserved bigint, refund_told bigint) LANGUAGE plpgsql AS $$
DECLARE
	story text;
	first int := nextval('told');
	one text[];
BEGIN
	FOR one IN SELECT pg_temp.orders(facts) LOOP
		story := 'told' || nextval('told');
		PERFORM pg_temp.begin_story(story), CASE WHEN ours > 0 THEN (pg_temp.ask(story, story || '-o', ours), pg_temp.as_if_then(story || '-o'))::text END;
		PERFORM pg_temp.tell(story, fact) FROM unnest(one) WITH ORDINALITY AS f (fact, n) ORDER BY n;
	END LOOP;
	RETURN QUERY SELECT count(*), r.refunded, r.refund_reserved, r.refund_told FROM idem_receipt r
		WHERE r.tenant_id = 'sum' AND substring(r.payment_no, '^sum_told(.*)')::int > first GROUP BY 2, 3, 4;
END $$;
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,Na30@1,S50@2,Nb20@2}');
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,Na30@1,S50@2,Nb20@2,Fa30@3}');
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,No30@1,S50@2,Nb20@2}', 30);
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,No30@1,Fo30@3,S20@4}', 30);
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,Na30@1,Fa30@3,S20@4,Nb20@4}');
SELECT * FROM pg_temp.tell_in_any_order('{S60@2,Na20@1,Nb30@1,Fb30@4}');
SELECT * FROM pg_temp.tell_in_any_order('{S50@2,Na30@1,Nb20@2,Fb20@3}');
SELECT * FROM pg_temp.tell_in_any_order('{S30@1,Nx30@2,Fx30@3}');
SELECT * FROM pg_temp.tell_in_any_order('{S40@2,No20@2,Na20@1,Fa20@3}', 20);

-- One of ours that was held as failed succeeded all the same: it was what the sum contained.
SELECT pg_temp.begin_story('after_all');
SELECT pg_temp.ask('after_all', 'after_all-1', 30);
SELECT pg_temp.tell_sum('after_all', 50, 1);
SELECT outcome, status, remainder FROM idem_settle_refund('sum', 'after_all-1', 'failed');
SELECT outcome, status, remainder FROM idem_settle_refund('sum', 'after_all-1', 'succeeded');
SELECT * FROM books WHERE payment = 'sum_after_all';
SELECT from_state, to_state FROM idem_history WHERE tenant_id = 'sum' AND entity = 'refund' AND key = 'after_all-1' ORDER BY version;

-- More than there was, another currency, no sum: recorded as for any refund.
SELECT pg_temp.begin_story('odd');
SELECT pg_temp.tell_sum('odd', -5, 1);
SELECT outcome FROM idem_receive_notification('sum', 'stripe', 'odd 2', 'sum_odd', 'pi_odd', 'charge.refunded', 100, 'USD', refund_amount => 10, refund_currency => 'EUR');
SELECT pg_temp.tell_sum('odd', 120, 1);
SELECT * FROM books WHERE payment = 'sum_odd';
SELECT kind, entity, hits FROM idem_anomaly WHERE tenant_id = 'sum' AND order_id = 'odd' ORDER BY anomaly_no;
-- Money that nobody knows.
SELECT outcome, ack FROM idem_receive_notification('sum', 'stripe', 'no money', 'sum_none', 'pi_none', 'charge.refunded', 100, 'USD', refund_amount => 10);
SELECT outcome, ack FROM idem_receive_notification('sum', 'stripe', 'early money', 'sum_early', 'pi_early', 'payment_intent.succeeded', 100, 'USD');
SELECT outcome, ack FROM idem_receive_notification('sum', 'stripe', 'early back', 'sum_early', 'pi_early', 'charge.refunded', 100, 'USD', refund_amount => 10);
SELECT pg_temp.tell_refund('early', 'a', 10, 1), pg_temp.tell_sum('early', 30, 2);
SELECT * FROM books WHERE payment = 'sum_early';

SELECT * FROM idem_verify() WHERE tenant_id = 'sum' OR tenant_id IS NULL;
