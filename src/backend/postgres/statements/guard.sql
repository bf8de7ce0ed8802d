-- Goes in front of the first request of a connection: fails, as where a table is missing, unless the tables are where that request
-- has them by the role's own path, and are what they seem to be. Whoever may create in a schema of that path can make functions
-- and operators there that are called instead of the server's: until it is left out, only functions that are named with their
-- schema are called.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SELECT 'guard', pg_catalog.set_config('dlock.table', pg_catalog.to_regclass({asked})::pg_catalog.oid::pg_catalog.text, true);
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT 'guard', CASE WHEN t.sound = {count} AND (NOT {assumed} OR t.is_first AND t.many = 1) THEN 'pg_class'
  ELSE 'dlock_looks_for_its_tables' END::text::regclass
FROM (SELECT count(*) FILTER (WHERE c.relnamespace = to_regnamespace({schema}) AND ({trusted} OR c.relkind = 'r'
      AND NOT c.relispartition AND NOT c.relhasrules AND NOT c.relhastriggers AND NOT c.relrowsecurity
      AND (c.relname <> {kept} OR c.relpersistence = 'p') AND {owner})) AS sound,
    count(*) FILTER (WHERE c.relname = {table} AND c.relpersistence <> 't') AS many,
    bool_or(c.relnamespace = to_regnamespace({schema}) AND c.oid::text = current_setting('dlock.table')) AS is_first
  FROM pg_class c WHERE c.relname = ANY ({tables})) t;
COMMIT;
