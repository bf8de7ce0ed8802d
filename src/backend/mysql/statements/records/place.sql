-- The row of the place, which everybody locks before a change. It counts the changes, by the time where that is further.
INSERT INTO {record} (name, what, record, owner, version, until, life_ms, content)
VALUES ({name}, {what}, '', '', {micros}, TIMESTAMPADD(MICROSECOND, 1000 * {life}, {from}), 0, '')
ON DUPLICATE KEY UPDATE version = GREATEST(version + 1, VALUES(version)), until = GREATEST(until, VALUES(until));
SET @dlock_version = (SELECT r.version FROM {record} r WHERE {here} AND r.record = '');
