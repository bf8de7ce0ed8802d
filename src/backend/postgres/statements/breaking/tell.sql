-- Tells the owner that there is a request. In a transaction of its own that writes nothing, as every notification.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_notify({channel}, '');
COMMIT;
