-- Extends the lock if it is ours; never revives one that has ended.
UPDATE {lock} s SET s.lock_until = {life} WHERE {this} AND s.locked_by = {me} AND s.lock_until > {now};
