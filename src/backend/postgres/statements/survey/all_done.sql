-- The last successes under the next locks that begin like that.
SELECT 'done', o.name, left(o.done, 16384) FROM {once} o
WHERE left(o.name, length({begins})) = {begins} AND o.name COLLATE "C" > {after} AND o.length_ms > 0
  AND o.at_ms = (SELECT max(p.at_ms) FROM {once} p WHERE p.name = o.name AND p.length_ms > 0)
ORDER BY o.name COLLATE "C" LIMIT {page};
