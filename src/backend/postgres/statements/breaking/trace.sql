-- Records the break: a row among those of the periods, for a length that no period has. A part of the statement that
-- says by the rows of `done` whether the break was made.
, trace AS (INSERT INTO {once} AS o (name, length_ms, period, at_ms, done) SELECT {name}, 0, 0, {time}, {ask} FROM done
  ON CONFLICT (name, length_ms) DO UPDATE SET at_ms = excluded.at_ms, done = excluded.done)
