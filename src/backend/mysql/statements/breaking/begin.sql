-- For whoever intervenes: no long wait for others, and each statement sees what others have committed before it.
SET SESSION innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
START TRANSACTION;
SET @dlock_now = UTC_TIMESTAMP(6), @dlock = 0;
