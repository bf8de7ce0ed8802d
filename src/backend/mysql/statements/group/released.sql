-- What became of it, after the commit.
SELECT IF(@dlock, 'released', 'over');
SELECT 'kept' FROM {member} m JOIN {lock} s ON {this} WHERE m.name = {name} AND m.owner = {owner} AND m.done
  AND m.until > {now} AND s.locked_by = {group} AND s.lock_until > {now};
