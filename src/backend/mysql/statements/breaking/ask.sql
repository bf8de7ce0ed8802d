-- Puts the request next to what this owner publishes; and whether it holds the lock.
UPDATE {beside} SET ask = {ask} WHERE name = {name} AND owner = {owner};
SET @dlock = EXISTS (SELECT 1 FROM {lock} s JOIN {beside} b ON b.name = {name} AND b.owner = {owner} AND b.ask = {ask}
  WHERE s.name = {name} AND s.locked_by = {held} AND s.lock_until > {now});
{trace}SELECT 'done' FROM DUAL WHERE @dlock AND {sure};
