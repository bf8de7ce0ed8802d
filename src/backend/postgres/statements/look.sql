-- The lock as it is: whether it is ours, whether it is free, who has it, until when it is worth waiting, and the time here;
-- no row where the lock has none yet. Of several holders one is named: ourselves, an outer run, or the one that ends last.
SELECT 'look', {mine}, s.lock_until <= {now}, s.locked_by, coalesce(m.token, h.token), left(coalesce(m.about, h.about), 4096),
  CASE WHEN isfinite(s.lock_until)
    THEN (extract(epoch FROM CASE WHEN m.mode = {mode} THEN m.first ELSE s.lock_until END - {now}) * 1000)::bigint END,
  CASE WHEN isfinite(s.locked_at) THEN (extract(epoch FROM coalesce(m.since, s.locked_at)) * 1000)::bigint END,
  CASE WHEN isfinite(s.lock_until) THEN (extract(epoch FROM coalesce(m.until, s.lock_until)) * 1000)::bigint END,
  {micros} / 1000, pg_backend_pid(),
  (SELECT d.token FROM {holder} d WHERE d.name = {name} AND d.token > {largest}),
  m.owner, m.slot, m.done, m.many - 1, {other_slots}, {done_by}, s.name,
  left(coalesce(m.ask, h.ask), 8192)
FROM {lock} s LEFT JOIN {holder} h ON h.name = s.name AND s.locked_by IN (h.owner, h.owner || ':done')
LEFT JOIN LATERAL (SELECT m.*, count(*) OVER () AS many, min(m.until) OVER () AS first FROM {member} m
  WHERE m.name = s.name AND s.locked_by = 'dlock:' || m.mode AND m.until > {now} AND s.lock_until > {now}
  ORDER BY m.owner = {owner} DESC, m.owner IN ({outer}) DESC, m.until DESC LIMIT 1) m ON true
WHERE s.name = {name};
