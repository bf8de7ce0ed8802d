-- Extends our own record unless it has ended, but not at every look. After the clock was set back, others would outlive
-- their lives by that step: one of them at a time is made to end when it would have to from now on.
UPDATE {record} r SET r.until = TIMESTAMPADD(MICROSECOND, 1000 * {life}, {now})
WHERE {here} AND r.record = {key} AND r.owner = {owner} AND r.until > {now}
  AND r.until < TIMESTAMPADD(MICROSECOND, 800 * {life}, {now});
SET @dlock = (SELECT r.record FROM {record} r WHERE {here} AND r.record <> ''
  AND r.until > TIMESTAMPADD(MICROSECOND, 1000 * (r.life_ms + 1000), {now}) LIMIT 1);
UPDATE {record} r SET r.until = TIMESTAMPADD(MICROSECOND, 1000 * r.life_ms, {now}) WHERE {here} AND r.record = @dlock;
