-- The row of the place, which everybody locks before a change. It counts the changes, by the time where that is further.
INSERT INTO {record} AS r (name, what, record, owner, version, until, life_ms, content)
VALUES ({name}, {what}, '', '', {micros}, {from} + {life}::bigint * interval '1 ms', 0, '')
ON CONFLICT (name, what, record) DO UPDATE SET version = greatest(r.version + 1, excluded.version),
  until = greatest(r.until, excluded.until);
