-- The next latches and barriers in use that begin like that.
SELECT 'met', r.name, max((r.what = 'latch')::int), max((r.what = 'barrier')::int) FROM {record} r
WHERE left(r.name, length({begins})) = {begins} AND r.name COLLATE "C" > {after} AND r.record <> '' AND r.until > {now}
GROUP BY r.name ORDER BY r.name COLLATE "C" LIMIT {page};
