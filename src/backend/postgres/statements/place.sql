-- In which schema the tables are by the role's own path, and what is wrong with them; see the guard.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SELECT pg_catalog.set_config('dlock.path', {path}, true),
  pg_catalog.set_config('dlock.own', pg_catalog.current_setting('search_path'), true);
SET LOCAL search_path = pg_catalog, pg_temp;
WITH path AS (SELECT n.oid, n.nspname, s.place FROM unnest(current_setting('dlock.path')::name[])
    WITH ORDINALITY AS s (name, place) JOIN pg_namespace n ON n.nspname = s.name AND n.oid <> pg_my_temp_schema()),
  home AS (SELECT p.* FROM path p JOIN pg_class c ON c.relnamespace = p.oid AND c.relname = {table} ORDER BY p.place LIMIT 1)
SELECT 'place', h.nspname, (SELECT p.nspname FROM path p ORDER BY p.place LIMIT 1), current_user,
  current_setting('dlock.own') LIKE '%$user%',
  (SELECT p.nspname FROM path p JOIN pg_class c ON c.relnamespace = p.oid AND c.relname = {table} WHERE p.oid <> h.oid
    ORDER BY p.place LIMIT 1),
  (SELECT min(n.nspname::text) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = {table} AND n.oid <> h.oid AND c.relpersistence <> 't' AND has_schema_privilege(n.oid, 'USAGE')),
  t.fault, t.hides, t.many = {count}
FROM (VALUES (true)) one LEFT JOIN home h ON true
LEFT JOIN LATERAL (SELECT count(*) AS many, bool_or(f.hides) AS hides,
    min(f.fault || ' ' || f.relname || ' ' || pg_get_userbyid(f.relowner)) AS fault
  FROM (SELECT c.relname, c.relowner, c.relrowsecurity AND row_security_active(c.oid) AS hides, CASE WHEN {trusted} THEN NULL
      WHEN c.relkind <> 'r' OR c.relispartition THEN 'kind'
      WHEN NOT {owner} THEN 'owner'
      WHEN c.relhasrules THEN 'rule'
      WHEN c.relhastriggers AND EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal
        AND g.tgenabled <> 'D') THEN 'trigger'
      WHEN c.relname = {kept} AND c.relpersistence <> 'p' THEN 'unlogged' END AS fault
    FROM pg_class c WHERE c.relnamespace = h.oid AND c.relname = ANY ({tables})) f) t ON true;
COMMIT;
