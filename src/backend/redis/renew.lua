-- Extends the lock if it is ours; never creates it.
--   KEYS  lock
--   ARGV  prefix, ttl ms
-- Returns {1} or {0, type, value}.
local kind, value = occupant(KEYS[1])
if kind == 'string' and starts_with(value, ARGV[1]) then
  local _, now = clock()
  redis.call('PEXPIRE', KEYS[1], life(value, tonumber(ARGV[2]), now))
  return { 1 }
end
return { 0, kind, value }
