-- The last success under this lock.
SELECT 'done', o.name, LEFT(o.done, 16384) FROM {once} o WHERE o.name = {name} AND o.length_ms > 0 ORDER BY o.at_ms DESC LIMIT 1;
