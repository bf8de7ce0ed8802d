-- Writes the record, unless it was written or removed since it was seen.
INSERT INTO {record} (name, what, record, owner, version, until, life_ms, content)
SELECT r.name, r.what, {key}, {owner}, r.version, {from} + {life}::bigint * interval '1 ms', {life}, {content} FROM {record} r
WHERE {here} AND r.record = ''
  AND NOT EXISTS (SELECT FROM {record} r WHERE {here} AND r.record = {key} AND r.version > {seen})
ON CONFLICT (name, what, record) DO UPDATE SET owner = excluded.owner, version = excluded.version, until = excluded.until,
  life_ms = excluded.life_ms, content = excluded.content RETURNING 'made';
