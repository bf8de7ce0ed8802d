-- Extends our own record unless it has ended, but not at every look. After the clock was set back, others would outlive
-- their lives by that step: they are made to end when they would have to from now on.
UPDATE {record} r SET until = {now} + {life}::bigint * interval '1 ms'
WHERE {here} AND r.record = {key} AND r.owner = {owner} AND r.until > {now}
  AND r.until < {now} + {life}::bigint * interval '0.8 ms';
UPDATE {record} r SET until = {now} + r.life_ms * interval '1 ms'
WHERE {here} AND r.record <> '' AND r.until > {now} + (r.life_ms + 1000) * interval '1 ms';
