-- Frees the lock if it is ours, or keeps it for its minimum hold without a holder whose requests could revive it; leaves the
-- queue. The row stays. Cut to milliseconds, so that a column that rounds has no end that is still to come.
UPDATE {lock} SET
  locked_by = CASE WHEN {held_until} > {now} THEN {done} ELSE locked_by END,
  lock_until = CASE WHEN {held_until} > {now} THEN {held_until} ELSE date_trunc('milliseconds', {now}) END
WHERE name = {name} AND locked_by = {me} AND lock_until > {now} RETURNING 'released';
DELETE FROM {queue} WHERE name = {name} AND owner = {owner};
SELECT 'kept' FROM {lock} WHERE name = {name} AND locked_by = {done} AND lock_until > {now};
