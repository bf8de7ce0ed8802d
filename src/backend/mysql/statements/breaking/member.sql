-- Ends what this owner has of a lock that others hold too. With the last of them the row is free, and stays. First the row, as
-- everybody who changes both does. The counter rises so that it conflicts with what another node of a cluster does to the group
-- at the same time.
SELECT s.name INTO @dlock_row FROM {lock} s WHERE s.name = {name} FOR UPDATE;
SET @dlock = EXISTS (SELECT 1 FROM {member} m JOIN {lock} s ON s.name = {name} WHERE m.name = {name} AND m.owner = {owner}
  AND m.until > {ended} AND s.locked_by = {held} AND s.lock_until > {ended});
DELETE FROM {member} WHERE name = {name} AND owner = {owner} AND @dlock AND {sure};
UPDATE {holder} SET token = token + 1 WHERE name = {name} AND @dlock AND {sure};
UPDATE {lock} s SET s.lock_until = COALESCE((SELECT TIMESTAMPADD(MICROSECOND, 1000, MAX(m.until)) FROM {member} m
  WHERE m.name = {name} AND CONCAT('dlock:', m.mode) = {held} AND m.until > {ended}), {ended}) WHERE s.name = {name} AND @dlock AND {sure};
{trace}SELECT 'done' FROM DUAL WHERE @dlock AND {sure};
