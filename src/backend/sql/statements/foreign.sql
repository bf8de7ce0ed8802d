-- The holders of these locks where only the table of locks is there: no dlock has been here yet.
SELECT 'lock', s.name, s.locked_by, NULL, NULL, {since}, {until}, NULL, NULL, NULL, NULL, 1, {time}, NULL
FROM {lock} s WHERE s.name IN ({names}) AND s.lock_until > {now};
