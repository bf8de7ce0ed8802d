-- Shared by all scripts: what is at a lock's key.

local function starts_with(text, prefix)
  return string.sub(text, 1, #prefix) == prefix
end

-- Its type and, of a string, as much as is ever shown.
local function occupant(lock)
  local kind = redis.call('TYPE', lock)['ok']
  local value = ''
  if kind == 'string' then
    value = redis.call('GETRANGE', lock, 0, 4095)
  end
  return kind, value
end

-- The milliseconds until the key goes, as PTTL has it. By a clock that was put back, a key would stay for that much
-- longer than its lease: what a dlock left ends a lease from now, which is not before the dlock counts on it.
local function time_left(lock, kind, value)
  local left = redis.call('PTTL', lock)
  if kind == 'string' and string.match(value, '^{"v":%d+,"id":"') then
    -- Within a text of the JSON the quotes would have a backslash.
    local ttl = tonumber(string.match(value, '"ttl":(%d+)') or '') or 0
    if ttl > 0 and left > ttl then
      redis.call('PEXPIRE', lock, ttl)
      left = ttl
    end
  end
  return left
end
