-- Our place in the queue, whether no waiter that is connected is before us, and how many connections are in use of how many:
-- the server's, the database's or the role's, whichever are scarcer.
SELECT 'queue', (SELECT count(*) FROM {queue} q, {queue} m WHERE q.name = {name} AND m.name = {name} AND m.owner = {owner}
    AND q.ticket <= m.ticket AND q.alive_until > {now} - interval '1 min'),
  {owner} = (SELECT q.owner FROM {queue} q WHERE q.name = {name} AND q.alive_until > {now}
    AND q.alive_until <= {now} + interval '31 s' ORDER BY q.ticket LIMIT 1),
  l.used, l.most
FROM (SELECT v.used, v.most FROM (VALUES
    ((SELECT sum(numbackends)::bigint FROM pg_stat_database), current_setting('max_connections')::bigint),
    ((SELECT numbackends::bigint FROM pg_stat_database WHERE datname = current_database()),
      (SELECT datconnlimit::bigint FROM pg_database WHERE datname = current_database())),
    ((SELECT count(*) FROM pg_stat_activity WHERE usename = session_user),
      (SELECT rolconnlimit::bigint FROM pg_roles WHERE rolname = session_user))) v (used, most)
  WHERE v.most > 0 ORDER BY v.used::numeric / v.most DESC LIMIT 1) l;
