-- Takes the lock together with others of this mode: all who wait before us are of it too, and there is room. Or extends what
-- is held already. The row is locked first, so that each statement sees what everybody before us has done; where it was not
-- there to be locked, nothing is granted, even if it has come since.
SELECT set_config('dlock.locked', 'yes', true) FROM {lock} WHERE name = {name} FOR UPDATE;
-- Who holds it no more. Where the lock is free, or is held in another way than that one's, nothing of a group counts.
DELETE FROM {member} m USING {lock} s WHERE m.name = {name} AND s.name = {name}
  AND (m.until <= {now} OR s.lock_until <= {now} OR s.locked_by <> 'dlock:' || m.mode);
UPDATE {member} m SET until = {member_life} FROM {lock} s WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done
  AND s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now};
-- Each grant has a token of its own, and the lowest slot that is free.
WITH granted AS (INSERT INTO {holder} AS h (name, owner, token, ttl_ms, about)
  SELECT s.name, {me}, {micros}, 0, '' FROM {lock} s
  WHERE s.name = {name} AND current_setting('dlock.locked', true) = 'yes'
    AND (s.lock_until <= {now} OR s.locked_by = {group})
    AND NOT EXISTS (SELECT FROM {member} m WHERE m.name = {name}
      AND (m.owner = {owner} OR m.owner IN ({outer}) AND NOT m.done))
    AND NOT EXISTS (SELECT FROM {holder} d WHERE d.name = {name} AND d.token > {largest})
    AND NOT EXISTS (SELECT FROM {queue} q WHERE {before} AND q.mode <> {mode})
    AND (SELECT count(*) FROM {queue} q WHERE {before}) + (SELECT count(*) FROM {member} m WHERE m.name = {name}) < {room}
  ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, about = '', ask = NULL, token = greatest(h.token + 1, excluded.token)
  RETURNING h.token)
INSERT INTO {member} (name, owner, mode, slot, token, since, until, ttl_ms, hold_ms, done, about)
SELECT {name}, {owner}, {mode}, {slot}, g.token, {now}, {now} + {ttl}::bigint * interval '1 ms', {ttl}, {hold}, false, {about}
FROM granted g;
-- The row lasts as long as the last of them, and is what other programs see.
UPDATE {lock} s SET locked_by = {group},
  lock_until = (SELECT max(m.until) + interval '1 ms' FROM {member} m WHERE m.name = {name}),
  locked_at = CASE WHEN s.locked_by = {group} AND s.lock_until > {now} THEN s.locked_at ELSE {now} END
WHERE s.name = {name} AND (s.lock_until <= {now} OR s.locked_by = {group})
  AND EXISTS (SELECT FROM {member} m WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done);
DELETE FROM {queue} WHERE name = {name} AND owner = {owner}
  AND EXISTS (SELECT FROM {member} m WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done);
