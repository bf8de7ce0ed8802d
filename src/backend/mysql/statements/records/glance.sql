-- Whether the changes have gone on.
SELECT 'changed' FROM DUAL WHERE {seen} <> COALESCE((SELECT r.version FROM {record} r WHERE {here} AND r.record = ''), 0);
