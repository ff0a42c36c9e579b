CREATE TABLE peer.entitlement (LIKE idem_entitlement INCLUDING ALL);
CREATE TABLE peer.campaign (LIKE idem_campaign INCLUDING ALL) WITH (fillfactor = 50);
CREATE TABLE peer.campaign_user (LIKE idem_campaign_user INCLUDING ALL) WITH (fillfactor = 90);

-- A campaign that is never exhausted
SELECT outcome FROM idem_set_campaign('bench', 'spring', 1000000000, 10);
INSERT INTO peer.campaign SELECT * FROM idem_campaign WHERE tenant_id = 'bench';
