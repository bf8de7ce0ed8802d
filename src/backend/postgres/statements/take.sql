-- Takes the lock if it is free and no other waiter is the next, or extends it where it is held already. The token rises in
-- the same transaction. A lock that is busy is not touched: nothing matches, and nothing is written.
UPDATE {lock} SET locked_by = {me},
  lock_until = CASE WHEN locked_by = {me} AND lock_until > {now} THEN {life} ELSE {now} + ({ttl}::bigint + 1) * interval '1 ms' END,
  locked_at = CASE WHEN locked_by = {me} AND lock_until > {now} THEN locked_at ELSE {now} END
WHERE name = {name} AND (locked_by = {me} AND lock_until > {now}
  OR lock_until <= {now} AND {done_by} IS NULL
    AND NOT EXISTS (SELECT FROM {holder} h WHERE h.name = {name} AND h.token > {largest})
    AND {owner} = coalesce((SELECT q.owner FROM {queue} q WHERE q.name = {name} AND q.alive_until > {now}
      AND q.alive_until <= {now} + interval '31 s' ORDER BY q.ticket LIMIT 1), {owner}));
INSERT INTO {holder} AS h (name, owner, token, ttl_ms, about)
SELECT s.name, s.locked_by, {micros}, greatest({ttl}::bigint, {hold}::bigint), {about} FROM {lock} s
WHERE s.name = {name} AND s.locked_by = {me} AND s.lock_until > {now}
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, ttl_ms = excluded.ttl_ms, about = excluded.about,
  ask = CASE WHEN h.owner = excluded.owner THEN h.ask END,
  token = CASE WHEN h.owner = excluded.owner THEN h.token ELSE greatest(h.token + 1, excluded.token) END;
DELETE FROM {queue} WHERE name = {name} AND owner = {owner}
  AND EXISTS (SELECT FROM {lock} s WHERE s.name = {name} AND s.locked_by = {me} AND s.lock_until > {now});
