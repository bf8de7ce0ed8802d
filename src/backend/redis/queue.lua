-- Shared by the scripts of a single server: a lock's queue of waiters.
--   queue  sorted set: waiters' ids by ticket, first come, first served
--   alive  hash: waiter's id to the server time in ms at which it is dropped without another heartbeat
--   wakes  prefix of the waiters' wake lists, which the waiter's id follows
-- Only the server's clock counts here.

local function leave(queue, alive, wakes, id)
  redis.call('ZREM', queue, id)
  redis.call('HDEL', alive, id)
  redis.call('DEL', wakes .. id)
end

-- The first waiter that is alive, or nil; dead ones before it are dropped, but at most 1,000 a call: then the second
-- value is true, and there may be waiters. A deadline from before the clock was set back is cut to `patience` (which
-- may be nil) plus the time by which that step can prolong a blocking wait.
local function head_of(queue, alive, wakes, now, patience)
  for _ = 1, 1000 do
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
  return nil, true
end

-- Why one of the side keys cannot be used: it is of another type than dlock gives it.
local function misplaced(queue, alive)
  for key, wanted in pairs({ [queue] = 'zset', [alive] = 'hash' }) do
    local kind = redis.call('TYPE', key)['ok']
    if kind ~= 'none' and kind ~= wanted then
      return { 3, key, kind }
    end
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
