-- Shared by the scripts of Redlock. A text of dlock begins with the owner's prefix and the number of the attempt.
--   intent  id of the writer that waits for a group to end: until it expires, nobody joins that group
local intent = KEYS[5]

local function id_of(owner)
  return string.match(owner, '"id":"(%x+)"')
end

-- The number of the attempt that wrote this text, if this owner wrote it and uses it.
local function attempt_of(text, owner)
  if text and starts_with(text, owner) then
    return tonumber(string.match(text, '^"try":(%d+),', #owner + 1) or '')
  end
end

-- Sets the counter and returns it as text.
local function set_counter(number)
  local text = int(number)
  redis.call('SET', fence, text, 'EX', 2592000)
  return text
end
