-- Makes this server's counter at least the token, where the lock is this attempt's.
--   KEYS  lock, fence
--   ARGV  owner's prefix, number of the attempt, token
-- Returns 1 when the counter is at least the token and the lock is ours, 0 when it is not ours or the counter is
-- damaged.
local kind, value = occupant(KEYS[1])
if attempt_of(kind, value, ARGV[1]) ~= tonumber(ARGV[2]) then
  return 0
end
local token, micros = tonumber(ARGV[3]), clock()
local last, damage = last_token(KEYS[2], micros)
if damage or is_damaged(token, micros) then
  return 0
end
if last < token then
  set_counter(KEYS[2], token)
end
return 1
