-- Shared by the scripts that take a lock.

local function is_done(text)
  return string.find(text, '^{"v":%d+,"done":true,') ~= nil
end

-- The text of one of these owners that holds the lock and uses it.
local function held_by(ids, mode, value)
  for id in string.gmatch(ids, '%x+') do
    local text
    if mode == 'exclusive' then
      text = string.find(string.sub(value, 1, 128), '"id":"' .. id .. '"', 1, true) and value
    elseif is_group(mode) then
      text = redis.call('HGET', details, id)
    end
    if text and not is_done(text) then
      return mode == 'exclusive' and text or named(text, mode)
    end
  end
end

-- Makes it a holder for its lease. Where nobody holds the lock, that founds a group, for which nothing of an earlier one
-- counts.
local function enter(id, text, ttl, mode, count)
  if mode == 'exclusive' then
    redis.call('SET', lock, text, 'PX', int(ttl))
    return
  end
  if count == 0 then
    redis.call('DEL', holders, details)
  end
  redis.call('HSET', details, id, text)
  hold(id, ttl, mode)
end

-- The numbers of the slots that are taken, each with its holder's text.
local function taken()
  local texts = {}
  for _, text in ipairs(redis.call('HVALS', details)) do
    texts[field(text, 'slot')] = text
  end
  return texts
end

-- The ms after which it is worth looking again: of our own mode when the first holder's time is over, otherwise when the
-- last one's is; negative where it is never over. After the clock was set back, the key of a dlock would outlive its lease
-- by that step: it is made to expire one ttl from now (or its minimum hold, if that is longer), which is no earlier than
-- its holder counts on.
local function next_look(kind, value, mode, mine)
  if is_group(mode) then
    local which = mode == mine and 0 or -1
    return tonumber(redis.call('ZRANGE', holders, which, which, 'WITHSCORES')[2]) - now
  end
  local left = redis.call('PTTL', lock)
  local most = kind == 'string' and hold_of(value) and longest(value) or 0
  if most > 0 and left > most then
    redis.call('PEXPIRE', lock, int(most))
    left = most
  end
  return left
end
