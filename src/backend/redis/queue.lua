-- Shared by the scripts of a single server: the queue of waiters beside a lock.
--   queue  sorted set: waiter's id by ticket, first come first served
--   alive  hash: waiter's id to the server time in ms until which it counts as alive
--   wakes  what a waiter's own wake list begins with, before its id
-- The server's clock is the only one that counts here.

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

-- The first waiter that is alive; those before it are dropped. One whose time is from before the clock was put back
-- counts as alive for `patience`, which may be nil, and for as long as it takes to give up a blocking wait that became
-- longer with it.
local function head_of(queue, alive, wakes, now, patience)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return nil
    end
    local deadline = tonumber(redis.call('HGET', alive, head) or '')
    -- No waiter is given more.
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

-- One message is enough: a waiter that has one has not looked yet. It waits as long as the most patient of waiters,
-- because the one that is to read it may just be between two connections.
local function wake(wakes, head)
  if redis.call('EXISTS', wakes .. head) == 0 then
    redis.call('LPUSH', wakes .. head, '1')
    redis.call('PEXPIRE', wakes .. head, 30000)
  end
end
