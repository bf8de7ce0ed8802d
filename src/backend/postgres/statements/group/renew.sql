-- Extends what is ours of a lock that others hold too; never revives what has ended. First the row, as everybody who changes
-- both does.
UPDATE {lock} s SET lock_until = greatest(s.lock_until, {member_life} + interval '1 ms') FROM {member} m
WHERE s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now}
  AND m.name = {name} AND m.owner = {owner} AND NOT m.done AND m.until > {now};
UPDATE {member} m SET until = {member_life} FROM {lock} s
WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done AND m.until > {now}
  AND s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now};
