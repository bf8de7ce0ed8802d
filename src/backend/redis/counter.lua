-- Shared by the scripts that give tokens: reading a fencing counter.

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
