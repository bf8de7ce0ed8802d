-- Ends the lock if this owner has it, or keeps it for its minimum hold. The row stays.
UPDATE {lock} s SET s.lock_until = {ended}
WHERE s.name = {name} AND s.locked_by IN ({held}, {kept}) AND s.lock_until > {ended};
SET @dlock = ROW_COUNT() > 0;
{trace}SELECT 'done' FROM DUAL WHERE @dlock AND {sure};
