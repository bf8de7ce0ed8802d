-- Writes the texts, if all records are as they were seen and none has ended meanwhile.
UPDATE {record} r SET content = CASE r.record {cases}END, version = p.version FROM {record} p
WHERE {here} AND r.record IN ({keys}) AND p.name = r.name AND p.what = r.what AND p.record = ''
  AND (SELECT count(*) FROM {record} r WHERE {here} AND r.record IN ({keys}) AND r.version <= {seen}
    AND r.until > (clock_timestamp() AT TIME ZONE 'UTC')) = {count}
RETURNING 'made';
