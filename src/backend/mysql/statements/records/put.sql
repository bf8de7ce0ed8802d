-- Writes the record, unless it was written or removed since it was seen.
SET @dlock = NOT EXISTS (SELECT 1 FROM {record} r WHERE {here} AND r.record = {key} AND r.version > {seen});
INSERT INTO {record} (name, what, record, owner, version, until, life_ms, content)
SELECT {name}, {what}, {key}, {owner}, @dlock_version, TIMESTAMPADD(MICROSECOND, 1000 * {life}, {from}), {life}, {content}
FROM DUAL WHERE @dlock AND {sure}
ON DUPLICATE KEY UPDATE owner = VALUES(owner), version = VALUES(version), until = VALUES(until), life_ms = VALUES(life_ms),
  content = VALUES(content);
