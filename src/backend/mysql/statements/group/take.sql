-- Takes the lock together with others of this mode: all who wait before us are of it too, and there is room. Or extends what
-- is held already. First, who holds it no more: where the lock is free, or is held in another way than that one's, nothing of
-- a group counts.
DELETE m FROM {member} m JOIN {lock} s ON {this} WHERE m.name = {name}
  AND (m.until <= {now} OR s.lock_until <= {now} OR s.locked_by <> CONCAT('dlock:', m.mode));
UPDATE {member} m JOIN {lock} s ON {this} SET m.until = {member_life} WHERE m.name = {name} AND m.owner = {owner}
  AND NOT m.done AND s.locked_by = {group} AND s.lock_until > {now};
-- Each grant has a token of its own, and the lowest slot that is free.
SET @dlock = @dlock_row IS NOT NULL
  AND EXISTS (SELECT 1 FROM {lock} s WHERE {this} AND (s.lock_until <= {now} OR s.locked_by = {group}))
  AND NOT EXISTS (SELECT 1 FROM {member} m WHERE m.name = {name}
    AND (m.owner = {owner} OR m.owner IN ({outer}) AND NOT m.done))
  AND NOT EXISTS (SELECT 1 FROM {holder} d WHERE d.name = {name} AND d.token > {largest})
  AND NOT EXISTS (SELECT 1 FROM {queue} q WHERE {before} AND q.mode <> {mode})
  AND (SELECT COUNT(*) FROM {queue} q WHERE {before}) + (SELECT COUNT(*) FROM {member} m WHERE m.name = {name}) < {room};
SET @dlock_slot = {slot};
INSERT INTO {holder} (name, owner, token, ttl_ms, about)
SELECT {name}, {me}, {micros}, 0, '' FROM DUAL WHERE @dlock AND {sure}
ON DUPLICATE KEY UPDATE token = GREATEST(token + 1, VALUES(token)), owner = VALUES(owner), about = '', ask = NULL;
INSERT INTO {member} (name, owner, mode, slot, token, since, until, ttl_ms, hold_ms, done, about)
SELECT {name}, {owner}, {mode}, @dlock_slot, h.token, {now}, TIMESTAMPADD(MICROSECOND, 1000 * {ttl}, {now}), {ttl}, {hold}, 0,
  {about} FROM {holder} h WHERE h.name = {name} AND @dlock AND {sure};
-- The row lasts as long as the last of them, and is what other programs see. The counter rises also where only an end is
-- extended, so that it conflicts with a release on another node of a cluster.
SET @dlock = EXISTS (SELECT 1 FROM {member} m WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done);
UPDATE {holder} SET token = token + 1 WHERE name = {name} AND @dlock AND {sure};
UPDATE {lock} s SET
  s.locked_at = IF(s.locked_by = {group} AND s.lock_until > {now}, s.locked_at, {now}),
  s.lock_until = (SELECT TIMESTAMPADD(MICROSECOND, 1000, MAX(m.until)) FROM {member} m WHERE m.name = {name}),
  s.locked_by = {group}
WHERE {this} AND (s.lock_until <= {now} OR s.locked_by = {group}) AND @dlock AND {sure};
DELETE FROM {queue} WHERE name = {name} AND owner = {owner} AND @dlock;
