-- Gives the vote back if it belongs to this attempt or an earlier one of the same owner.
--   KEYS  lock
--   ARGV  owner's prefix, number of the attempt
-- Returns 1 when it was ours, 0 when not.
local kind, value = occupant(KEYS[1])
local attempt = attempt_of(kind, value, ARGV[1])
if attempt and attempt <= tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1])
  return 1
end
return 0
