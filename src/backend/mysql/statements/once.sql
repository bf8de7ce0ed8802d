-- Records that a command has succeeded in its period, if the lock is still ours, and frees it or keeps it in the same
-- transaction.
INSERT INTO {once} (name, length_ms, period, at_ms, done)
SELECT {name}, {length}, {period}, {micros} DIV 1000, CONCAT({begins}, {period}, ',"length":', {length}, ',"at":',
  {micros} DIV 1000, ',', {success}) FROM {lock} s
WHERE {this} AND s.locked_by = {me} AND s.lock_until > {now}
ON DUPLICATE KEY UPDATE period = VALUES(period), at_ms = VALUES(at_ms), done = VALUES(done);
