-- What could be wrong with the tables and with the server. Every table is named by a constant: for anything else, the server opens
-- all tables of the database.
SELECT 'inspect', t.ENGINE, (SELECT GROUP_CONCAT(c.COLUMN_NAME, ' ', c.DATA_TYPE, ' ', COALESCE(c.DATETIME_PRECISION, ''))
    FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = {table}
    AND c.COLUMN_NAME IN ('lock_until', 'locked_at')),
  IF(@@innodb_flush_log_at_trx_commit = 1, 'each', 'later'),
  IF(IF(@@time_zone = 'SYSTEM', @@system_time_zone, @@time_zone) IN ('UTC', '+00:00', 'Etc/UTC', 'GMT'), 'utc', 'other'),
  (SELECT c.COLUMN_KEY FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = {table}
    AND c.COLUMN_NAME = 'name'),
  (SELECT MIN(b.name) FROM ({engines}) b WHERE b.engine <> 'InnoDB'),
  (SELECT c.TABLE_NAME FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = {members}
    AND c.COLUMN_NAME = 'until' AND NOT (c.DATA_TYPE = 'datetime' AND c.DATETIME_PRECISION >= 3))
FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {table};
