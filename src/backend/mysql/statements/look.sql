-- The lock as it is: whether it is ours, whether it is free, who has it, until when it is worth waiting, and the time here;
-- no row where the lock has none yet. Of several holders one is named: ourselves, an outer run, or the one that ends last.
SELECT 'look', IF({mine}, 't', 'f'), IF(s.lock_until <= {now}, 't', 'f'), s.locked_by, COALESCE(m.token, h.token),
  LEFT(COALESCE(m.about, h.about), 4096),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), IF(m.mode = {mode},
    (SELECT MIN(c.until) FROM {member} c WHERE c.name = {name} AND c.mode = m.mode AND c.until > {now}), s.lock_until)) DIV 1000,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', COALESCE(m.since, s.locked_at)) DIV 1000,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', COALESCE(m.until, s.lock_until)) DIV 1000,
  {micros} DIV 1000, NULL,
  (SELECT d.token FROM {holder} d WHERE d.name = {name} AND d.token > {largest}),
  m.owner, m.slot, IF(m.done, 't', 'f'),
  (SELECT COUNT(*) - 1 FROM {member} c WHERE c.name = {name} AND c.mode = m.mode AND c.until > {now}),
  {other_slots}, {done_by}, s.name,
  LEFT(COALESCE(m.ask, h.ask), 8192)
FROM {lock} s LEFT JOIN {holder} h ON h.name = s.name AND s.locked_by IN (h.owner, CONCAT(h.owner, ':done'))
LEFT JOIN {member} m ON m.name = {name} AND m.owner = (SELECT x.owner FROM {member} x JOIN {lock} g ON g.name = {name}
  WHERE x.name = {name} AND g.locked_by = CONCAT('dlock:', x.mode) AND x.until > {now} AND g.lock_until > {now}
  ORDER BY x.owner = {owner} DESC, x.owner IN ({outer}) DESC, x.until DESC LIMIT 1)
WHERE s.name = {name};
