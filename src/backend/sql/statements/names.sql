-- The next names of locks that are held and that begin like that.
SELECT 'name', s.name FROM {lock} s
WHERE LEFT({bytes}, LENGTH({begins})) = {begins} AND {bytes} > {after} AND s.lock_until > {now}
ORDER BY {bytes} LIMIT {page};
