-- Makes this server's counter at least the token, where the lock is this attempt's.
--   KEYS  lock, holders, details, fence
--   ARGV  owner's prefix, number of the attempt, token, mode
-- Returns 1 when the counter is at least the token and the lock is ours, 0 when it is not ours or the counter is
-- damaged.
local owner, token, mine = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local _, value, mode = look()
local own = mode == mine and text_of(id_of(owner), mode, value)
if not own or attempt_of(own, owner) ~= tonumber(ARGV[2]) then
  return 0
end
local last, damage = last_token(fence, micros)
if damage or is_damaged(token, micros) then
  return 0
end
if last < token then
  set_counter(token)
end
return 1
