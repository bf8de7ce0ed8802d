-- The next names of locks that are held and that begin like that.
SELECT 'name', s.name FROM {lock} s
WHERE left(s.name, length({begins})) = {begins} AND s.name COLLATE "C" > {after} AND s.lock_until > {now}
ORDER BY s.name COLLATE "C" LIMIT {page};
