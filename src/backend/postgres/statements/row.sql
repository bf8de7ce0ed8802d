-- Makes the row of a lock that has none, once in its life.
INSERT INTO {lock} (name, lock_until, locked_at, locked_by) VALUES ({name}, 'epoch', 'epoch', {me}) ON CONFLICT (name) DO NOTHING;
