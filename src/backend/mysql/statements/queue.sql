-- Our place in the queue, whether no waiter that is connected is before us, who is, and how many connections are in use: of the
-- user's where it has fewer than the server, and otherwise of the server's, which another statement says.
SELECT 'queue', (SELECT COUNT(*) FROM {queue} q WHERE q.name = {name} AND q.ticket <= own.ticket
    AND q.alive_until > TIMESTAMPADD(MINUTE, -1, {now})),
  IF({owner} = {head}, 't', 'f'),
  IF(@@max_user_connections BETWEEN 1 AND @@max_connections, (SELECT COUNT(*) FROM information_schema.PROCESSLIST p
    WHERE p.USER = SUBSTRING_INDEX(USER(), '@', 1)), NULL),
  IF(@@max_user_connections BETWEEN 1 AND @@max_connections, @@max_user_connections, @@max_connections),
  (SELECT q.owner FROM {queue} q WHERE q.ticket < own.ticket AND {waits} ORDER BY q.ticket DESC LIMIT 1),
  {other_ahead}
FROM {queue} own WHERE own.name = {name} AND own.owner = {owner};
SHOW GLOBAL STATUS LIKE 'Threads_connected';
