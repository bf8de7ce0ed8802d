-- PostgreSQL: a table that refuses writes of a holder that has lost its lock. Of two holders, the later one has the larger
-- DLOCK_TOKEN; whoever comes with a smaller one than the largest that was seen is too late.
--
--   dlock run -k import -c 'psql -v ON_ERROR_STOP=1 -v token="$DLOCK_TOKEN" -f import.sql'
--
-- and in import.sql:
--
--   BEGIN;
--   SELECT fence('import', :token);
--   INSERT INTO ...;
--   COMMIT;
CREATE TABLE IF NOT EXISTS fence (name text PRIMARY KEY, token bigint NOT NULL);

CREATE OR REPLACE FUNCTION fence(job text, mine bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- The row stays locked until the end of the transaction, so that nothing can come in between.
  INSERT INTO fence AS f (name, token) VALUES (job, mine)
    ON CONFLICT (name) DO UPDATE SET token = GREATEST(f.token, excluded.token);
  IF mine < (SELECT f.token FROM fence f WHERE f.name = job) THEN
    RAISE EXCEPTION 'a later holder of % has been here: token % is outdated', job, mine;
  END IF;
END
$$;
