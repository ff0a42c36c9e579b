-- A lease as it is kept by hand, with a fence.
CREATE TABLE peer.lease (LIKE idem_lease INCLUDING ALL) WITH (fillfactor = 50);
INSERT INTO peer.lease VALUES ('bench', 'update', NULL, 0, now(), now()), ('bench', 'skip_locked', NULL, 0, now(), now());
SELECT fence AS made FROM idem_acquire_lease('bench', 'idem', 'nobody') \gset
SELECT idem_release_lease('bench', 'idem', :made);
