-- Joins the queue or stays in it. Removes waiters that died long ago. After the clock was set back, a lock of a dlock would
-- outlive its lease by that step: it is made to end when its holder counts on it.
INSERT INTO {queue} (name, owner, mode, alive_until, since, about)
VALUES ({name}, {owner}, {mode}, {now} + {heartbeat_ttl}::bigint * interval '1 ms', {now}, {about})
ON CONFLICT (name, owner) DO UPDATE SET alive_until = excluded.alive_until;
DELETE FROM {queue} WHERE name = {name} AND owner IN (SELECT q.owner FROM {queue} q WHERE q.name = {name}
  AND q.alive_until < {now} - interval '1 min' FOR UPDATE SKIP LOCKED);
UPDATE {lock} s SET lock_until = {now} + h.ttl_ms * interval '1 ms' FROM {holder} h
WHERE s.name = {name} AND h.name = s.name AND s.locked_by IN (h.owner, h.owner || ':done')
  AND s.lock_until > {now} + (h.ttl_ms + 1000) * interval '1 ms';
UPDATE {lock} s SET lock_until = {now} + (m.longest + 1) * interval '1 ms'
FROM (SELECT mode, max(greatest(ttl_ms, hold_ms)) AS longest FROM {member} WHERE name = {name} GROUP BY mode) m
WHERE s.name = {name} AND s.locked_by = 'dlock:' || m.mode AND s.lock_until > {now} + (m.longest + 1000) * interval '1 ms';
UPDATE {member} SET until = {now} + greatest(ttl_ms, hold_ms) * interval '1 ms'
WHERE name = {name} AND until > {now} + (greatest(ttl_ms, hold_ms) + 1000) * interval '1 ms';
