-- Locks the row first, so that each statement sees what everybody before us has done; where it was not there to be locked,
-- nothing is granted, even if it has come since.
SET @dlock_row = NULL;
SELECT s.name INTO @dlock_row FROM {lock} s WHERE {this} FOR UPDATE;
