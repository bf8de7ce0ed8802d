-- How far the changes have come, the time here and how many records there are; then the records themselves.
SELECT 'page', COALESCE(MAX(r.version), 0), {micros}, COUNT(IF(r.record <> '' AND r.until > {now}, 1, NULL)), NULL
FROM {record} r WHERE {here};
SELECT 'record', r.record, r.content, r.version FROM {record} r WHERE {here} AND r.record <> '' AND r.until > {now}
ORDER BY r.record LIMIT {most};
