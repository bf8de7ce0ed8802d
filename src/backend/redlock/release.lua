-- Gives the vote back if it belongs to this attempt or an earlier one of the same owner.
--   KEYS  lock, holders, details, fence, intent, stop, once and last where the client has a period, and the list that
--         tells waiters of releases
--   ARGV  owner's prefix, number of the attempt, 1 if the lock was used, 0 if it was not, or '' if it is still wanted,
--         mode, 1 if others are to be kept out no longer; where a success is to be recorded the number of its period by
--         the client's clock, its length and its age in ms, and the end of the text
-- Returns 1 when it was ours, 2 when it is kept for its minimum hold, 0 when it was not ours.
local owner, number, used, mine = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4]
local id = id_of(owner)
if ARGV[5] == '1' and redis.pcall('GET', intent) == id then
  redis.call('DEL', intent)
end
local _, value, mode, count = look()
local own = mode == mine and text_of(id, mode, value)
local attempt = own and attempt_of(own, owner)
redis.pcall('HDEL', KEYS[6], id)
if attempt and attempt <= number then
  local given = give_back(id, own, used, mode, count)
  if given == 1 and ARGV[3] ~= '' then
    -- One waiter is told; if there is none, the next that comes within this time. Users may lack the right to it.
    local released = KEYS[#KEYS]
    redis.call('DEL', released)
    redis.pcall('LPUSH', released, '1')
    redis.pcall('PEXPIRE', released, 250)
  end
  if ARGV[6] then
    local length = tonumber(ARGV[7])
    record(KEYS[7], KEYS[8], period_of(tonumber(ARGV[6]), length, tonumber(ARGV[8])), length, ARGV[9])
  end
  return given
end
-- By an earlier request whose answer was lost.
if own and starts_with(own, done(owner)) then
  return 2
end
return 0
