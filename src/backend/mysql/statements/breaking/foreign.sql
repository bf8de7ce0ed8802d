-- Ends another program's lock if it is still the grant that was seen, with the same end.
UPDATE {lock} s SET s.lock_until = {ended} WHERE s.name = {name} AND s.locked_by = {held}
  AND {since} <=> {seen_since} AND {until} <=> {seen_until} AND s.lock_until > {ended};
SET @dlock = ROW_COUNT() > 0;
{trace}SELECT 'done' FROM DUAL WHERE @dlock AND {sure};
