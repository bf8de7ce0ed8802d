-- Releases the lock if it is ours, or leaves it to its minimum hold; leaves the queue, and wakes the next waiter that
-- may enter.
--   KEYS  lock, holders, details, fence, queue, alive, modes, who, stop, and once and last where the client has a period
--   ARGV  id, prefix, wakes, 1 if the lock was used, mode; where a success is to be recorded the number of its period by
--         the client's clock, its length and its age in ms, and the end of the text
-- Returns 1 when it was ours, 2 when it is kept for its minimum hold, 0 when it was not ours.
local id, prefix, wakes, used, mine = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local kind, value, mode, count = look()
local ours = 0
local own = mode == mine and text_of(id, mode, value)
redis.pcall('HDEL', KEYS[9], id)
local was_last = own and is_group(mode) and redis.call('ZRANGE', holders, -1, -1)[1] == id
if own and starts_with(own, prefix) then
  ours, mode, count = give_back(id, own, used, mode, count)
  if ARGV[6] then
    local length = tonumber(ARGV[7])
    record(KEYS[10], KEYS[11], period_of(tonumber(ARGV[6]), length, tonumber(ARGV[8])), length, ARGV[9])
  end
elseif own and starts_with(own, done(prefix)) then
  -- By an earlier request whose answer was lost.
  ours = 2
end
if unusable() then
  return ours
end
leave(id, wakes)
-- While it is held exclusively, no waiter may enter. The next one must also learn when the lock becomes free if that is
-- sooner than it knows: when it is only kept for its minimum hold, and when the hold that would have ended last is over.
if ours == 2 or mode ~= 'exclusive' then
  local head = head_of(wakes)
  if head and (ours == 2 or was_last or fits(mode_of(head), mode, count)) then
    wake(wakes, head)
  end
end
return ours
