-- Extends what is ours of a lock that others hold too; never revives what has ended. The counter rises so
-- that it conflicts with a release on another node of a cluster.
SET @dlock = EXISTS (SELECT 1 FROM {member} m JOIN {lock} s ON {this} WHERE m.name = {name} AND m.owner = {owner}
  AND NOT m.done AND m.until > {now} AND s.locked_by = {group} AND s.lock_until > {now});
UPDATE {member} m SET m.until = {member_life} WHERE m.name = {name} AND m.owner = {owner} AND @dlock AND {sure};
UPDATE {holder} SET token = token + 1 WHERE name = {name} AND @dlock AND {sure};
UPDATE {lock} s SET s.lock_until = GREATEST(s.lock_until, (SELECT TIMESTAMPADD(MICROSECOND, 1000, m.until) FROM {member} m
  WHERE m.name = {name} AND m.owner = {owner})) WHERE {this} AND @dlock AND {sure};
