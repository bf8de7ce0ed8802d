-- Gives back what is ours of a lock that others hold too, or leaves it to its minimum hold; leaves the queue. With the last
-- of them the row is free, and stays.
SELECT FROM {lock} WHERE name = {name} FOR UPDATE;
UPDATE {member} m SET done = true, until = {member_held_until} FROM {lock} s
WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done AND m.until > {now} AND {member_held_until} > {now}
  AND s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now} RETURNING 'released';
DELETE FROM {member} m USING {lock} s WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done AND s.name = {name}
RETURNING CASE WHEN m.until > {now} AND s.locked_by = {group} AND s.lock_until > {now} THEN 'released' ELSE 'over' END;
UPDATE {lock} s SET lock_until = coalesce((SELECT max(m.until) + interval '1 ms' FROM {member} m
    WHERE m.name = {name} AND m.mode = {mode} AND m.until > {now}), date_trunc('milliseconds', {now}))
WHERE s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now};
DELETE FROM {queue} WHERE name = {name} AND owner = {owner};
SELECT 'kept' FROM {member} m, {lock} s WHERE m.name = {name} AND m.owner = {owner} AND m.done AND m.until > {now}
  AND s.name = {name} AND s.locked_by = {group} AND s.lock_until > {now};
