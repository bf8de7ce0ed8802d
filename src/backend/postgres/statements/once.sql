-- Records that a command has succeeded in its period, if the lock is still ours, and frees it or keeps it in the same
-- transaction.
INSERT INTO {once} AS o (name, length_ms, period, at_ms, done)
SELECT s.name, {length}, {period}, {micros} / 1000, {begins} || {period} || ',"length":' || {length} || ',"at":' || {micros} / 1000 || ','
  || {success} FROM {lock} s
WHERE s.name = {name} AND s.locked_by = {me} AND s.lock_until > {now}
ON CONFLICT (name, length_ms) DO UPDATE SET period = excluded.period, at_ms = excluded.at_ms, done = excluded.done;
