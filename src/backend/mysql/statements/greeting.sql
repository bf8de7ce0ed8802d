-- What a session needs, whatever the server's settings are: an order of statements, no text that is cut, no long wait for
-- others, and an end when we are silent. The reading of a statement sees what others have committed before it.
SET NAMES utf8mb4;
SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = 1,
  lock_wait_timeout = 1, wait_timeout = {silence}, timestamp = DEFAULT, sql_select_limit = DEFAULT;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
{here}
