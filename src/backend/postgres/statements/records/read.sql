-- How far the changes have come, the time here and how many records there are; then the records themselves:
-- in one statement, so that both are of the same moment.
SELECT 'page', coalesce(max(r.version), 0)::text, ({micros})::text,
  (count(*) FILTER (WHERE r.record <> '' AND r.until > {now}))::text, pg_backend_pid()::text FROM {record} r WHERE {here}
UNION ALL (SELECT 'record', r.record, r.content, r.version::text, NULL FROM {record} r
  WHERE {here} AND r.record <> '' AND r.until > {now} ORDER BY r.record COLLATE "C" LIMIT {most});
