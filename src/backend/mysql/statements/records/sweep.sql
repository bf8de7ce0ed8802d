-- Removes a few records that ended more than a minute ago, wherever they are.
DELETE FROM {record} WHERE until < TIMESTAMPADD(MINUTE, -1, {now}) ORDER BY until LIMIT 16;
