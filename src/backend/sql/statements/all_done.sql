-- The last successes under the next locks that begin like that.
SELECT 'done', s.name, LEFT(s.done, 16384) FROM {once} s
WHERE LEFT({bytes}, LENGTH({begins})) = {begins} AND {bytes} > {after} AND s.length_ms > 0
  AND s.at_ms = (SELECT MAX(p.at_ms) FROM {once} p WHERE p.name = s.name AND p.length_ms > 0)
ORDER BY {bytes} LIMIT {page};
