-- A latch: which names are down, and whether it has failed.
--   KEYS  downs (sorted set: name by the ms at which it is forgotten), failure (string), waiters (sorted set: id by the ms at
--         which it is dropped without another look)
--   ARGV  look, leave, down, fail or forget; id; for how many ms it counts (look: this waiter, 0 for one that is not woken; down
--         and fail: what is kept); the name or the failure; prefix of the wake lists, which the waiter's id follows; how many
--         names at most are told as digests; how many names are told
-- Returns {how many names are down, failure or '', digests, name ...}; repeating it changes nothing.
local downs, failure, waiters = KEYS[1], KEYS[2], KEYS[3]
local what, id, life, text, wakes, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
local told = tonumber(ARGV[7])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function int(number)
  return string.format('%.0f', number)
end

-- Drops the members of a sorted set whose time is over; the set lives as long as the last of the others.
local function tidy(key)
  for _, over in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', int(now))) do
    redis.call('ZREM', key, over)
  end
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if last then
    redis.call('PEXPIRE', key, int(math.max(1, tonumber(last) - now)))
  end
end

if what == 'look' then
  if life > 0 then
    redis.call('ZADD', waiters, int(now + life), id)
  end
elseif what == 'leave' then
  redis.call('ZREM', waiters, id)
  redis.call('DEL', wakes .. id)
elseif what == 'down' then
  redis.call('ZADD', downs, int(now + life), text)
elseif what == 'fail' then
  redis.call('SET', failure, text, 'PX', int(life))
else
  redis.call('DEL', downs, failure)
end
tidy(downs)
tidy(waiters)
if what == 'down' or what == 'fail' or what == 'forget' then
  for _, waiter in ipairs(redis.call('ZRANGE', waiters, 0, -1)) do
    local list = wakes .. waiter
    if redis.call('EXISTS', list) == 0 then
      redis.call('LPUSH', list, '1')
      redis.call('PEXPIRE', list, 30000)
    end
  end
end
local digests = {}
if most > 0 then
  for place, name in ipairs(redis.call('ZRANGE', downs, 0, most - 1)) do
    digests[place] = string.sub(redis.sha1hex(name), 1, 20)
  end
end
local answer = { redis.call('ZCARD', downs), redis.call('GETRANGE', failure, 0, 4095), table.concat(digests) }
if told > 0 then
  for _, name in ipairs(redis.call('ZRANGE', downs, 0, told - 1)) do
    answer[#answer + 1] = name
  end
end
return answer
