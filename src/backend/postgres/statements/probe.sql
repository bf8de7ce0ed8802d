-- What the server says of itself, for a check.
SELECT 'probe', current_setting('server_version_num'), current_setting('server_version'), current_setting('fsync'),
  current_setting('full_page_writes'), current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), {time},
  pg_backend_pid(), current_setting('max_connections'), (SELECT sum(numbackends) FROM pg_stat_database);
