-- The record of the last break of this lock.
SELECT 'trace', LEFT(o.done, 16384) FROM {once} o WHERE o.name = {name} AND o.length_ms = 0;
