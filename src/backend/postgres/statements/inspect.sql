-- inspect
-- What could be wrong with the table of locks and with the server; no row where the lock has none yet. The types are those of
-- the row's values, which costs a new session less than a look at the catalogue.
SELECT 'inspect', current_setting('fsync'), (SELECT c.relpersistence FROM pg_class c WHERE c.oid = s.tableoid),
  format('lock_until %s,locked_at %s', pg_typeof(s.lock_until), pg_typeof(s.locked_at)), {beside}
FROM {lock} s WHERE s.name = {name};
