-- Tokens as they are kept by hand; and those that are there before a round,
-- of both kinds, so that each side fetches one in the same way.
CREATE TABLE peer.token (tenant_id text COLLATE "C", token text COLLATE "C", scope text NOT NULL, expires_at timestamptz NOT NULL,
	PRIMARY KEY (tenant_id, token));
CREATE TABLE peer.issued (id int PRIMARY KEY, idem text NOT NULL, statement text NOT NULL);
