-- Shared by the scripts of a single server: the waiters of a lock.
--   queue  sorted set: waiters' ids by ticket, first come, first served
--   alive  hash: waiter's id to the server time in ms at which it is dropped without another heartbeat
--   modes  hash: waiter's id to its mode; exclusive where it is absent
--   who    hash: waiter's id to what it publishes, for those who look
--   wakes  prefix of the waiters' wake lists, which the waiter's id follows
local queue, alive, modes, who = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- Whether the lock has any of these keys. Most have none: then nobody waits.
local is_crowded = redis.call('EXISTS', holders, details, queue, alive, modes, who) > 0

-- Why one of the side keys cannot be used.
local function unusable()
  return is_crowded and misplaced({
    [holders] = 'zset', [details] = 'hash', [queue] = 'zset', [alive] = 'hash', [modes] = 'hash', [who] = 'hash'
  })
end

-- How many of a mode may hold together.
local function room(mode)
  return mode == 'shared' and math.huge or slots_of(mode) or 1
end

-- Whether one of mode `wanted` may hold the lock together with `count` holders of `mode`.
local function fits(wanted, mode, count)
  return count == 0 or mode == wanted and count < room(wanted)
end

local function leave(id, wakes)
  if is_crowded then
    redis.call('ZREM', queue, id)
    redis.call('HDEL', alive, id)
    redis.call('HDEL', modes, id)
    redis.call('HDEL', who, id)
  end
  redis.call('DEL', wakes .. id)
end

local function mode_of(id)
  return redis.call('HGET', modes, id) or 'exclusive'
end

-- Whether a waiter is alive. A deadline from before the clock was set back is cut to `heartbeat_ttl` (which may be nil) plus
-- the time by which that step can prolong a blocking wait.
local function lives(id, heartbeat_ttl)
  local deadline = tonumber(redis.call('HGET', alive, id) or '')
  -- The longest heartbeat_ttl: a later deadline is from another time.
  if deadline and heartbeat_ttl and deadline > now + 30000 then
    deadline = now + heartbeat_ttl + 3000
    redis.call('HSET', alive, id, int(deadline))
  end
  return deadline and deadline >= now
end

-- The first waiter that is alive, or nil; dead ones before it are dropped, but at most 1,000 a call: then the second
-- value is true, and there may be waiters.
local function head_of(wakes, heartbeat_ttl)
  if not is_crowded then
    return nil
  end
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then
      return nil
    end
    if lives(head, heartbeat_ttl) then
      return head
    end
    leave(head, wakes)
  end
  return nil, true
end

-- One message is enough: a waiter with a message has not looked yet. It is kept for as long as the waiter is: that may be
-- between two connections, and one that was dropped looks by itself when it comes back.
local function wake(wakes, id)
  if redis.call('EXISTS', wakes .. id) == 0 then
    local left = (tonumber(redis.call('HGET', alive, id) or '') or 0) - now
    redis.call('LPUSH', wakes .. id, '1')
    redis.call('PEXPIRE', wakes .. id, int(math.max(1000, math.min(left, 30000))))
  end
end

-- Wakes the first waiter, `head`, if it may enter now that `count` hold the lock in `mode`.
local function settle(wakes, head, mode, count)
  if head and fits(mode_of(head), mode, count) then
    wake(wakes, head)
  end
end
