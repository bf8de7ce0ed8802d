-- Makes the row of a lock that has none, once in its life. A TIMESTAMP cannot hold the epoch.
INSERT IGNORE INTO {lock} (name, lock_until, locked_at, locked_by) VALUES ({name}, '2000-01-01', '2000-01-01', {me});
