-- Ends another program's lock if it is still the grant that was seen, with the same end.
WITH done AS (UPDATE {lock} s SET lock_until = date_trunc('milliseconds', {now}) WHERE s.name = {name} AND s.locked_by = {held}
  AND {since} IS NOT DISTINCT FROM {seen_since} AND {until} IS NOT DISTINCT FROM {seen_until} AND s.lock_until > {now}
  RETURNING s.name){trace}
SELECT 'done' FROM done;
