-- What a session needs that looks, whatever the server's settings are: statements that mean the same, no long wait for a table
-- that others have locked, and one moment for all that a transaction reads.
SET NAMES utf8mb4;
SET SESSION autocommit = 1, sql_mode = '', lock_wait_timeout = 1;
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
