-- Gives back what is ours of a lock that others hold too, or leaves it to its minimum hold; leaves the queue. With the last
-- of them the row is free, and stays. The counter rises so that it conflicts with what another node of a cluster does to the
-- group at the same time, also where that does not change the row.
SET @dlock = EXISTS (SELECT 1 FROM {member} m JOIN {lock} s ON {this} WHERE m.name = {name} AND m.owner = {owner}
  AND NOT m.done AND m.until > {now} AND s.locked_by = {group} AND s.lock_until > {now});
UPDATE {member} m SET m.done = 1, m.until = {member_held_until} WHERE m.name = {name} AND m.owner = {owner}
  AND NOT m.done AND @dlock AND {sure} AND {member_held_until} > {now};
DELETE FROM {member} WHERE name = {name} AND owner = {owner} AND NOT done AND {sure};
UPDATE {holder} SET token = token + 1 WHERE name = {name}
  AND EXISTS (SELECT 1 FROM {lock} s WHERE {this} AND s.locked_by = {group} AND s.lock_until > {now});
UPDATE {lock} s SET s.lock_until = COALESCE((SELECT TIMESTAMPADD(MICROSECOND, 1000, MAX(m.until)) FROM {member} m
  WHERE m.name = {name} AND m.mode = {mode} AND m.until > {now}), {now})
WHERE {this} AND s.locked_by = {group} AND s.lock_until > {now} AND {sure};
DELETE FROM {queue} WHERE name = {name} AND owner = {owner};
