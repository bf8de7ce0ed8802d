-- Shared by the scripts that know periods (--once-per).
--   last  string: such a text of the last success, whatever the length of its period
--   once  string: a text with the number of the last period of one length in which a command has succeeded

-- The number of the period that is asked for, which was `number` by the client's clock `age` ms ago: at most one away from
-- the number by this server's clock.
local function period_of(number, length, age)
  local own = math.floor((now - age) / length)
  return math.max(own - 1, math.min(number, own + 1))
end

-- What is recorded, where the period of this number or a later one is done; nil where it is not.
local function done_in(once, number)
  local text = redis.call('TYPE', once)['ok'] == 'string' and redis.call('GETRANGE', once, 0, 4095) or ''
  local last = tonumber(string.match(text, '^{"v":%d+,"period":(%d+),') or '')
  return last and last >= number and text or nil
end

-- Records for two periods that a command has succeeded in the one of this number, and for 30 days at least that this was the last
-- success. `rest` ends the text.
local function record(once, last, number, length, rest)
  local text = '{"v":1,"period":' .. int(number) .. ',"length":' .. int(length) .. ',"at":' .. int(now) .. ',' .. rest
  redis.call('SET', once, text, 'PX', int(2 * length))
  redis.call('SET', last, text, 'PX', int(math.max(2 * length, 2592000000)))
end
