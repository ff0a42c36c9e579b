-- What a careful hand writes: the key, a digest of the request, the response.
CREATE SEQUENCE peer.attempt;
CREATE TABLE peer.request (LIKE idem_request INCLUDING ALL) WITH (fillfactor = 80);
ALTER TABLE peer.request ALTER attempt SET DEFAULT nextval('peer.attempt');
