-- The locks with these names that are held: their rows, those who hold them together, and their waiters, each with a number
-- that says how many there are. Of each lock at most so many.
SELECT 'lock', s.name, s.locked_by, h.token, LEFT(h.about, 4096), {since}, {until}, NULL, NULL, NULL, h.ttl_ms, 1, {time}, LEFT(h.ask, 8192)
FROM {lock} s LEFT JOIN {holder} h ON h.name = s.name AND s.locked_by IN (h.owner, CONCAT(h.owner, ':done'))
WHERE s.name IN ({names}) AND s.lock_until > {now};
SELECT 'member', t.name, t.owner, t.token, IF(t.total <= {room}, LEFT(t.about, 4096), NULL),
  {member_since}, {member_until}, t.mode, t.slot, t.done, t.hold_ms, t.many, {time},
  IF(t.total <= {room}, LEFT(t.ask, 8192), NULL)
FROM (SELECT m.*, COUNT(*) OVER (PARTITION BY m.name) AS many,
    ROW_NUMBER() OVER (PARTITION BY m.name ORDER BY m.slot, m.token) AS place,
    SUM(LENGTH(m.about) + COALESCE(LENGTH(m.ask), 0)) OVER (ORDER BY m.name, m.slot, m.token) AS total
  FROM {member} m JOIN {lock} s ON s.name = m.name AND s.locked_by = CONCAT('dlock:', m.mode) AND s.lock_until > {now}
  WHERE m.name IN ({names}) AND m.until > {now}) t
WHERE t.place <= {holders} ORDER BY t.name, t.place;
-- As they count their places: who hangs up for a while keeps it.
SELECT 'waiter', t.name, t.owner, NULL, IF(t.total <= {room}, LEFT(t.about, 4096), NULL),
  {waiter_since}, NULL, t.mode, NULL, NULL, NULL, t.many, {time}, NULL
FROM (SELECT q.*, COUNT(*) OVER (PARTITION BY q.name) AS many, ROW_NUMBER() OVER (PARTITION BY q.name ORDER BY q.ticket) AS place,
    SUM(LENGTH(q.about)) OVER (PARTITION BY q.name ORDER BY q.ticket) AS total
  FROM {queue} q WHERE q.name IN ({names}) AND q.alive_until > TIMESTAMPADD(MINUTE, -1, {now})
    AND q.alive_until <= TIMESTAMPADD(SECOND, 31, {now})) t
WHERE t.place <= {waiters} ORDER BY t.name, t.place;
