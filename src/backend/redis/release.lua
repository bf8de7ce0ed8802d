-- Releases the lock if it is ours, leaves the queue, and wakes the next waiter if the lock is free.
--   KEYS  lock, queue, alive
--   ARGV  id, prefix, wakes
-- Returns 1 when it was ours, 0 when not.
local lock, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local id, prefix, wakes = ARGV[1], ARGV[2], ARGV[3]
local _, now = clock()
local kind, value = occupant(lock)
local ours = 0
if kind == 'string' and starts_with(value, prefix) then
  redis.call('DEL', lock)
  kind, ours = 'none', 1
end
if misplaced(queue, alive) then
  return ours
end
leave(queue, alive, wakes, id)
if kind == 'none' then
  local head = head_of(queue, alive, wakes, now)
  if head then
    wake(wakes, head)
  end
end
return ours
