-- How far the changes have come, the time here and how many records there are; then the records themselves:
-- in one statement, so that both are of the same moment.
SELECT 'page', COALESCE(MAX(r.version), 0), {micros}, COUNT(IF(r.record <> '' AND r.until > {now}, 1, NULL)), NULL
FROM {record} r WHERE {here}
UNION ALL (SELECT 'record', r.record, r.content, r.version, NULL FROM {record} r
  WHERE {here} AND r.record <> '' AND r.until > {now} ORDER BY r.record LIMIT {most});
