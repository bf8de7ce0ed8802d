-- Joins the queue or stays in it, a transaction each. One waiter in eight removes one that died long ago. After the clock was set back, a
-- lock of a dlock would outlive its lease by that step: it is made to end when its holder counts on it.
INSERT INTO {queue} (name, owner, mode, alive_until, since, about)
VALUES ({name}, {owner}, {mode}, TIMESTAMPADD(MICROSECOND, 1000 * {heartbeat_ttl}, {now}), {now}, {about})
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until);
SET @dlock = IF(RAND() < 0.125, (SELECT q.owner FROM {queue} q WHERE q.name = {name}
  AND q.alive_until < TIMESTAMPADD(MINUTE, -1, {now}) ORDER BY q.ticket LIMIT 1), NULL);
DELETE FROM {queue} WHERE name = {name} AND owner = @dlock;
UPDATE {lock} s SET s.lock_until = TIMESTAMPADD(MICROSECOND, 1000 * {counted}, {now})
WHERE {this} AND s.lock_until > TIMESTAMPADD(MICROSECOND, 1000 * (1000 + {counted}), {now});
UPDATE {member} SET until = TIMESTAMPADD(MICROSECOND, 1000 * GREATEST(ttl_ms, hold_ms), {now})
WHERE name = {name} AND until > TIMESTAMPADD(MICROSECOND, 1000 * (1000 + GREATEST(ttl_ms, hold_ms)), {now});
