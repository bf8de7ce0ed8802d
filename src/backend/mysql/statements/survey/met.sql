-- The next latches and barriers in use that begin like that.
SELECT 'met', MIN(s.name), MAX(s.what = 'latch'), MAX(s.what = 'barrier') FROM {record} s
WHERE LEFT({bytes}, LENGTH({begins})) = {begins} AND {bytes} > {after} AND s.record <> '' AND s.until > {now}
GROUP BY {bytes} ORDER BY {bytes} LIMIT {page};
