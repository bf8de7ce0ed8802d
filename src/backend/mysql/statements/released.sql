-- What became of it, after the commit.
SELECT IF(@dlock, 'released', 'over');
SELECT 'kept' FROM {lock} s WHERE {this} AND s.locked_by = {done} AND s.lock_until > {now};
