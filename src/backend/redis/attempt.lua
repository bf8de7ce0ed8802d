-- Takes the lock, or says why not; repeating it changes nothing.
--   KEYS  lock, queue, alive, fence
--   ARGV  id, prefix and rest of the value, ttl ms, patience ms, 1 to join the queue, wakes, minimum hold ms
-- Returns {1, token}, {0, type, value, pttl, position, now}, or before anything is written {2, key, type, value} for a
-- damaged counter and {3, key, type} for a side key of another type.
local lock, queue, alive, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, prefix, rest = ARGV[1], ARGV[2], ARGV[3]
local ttl, patience = tonumber(ARGV[4]), tonumber(ARGV[5])
local join, wakes, hold = ARGV[6] == '1', ARGV[7], tonumber(ARGV[8])
local micros, now = clock()
local last, damage = last_token(fence, micros)
damage = damage or misplaced(queue, alive)
if damage then
  return damage
end
local kind, value = occupant(lock)

-- Granted by an earlier request whose answer was lost.
if kind == 'string' and starts_with(value, prefix) then
  redis.call('PEXPIRE', lock, life(value, ttl, now))
  leave(queue, alive, wakes, id)
  return { 1, string.match(value, '^"token":(%d+)', #prefix + 1) or '' }
end

local head, more = head_of(queue, alive, wakes, now, patience)
if kind == 'none' and not more and (head == nil or head == id) then
  -- Lua would print a number of this size with an exponent.
  local token = string.format('%.0f', math.max(last + 1, micros))
  redis.call('SET', fence, token, 'EX', 2592000)
  local since = string.format('%.0f', now)
  -- The first renewal, before the lock is used, makes the key last as long: what arrives too late costs a lease and no more.
  if hold > 0 then
    since = since .. ',"until":' .. string.format('%.0f', now + hold)
  end
  redis.call('SET', lock, prefix .. '"token":' .. token .. ',"since":' .. since .. ',' .. rest, 'PX', ttl)
  leave(queue, alive, wakes, id)
  return { 1, token }
end

local position = 0
if join then
  -- What woke this waiter, however many messages that were.
  redis.call('DEL', wakes .. id)
  if not redis.call('ZSCORE', queue, id) then
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
    redis.call('ZADD', queue, (tonumber(last[2] or '') or 0) + 1, id)
  end
  redis.call('HSET', alive, id, string.format('%.0f', now + patience))
  -- When every waiter has died, the keys expire.
  for _, key in ipairs({ queue, alive }) do
    if redis.call('PTTL', key) < 2 * patience then
      redis.call('PEXPIRE', key, 2 * patience)
    end
  end
  position = redis.call('ZRANK', queue, id) + 1
  if more then
    wake(wakes, id)
  end
end
if kind == 'none' and head then
  wake(wakes, head)
end
return { 0, kind, value, time_left(lock, kind, value), position, string.format('%.0f', now) }
