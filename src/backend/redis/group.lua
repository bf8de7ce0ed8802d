-- Shared by all scripts: who holds a lock.
--   lock     of an exclusive holder: its text, as every client with the documented pattern writes one. Of a group
--            (shared, or slots): a text that begins with {"v":1,"mode":"shared" or "slotsN", as long as one of the
--            group holds it, so that other clients stay out
--   holders  sorted set: ids of a group's holders by the server time in ms at which their holds end
--   details  hash: holder's id to its text
--   fence    the fencing counter
-- The lock's key decides: without a group's text there, holders and details mean nothing. Only the server's clock
-- counts.
local lock, holders, details, fence = unpack(KEYS)
local micros, now = clock()

-- Why one of these side keys cannot be used: it is of another type than dlock gives it.
local function misplaced(wanted)
  for key, kind in pairs(wanted) do
    local found = redis.call('TYPE', key)['ok']
    if found ~= 'none' and found ~= kind then
      return { 3, key, found }
    end
  end
end

-- The number of slots of this mode, where it has slots.
local function slots_of(mode)
  return tonumber(string.match(mode or '', '^slots(%d+)$') or '')
end

local function is_group(mode)
  return mode == 'shared' or slots_of(mode) ~= nil
end

-- A holder's text as it stands at the lock's key.
local function named(text, mode)
  return '{"v":1,"mode":"' .. mode .. '",' .. string.sub(text, 8)
end

local function forget(id)
  redis.call('ZREM', holders, id)
  redis.call('HDEL', details, id)
end

-- The keys of a group end with its last holder, whose text the lock's key has. They are never without an end.
local function bound(mode)
  local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')
  local left = int(tonumber(last[2]) - now)
  redis.call('SET', lock, named(redis.call('HGET', details, last[1]) or '{"v":1,"id":"-"}', mode), 'PX', left)
  redis.call('PEXPIRE', holders, left)
  redis.call('PEXPIRE', details, left)
end

-- The type and the text of the lock's key, and in which mode how many hold it (nil and 0: nobody). Holders of a group
-- whose time is over are dropped.
local function look()
  local kind, value = occupant(lock)
  if kind == 'none' then
    return kind, value, nil, 0
  end
  local mode = kind == 'string' and string.match(value, '^{"v":%d+,"mode":"(%w+)",')
  if not mode then
    return kind, value, 'exclusive', 1
  end
  if redis.call('TYPE', holders)['ok'] ~= 'zset' or redis.call('TYPE', details)['ok'] ~= 'hash' then
    -- Lost, or not dlock's: nobody can renew the lock, and nobody enters before it has expired.
    return kind, value, 'unknown', 1
  end
  local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')
  -- After the clock was set back, holds would outlive their leases by that step.
  local is_late = tonumber(last[2]) > now + longest(redis.call('HGET', details, last[1]) or '')
  if is_late then
    for _, id in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
      local latest = now + longest(redis.call('HGET', details, id) or '')
      if tonumber(redis.call('ZSCORE', holders, id)) > latest then
        redis.call('ZADD', holders, int(latest), id)
      end
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', int(now))) do
    forget(id)
  end
  local count = redis.call('ZCARD', holders)
  if count == 0 then
    redis.call('DEL', lock)
    return 'none', '', nil, 0
  end
  if is_late then
    bound(mode)
  end
  return kind, value, mode, count
end

-- The text with which this owner holds the lock in this mode, which is the lock's; nil where it does not.
local function text_of(id, mode, value)
  if mode == 'exclusive' then
    return value
  end
  return redis.call('ZSCORE', holders, id) and redis.call('HGET', details, id) or nil
end

-- One of a group holds the lock for so many ms from now on.
local function hold(id, left, mode)
  redis.call('ZADD', holders, int(now + left), id)
  bound(mode)
end

-- Extends the hold with this text by a lease, or until its minimum hold is over.
local function extend(id, text, ttl, mode)
  local left = life(text, ttl, now)
  -- Of a group this decides nothing: but a full server takes what may need memory only after a write that needs none.
  redis.call('PEXPIRE', lock, int(left))
  if mode ~= 'exclusive' then
    hold(id, left, mode)
  end
end

-- The answer to a renewal that extended the lock: with the request to stop that was made to this owner, if there is one.
local function extended(stop, id)
  local request = redis.pcall('HGET', stop, id)
  return type(request) == 'string' and { 2, request } or { 1 }
end

-- Ends the hold with this text, or leaves it to its minimum hold if it was used. Returns 1 or, when it is kept, 2, and
-- in which mode how many hold the lock then.
local function give_back(id, text, used, mode, count)
  local left = used and life(text, 0, now) or 0
  if mode == 'exclusive' then
    if left > 0 then
      redis.call('SET', lock, done(text), 'PX', int(left))
      return 2, mode, count
    end
    redis.call('DEL', lock)
    return 1, nil, 0
  end
  if left > 0 then
    redis.call('HSET', details, id, done(text))
    hold(id, left, mode)
    return 2, mode, count
  end
  forget(id)
  if count == 1 then
    redis.call('DEL', lock)
    return 1, nil, 0
  end
  bound(mode)
  return 1, mode, count - 1
end
