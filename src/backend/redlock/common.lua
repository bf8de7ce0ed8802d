-- Shared by the scripts of Redlock. A value of dlock begins with the owner's prefix and the number of the attempt.

-- The number of the attempt that wrote this value, if this owner wrote it.
local function attempt_of(kind, value, owner)
  if kind == 'string' and starts_with(value, owner) then
    return tonumber(string.match(value, '^"try":(%d+),', #owner + 1) or '')
  end
  return nil
end

-- Sets the counter and returns it as text: Lua would print a number of this size with an exponent.
local function set_counter(fence, number)
  local text = string.format('%.0f', number)
  redis.call('SET', fence, text, 'EX', 2592000)
  return text
end
