-- Keeps the place in the queue without being the next in line.
UPDATE {queue} SET alive_until = {now} WHERE name = {name} AND owner = {owner};
