-- Releases the lock if it is ours, leaves the queue, and wakes the next waiter if the lock is free or kept.
--   KEYS  lock, queue, alive
--   ARGV  id, prefix, wakes, 1 if the lock was used
-- Returns 1 when it was ours, 2 when it is kept for its minimum hold, 0 when it was not ours.
local lock, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local id, prefix, wakes, used = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local _, now = clock()
local kind, value = occupant(lock)
local ours = 0
if kind == 'string' and starts_with(value, prefix) then
  if used and finish(lock, value, now) then
    ours = 2
  else
    redis.call('DEL', lock)
    kind, ours = 'none', 1
  end
elseif kind == 'string' and is_finished(value, prefix) then
  -- By an earlier request whose answer was lost.
  ours = 2
end
if misplaced(queue, alive) then
  return ours
end
leave(queue, alive, wakes, id)
-- Of a lock that is kept the next waiter must learn when it is free: that may be sooner than the lease would have ended.
if kind == 'none' or ours == 2 then
  local head = head_of(queue, alive, wakes, now)
  if head then
    wake(wakes, head)
  end
end
return ours
