-- What became of it, after the commit. A cluster can end the transaction without an error just before that: then the lock is
-- still ours for longer than a column rounds, and the request ends with an error (1242), and is repeated.
SET @dlock_sure = IF(EXISTS (SELECT 1 FROM {lock} s WHERE {this} AND s.locked_by = {me}
  AND s.lock_until > TIMESTAMPADD(SECOND, 1, {now})), (SELECT 1 UNION SELECT 2), 0);
SELECT IF(@dlock, 'released', 'over');
SELECT 'kept' FROM {lock} s WHERE {this} AND s.locked_by = {done} AND s.lock_until > {now};
