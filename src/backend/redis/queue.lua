-- Shared by the scripts of a single server: a lock's queue of waiters.
--   queue  sorted set: waiters' ids by ticket, first come, first served
--   alive  hash: waiter's id to the server time in ms at which it is dropped without another heartbeat
--   wakes  prefix of the waiters' wake lists, which the waiter's id follows
-- Only the server's clock counts here.

local function clock()
  local time = redis.call('TIME')
  local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return micros, math.floor(micros / 1000)
end

local function leave(queue, alive, wakes, id)
  redis.call('ZREM', queue, id)
  redis.call('HDEL', alive, id)
  redis.call('DEL', wakes .. id)
end

-- The first waiter that is alive; dead ones before it are dropped. A deadline from before the clock was set back is cut
-- to `patience` (which may be nil) plus the time by which that step can prolong a blocking wait.
local function head_of(queue, alive, wakes, now, patience)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return nil
    end
    local deadline = tonumber(redis.call('HGET', alive, head) or '')
    -- The longest patience: a later deadline is from another time.
    if deadline and patience and deadline > now + 30000 then
      deadline = now + patience + 3000
      redis.call('HSET', alive, head, string.format('%.0f', deadline))
    end
    if deadline and deadline >= now then
      return head
    end
    leave(queue, alive, wakes, head)
  end
end

-- One message is enough: a waiter with a message has not looked yet. It is kept for the longest patience, because the
-- waiter may be between two connections.
local function wake(wakes, head)
  if redis.call('EXISTS', wakes .. head) == 0 then
    redis.call('LPUSH', wakes .. head, '1')
    redis.call('PEXPIRE', wakes .. head, 30000)
  end
end
