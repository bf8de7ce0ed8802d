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
