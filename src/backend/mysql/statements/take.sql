-- Takes the lock if it is free and no other waiter is the next, or extends it where it is held already. The token rises in
-- the same transaction. A lock that is busy is not touched: nothing matches, and nothing is written. The order of the
-- assignments counts.
UPDATE {lock} s SET
  s.locked_at = IF(s.locked_by = {me} AND s.lock_until > {now}, s.locked_at, {now}),
  s.lock_until = IF(s.locked_by = {me} AND s.lock_until > {now}, {life}, TIMESTAMPADD(MICROSECOND, 1000 * ({ttl} + 1), {now})),
  s.locked_by = {me}
WHERE {this} AND (s.locked_by = {me} AND s.lock_until > {now}
  OR s.lock_until <= {now} AND {done_by} IS NULL
    AND NOT EXISTS (SELECT 1 FROM {holder} h WHERE h.name = {name} AND h.token > {largest})
    AND {owner} = COALESCE({head}, {owner}));
SET @dlock = EXISTS (SELECT 1 FROM {lock} s WHERE {this} AND s.locked_by = {me} AND s.lock_until > {now});
INSERT INTO {holder} (name, owner, token, ttl_ms, about)
SELECT {name}, {me}, {micros}, GREATEST({ttl}, {hold}), {about} FROM DUAL WHERE @dlock AND {sure}
ON DUPLICATE KEY UPDATE token = IF(owner = VALUES(owner), token, GREATEST(token + 1, VALUES(token))),
  ask = IF(owner = VALUES(owner), ask, NULL), owner = VALUES(owner), ttl_ms = VALUES(ttl_ms), about = VALUES(about);
DELETE FROM {queue} WHERE name = {name} AND owner = {owner} AND @dlock;
