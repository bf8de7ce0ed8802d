-- Sees all at one moment, and only reads. The limit for the work has a name of its own on MySQL and on MariaDB, each of which
-- skips the other's.
SET @dlock_work = {work} /*!50708 , SESSION max_execution_time = {work} */ /*M!100101 , SESSION max_statement_time = {work} / 1000 */;
START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;
SET @dlock_now = UTC_TIMESTAMP(6);
