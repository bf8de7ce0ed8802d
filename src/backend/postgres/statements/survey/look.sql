-- The locks with these names that are held: their rows, those who hold them together, and their waiters, each with a number
-- that says how many there are. Of each lock at most so many.
SELECT 'lock', s.name, s.locked_by, h.token, left(h.about, 4096), {since}, {until}, NULL, NULL, NULL, h.ttl_ms, 1, {time},
  left(h.ask, 8192)
FROM {lock} s LEFT JOIN {holder} h ON h.name = s.name AND s.locked_by IN (h.owner, h.owner || ':done')
WHERE s.name IN ({names}) AND s.lock_until > {now};
SELECT 'member', t.name, t.owner, t.token, CASE WHEN t.bytes <= {room} THEN left(t.about, 4096) END,
  {member_since}, {member_until}, t.mode, t.slot, t.done, t.hold_ms, t.many, {time},
  CASE WHEN t.bytes <= {room} THEN left(t.ask, 8192) END
FROM (SELECT m.*, count(*) OVER (PARTITION BY m.name) AS many,
    row_number() OVER (PARTITION BY m.name ORDER BY m.slot, m.token) AS rank,
    sum(octet_length(m.about) + coalesce(octet_length(m.ask), 0)) OVER (ORDER BY m.name, m.slot, m.token) AS bytes
  FROM {member} m JOIN {lock} s ON s.name = m.name AND s.locked_by = 'dlock:' || m.mode AND s.lock_until > {now}
  WHERE m.name IN ({names}) AND m.until > {now}) t
WHERE t.rank <= {holders} ORDER BY t.name, t.rank;
-- As they count their places: who hangs up for a while keeps it.
SELECT 'waiter', t.name, t.owner, NULL, CASE WHEN t.bytes <= {room} THEN left(t.about, 4096) END,
  {waiter_since}, NULL, t.mode, NULL, NULL, NULL, t.many, {time}, NULL
FROM (SELECT q.*, count(*) OVER (PARTITION BY q.name) AS many, row_number() OVER (PARTITION BY q.name ORDER BY q.ticket) AS rank,
    sum(octet_length(q.about)) OVER (PARTITION BY q.name ORDER BY q.ticket) AS bytes
  FROM {queue} q WHERE q.name IN ({names}) AND q.alive_until > {now} - interval '1 min'
    AND q.alive_until <= {now} + interval '31 s') t
WHERE t.rank <= {waiters} ORDER BY t.name, t.rank;
