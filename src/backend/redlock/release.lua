-- Gives the vote back if it belongs to this attempt or an earlier one of the same owner.
--   KEYS  lock
--   ARGV  owner's prefix, number of the attempt, 1 if the lock was used
-- Returns 1 when it was ours, 2 when it is kept for its minimum hold, 0 when it was not ours.
local _, now = clock()
local kind, value = occupant(KEYS[1])
local attempt = attempt_of(kind, value, ARGV[1])
if attempt and attempt <= tonumber(ARGV[2]) then
  if ARGV[3] == '1' and finish(KEYS[1], value, now) then
    return 2
  end
  redis.call('DEL', KEYS[1])
  return 1
end
-- By an earlier request whose answer was lost.
if kind == 'string' and is_finished(value, ARGV[1]) then
  return 2
end
return 0
