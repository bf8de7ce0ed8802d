-- Removes a few records that ended more than a minute ago, wherever they are.
DELETE FROM {record} WHERE (name, what, record) IN (SELECT name, what, record FROM {record}
  WHERE until < {now} - interval '1 min' ORDER BY until LIMIT 16 FOR UPDATE SKIP LOCKED);
