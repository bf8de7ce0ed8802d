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

-- A number as text: Lua would print a large one with an exponent.
local function int(number)
  return string.format('%.0f', number)
end

-- A number that a dlock's text has under this name, or 0. Inside a JSON string the quotes would be escaped.
local function field(text, name)
  return tonumber(string.match(text, '"' .. name .. '":(%d+)') or '') or 0
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

-- The most ms for which a lock with this text can be held from now on, by what it says.
local function longest(value)
  return math.max(field(value, 'ttl'), hold_of(value) or 0)
end

-- The ms for which the lock is to be held from now on: its lease, and longer while its minimum hold lasts. After the
-- clock was set back it is held no longer than from now.
local function life(value, ttl, now)
  return math.max(ttl, math.min(hold_of(value) or 0, field(value, 'until') - now))
end

-- The text of a holder that does not use its lock any more. No request of its owner begins like that, so that no
-- renewal revives it.
local function done(text)
  return (string.gsub(text, ',', ',"done":true,', 1))
end
