-- Frees the lock if it is ours, or keeps it for its minimum hold without a holder whose requests could revive it; leaves the
-- queue. The row stays.
UPDATE {lock} s SET
  s.locked_by = IF({held_until} > {now}, {done}, s.locked_by), s.lock_until = GREATEST({held_until}, {now})
WHERE {this} AND s.locked_by = {me} AND s.lock_until > {now};
SET @dlock = ROW_COUNT() > 0;
DELETE FROM {queue} WHERE name = {name} AND owner = {owner};
