-- Writes the texts, if all records are as they were seen and none has ended meanwhile.
SET @dlock = (SELECT COUNT(*) FROM {record} r WHERE {here} AND r.record IN ({keys}) AND r.version <= {seen}
  AND r.until > {now}) = {count};
UPDATE {record} r SET r.content = CASE r.record {cases}END, r.version = @dlock_version
WHERE {here} AND r.record IN ({keys}) AND @dlock AND {sure};
