-- Tells the owner that there is a request. In a transaction of its own that writes nothing, as every notification.
SELECT pg_notify({channel}, '');
