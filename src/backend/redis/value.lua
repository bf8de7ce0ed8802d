-- Shared by all scripts: reading a lock's key.

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

-- The milliseconds until the key expires, as PTTL has it. After the clock was set back, a key would outlive its lease
-- by that step: the key of a dlock is made to expire one ttl from now, which is no earlier than its holder counts on.
local function time_left(lock, kind, value)
  local left = redis.call('PTTL', lock)
  if kind == 'string' and string.match(value, '^{"v":%d+,"id":"') then
    -- Inside a JSON string the quotes would be escaped.
    local ttl = tonumber(string.match(value, '"ttl":(%d+)') or '') or 0
    if ttl > 0 and left > ttl then
      redis.call('PEXPIRE', lock, ttl)
      left = ttl
    end
  end
  return left
end
