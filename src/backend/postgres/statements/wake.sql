-- Wakes the next in line if it may enter: the lock is free, or is held in its own way and has room; or it is kept by us until
-- another time than before. In a transaction of its own, after that of the release, which a waiter that joins meanwhile then
-- sees; and in one that writes nothing, because a notification takes a lock of the whole server while it commits.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_notify('dlock_' || h.owner, '') FROM (SELECT q.owner, q.mode FROM {queue} q WHERE q.name = {name}
  AND q.alive_until > {now} AND q.alive_until <= {now} + interval '31 s' ORDER BY q.ticket LIMIT 1) h
WHERE NOT EXISTS (SELECT FROM {lock} s WHERE s.name = {name} AND s.lock_until > {now} AND s.locked_by <> {done}
  AND NOT (s.locked_by = 'dlock:' || h.mode
    AND (SELECT count(*) FROM {member} m WHERE m.name = {name} AND m.until > {now})
      < CASE WHEN h.mode = 'shared' THEN 1000000000 WHEN h.mode LIKE 'slots%' THEN substr(h.mode, 6)::bigint ELSE 0 END));
COMMIT;
