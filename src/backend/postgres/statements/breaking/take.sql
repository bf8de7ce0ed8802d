-- Ends the lock if this owner has it, or keeps it for its minimum hold. The row stays. Cut to milliseconds, so that a column
-- that rounds has no end that is still to come.
WITH done AS (UPDATE {lock} s SET lock_until = date_trunc('milliseconds', {now})
  WHERE s.name = {name} AND s.locked_by IN ({held}, {kept}) AND s.lock_until > {now} RETURNING s.name){trace}
SELECT 'done' FROM done;
