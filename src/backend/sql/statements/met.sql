-- The next latches and barriers in use that begin like that.
SELECT 'met', MIN(s.name), MAX(CASE WHEN s.what = 'latch' THEN 1 ELSE 0 END), MAX(CASE WHEN s.what = 'barrier' THEN 1 ELSE 0 END)
FROM {record} s
WHERE LEFT({bytes}, LENGTH({begins})) = {begins} AND {bytes} > {after} AND s.record <> '' AND s.until > {now}
GROUP BY {bytes} ORDER BY {bytes} LIMIT {page};
