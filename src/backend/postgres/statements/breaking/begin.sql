-- For whoever intervenes: no setting of the server or the role matters, and nobody is waited for for long.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = {work};
SET LOCAL statement_timeout = {work};
SET LOCAL client_min_messages = warning;
