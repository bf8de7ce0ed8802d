-- Extends the lock if it is this attempt's; never creates it.
--   KEYS  lock
--   ARGV  owner's prefix, number of the attempt, ttl ms
-- Returns {1} or {0, type, value}.
local kind, value = occupant(KEYS[1])
if attempt_of(kind, value, ARGV[1]) == tonumber(ARGV[2]) then
  local _, now = clock()
  redis.call('PEXPIRE', KEYS[1], life(value, tonumber(ARGV[3]), now))
  return { 1 }
end
return { 0, kind, value }
