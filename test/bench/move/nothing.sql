-- What any trigger costs: one that does nothing, from :library.
CREATE FUNCTION peer.nothing() RETURNS trigger LANGUAGE c AS :'library', 'nothing';
CREATE TRIGGER nothing BEFORE UPDATE ON peer.moved_before FOR EACH ROW EXECUTE FUNCTION peer.nothing();
CREATE TRIGGER nothing BEFORE UPDATE ON peer.moved_after FOR EACH ROW EXECUTE FUNCTION peer.nothing();
CREATE TRIGGER nothing_after AFTER UPDATE ON peer.moved_after FOR EACH ROW EXECUTE FUNCTION peer.nothing();
