-- What the server says of itself, for a check.
SELECT 'probe', @@version, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000, @@max_connections;
SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected', 'Rpl_semi_sync_master_status',
  'Rpl_semi_sync_source_status', 'wsrep_cluster_size');
