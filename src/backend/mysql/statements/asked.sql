-- Whether a request to stop is there.
SELECT 'asked' FROM {own_table} WHERE name = {name} AND owner = {own_id} AND ask IS NOT NULL;
