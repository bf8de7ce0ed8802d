-- Ends what this owner has of a lock that others hold too. With the last of them the row is free, and stays. First the row, as
-- everybody who changes both does.
SELECT FROM {lock} WHERE name = {name} FOR UPDATE;
WITH done AS (DELETE FROM {member} m USING {lock} s WHERE m.name = {name} AND m.owner = {owner} AND m.until > {now}
  AND s.name = {name} AND s.locked_by = {held} AND s.lock_until > {now} RETURNING m.name){trace}
SELECT 'done' FROM done;
UPDATE {lock} s SET lock_until = coalesce((SELECT max(m.until) + interval '1 ms' FROM {member} m
    WHERE m.name = {name} AND 'dlock:' || m.mode = {held} AND m.until > {now}), date_trunc('milliseconds', {now}))
WHERE s.name = {name} AND s.locked_by = {held} AND s.lock_until > {now};
