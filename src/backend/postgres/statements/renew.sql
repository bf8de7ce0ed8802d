-- Extends the lock if it is ours; never revives one that has ended.
UPDATE {lock} SET lock_until = {life} WHERE name = {name} AND locked_by = {me} AND lock_until > {now};
