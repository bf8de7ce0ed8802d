-- What became of it, after the commit. A cluster can end the transaction without an error just before that: then our part is
-- still there, and the request ends with an error (1242), and is repeated.
SET @dlock_sure = IF(EXISTS (SELECT 1 FROM {member} m WHERE m.name = {name} AND m.owner = {owner} AND NOT m.done),
  (SELECT 1 UNION SELECT 2), 0);
SELECT IF(@dlock, 'released', 'over');
SELECT 'kept' FROM {member} m JOIN {lock} s ON {this} WHERE m.name = {name} AND m.owner = {owner} AND m.done
  AND m.until > {now} AND s.locked_by = {group} AND s.lock_until > {now};
