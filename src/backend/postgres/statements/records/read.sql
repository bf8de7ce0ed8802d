-- How far the changes have come, the time here and how many records there are; then the records themselves.
SELECT 'page', coalesce(max(r.version), 0), {micros}, count(*) FILTER (WHERE r.record <> '' AND r.until > {now}), pg_backend_pid()
FROM {record} r WHERE {here};
SELECT 'record', r.record, r.content, r.version FROM {record} r WHERE {here} AND r.record <> '' AND r.until > {now}
ORDER BY r.record COLLATE "C" LIMIT {most};
