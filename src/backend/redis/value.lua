-- Shared by all scripts: reading a lock's key.

-- The server's time in microseconds and in milliseconds.
local function clock()
  local time = redis.call('TIME')
  local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return micros, math.floor(micros / 1000)
end

local function starts_with(text, prefix)
  return string.sub(text, 1, #prefix) == prefix
end

-- Its type and, of a string, the part that may be shown.
local function occupant(lock)
  local kind = redis.call('TYPE', lock)['ok']
  local value = ''
  if kind == 'string' then
    value = redis.call('GETRANGE', lock, 0, 4095)
  end
  return kind, value
end

-- The ms for which a dlock's lock is to stay taken at least after its grant (--min-hold), 0 where it is not; nil where
-- this is no dlock's text.
local function hold_of(value)
  local version = string.match(value, '^{"v":%d+,') or ''
  local rest = string.sub(value, #version + 1)
  if starts_with(rest, '"done":true,') then
    rest = string.sub(rest, 13)
  end
  local hold = string.match(rest, '^"hold":(%d+),"id":"')
  return hold and tonumber(hold) or version ~= '' and starts_with(rest, '"id":"') and 0 or nil
end

-- The ms for which the key is to live from now on: its lease, and longer while it is to be held. After the clock was set
-- back it is held no longer than from now.
local function life(value, ttl, now)
  -- Inside a JSON string the quotes would be escaped.
  local left = (tonumber(string.match(value, '"until":(%d+)') or '') or 0) - now
  return math.max(ttl, math.min(hold_of(value) or 0, left))
end

-- Leaves of the lock what its minimum hold wants: a text that no request of its owner begins with, so that no renewal
-- revives it. Returns false, and does nothing, where that is over.
local function finish(lock, value, now)
  local left = life(value, 0, now)
  if left <= 0 then
    return false
  end
  redis.call('SET', lock, (string.gsub(value, ',', ',"done":true,', 1)), 'PX', left)
  return true
end

-- Whether this is what `finish` left of the owner's lock.
local function is_finished(value, prefix)
  return starts_with(value, (string.gsub(prefix, ',', ',"done":true,', 1)))
end

-- The milliseconds until the key expires, as PTTL has it. After the clock was set back, a key would outlive its lease
-- by that step: the key of a dlock is made to expire one ttl from now (or its minimum hold, if that is longer), which is no
-- earlier than its holder counts on.
local function time_left(lock, kind, value)
  local left = redis.call('PTTL', lock)
  local hold = kind == 'string' and hold_of(value)
  if hold then
    local ttl = math.max(tonumber(string.match(value, '"ttl":(%d+)') or '') or 0, hold)
    if ttl > 0 and left > ttl then
      redis.call('PEXPIRE', lock, ttl)
      left = ttl
    end
  end
  return left
end

-- Whether a fencing counter cannot be this number: the next ones could not be counted exactly, or it is more than a
-- year ahead of the clock.
local function is_damaged(number, micros)
  return number >= 9007199254740990 or number > micros + 31622400000000
end

-- The last token that a fencing counter gave, 0 where there is none; of a damaged counter, nil and why it cannot be
-- used.
local function last_token(fence, micros)
  local kind = redis.call('TYPE', fence)['ok']
  if kind == 'none' then
    return 0
  end
  local text = ''
  if kind == 'string' then
    text = redis.call('GETRANGE', fence, 0, 63)
    local number = string.match(text, '^%d+$') and tonumber(text)
    if number and not is_damaged(number, micros) then
      return number
    end
  end
  return nil, { 2, fence, kind, text }
end
