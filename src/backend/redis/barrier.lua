-- Parties that wait for each other at a barrier. All that wait when the last one comes are marked as open.
--
-- A party that arrives does not count before its next look, which finds its mark only within its lease: an arrival that a server
-- carries out late, when its party has long gone, opens nothing.
--   KEYS  marks (hash: name to `id parties STATE`, which is comes, waits or open), ends (sorted set: name by the ms at which the lease of
--         its mark ends)
--   ARGV  arrive, look, withdraw or close; id; name; lease in ms; parties; prefix of the wake lists, which a party's id follows
-- Returns {0, name ...} while it waits, with the names of all who do; {1} open; {2} it has no mark; {3} a newer one has its name;
-- {4, parties, name ...} others wait for another number. Repeating it changes nothing: an open mark stays until it is closed.
local marks, ends = KEYS[1], KEYS[2]
local what, id, name, lease, parties, wakes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local changed = false

local function int(number)
  return string.format('%.0f', number)
end

local function read(text)
  local who, count, state = string.match(text or '', '^(%x+) (%d+) (%a+)$')
  return { id = who, parties = tonumber(count or ''), state = state }
end

local function write(mark, state)
  redis.call('HSET', marks, mark.name, mark.id .. ' ' .. int(mark.parties) .. ' ' .. state)
end

local function drop(which)
  redis.call('HDEL', marks, which)
  redis.call('ZREM', ends, which)
  changed = true
end

-- The list of a party that has died is gone with its lease.
local function wake(mark)
  local list = wakes .. mark.id
  if redis.call('EXISTS', list) == 0 then
    redis.call('LPUSH', list, '1')
    redis.call('PEXPIRE', list, int(math.max(1, tonumber(redis.call('ZSCORE', ends, mark.name) or now + lease) - now)))
  end
end

-- The marks for which `wanted` is true, by name.
local function those(wanted)
  local all, found = redis.call('HGETALL', marks), {}
  for i = 1, #all, 2 do
    local mark = read(all[i + 1])
    mark.name = all[i]
    if mark.id and wanted(mark) then
      found[#found + 1] = mark
    end
  end
  table.sort(found, function(one, other) return one.name < other.name end)
  return found
end

local function with_names(answer, found)
  for _, mark in ipairs(found) do
    answer[#answer + 1] = mark.name
  end
  return answer
end

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', int(now))) do
  drop(dead)
end
local there = read(redis.call('HGET', marks, name))
local mine = there.id == id
local answer = { 2 }
if what == 'withdraw' or what == 'close' then
  if mine and there.state == 'open' and what == 'withdraw' then
    answer = { 1 }
  elseif mine then
    drop(name)
  end
  redis.call('DEL', wakes .. id)
elseif mine and there.state == 'open' then
  answer = { 1 }
elseif not mine and what == 'look' then
  answer = { there.id and 3 or 2 }
else
  local others = {}
  if not mine then
    others = those(function(mark)
      return mark.state ~= 'open' and mark.parties ~= parties and mark.name ~= name
    end)
  end
  if others[1] then
    answer = with_names({ 4, others[1].parties }, others)
  else
    local state = there.state
    if mine and what == 'look' then
      state = 'waits'
    elseif not mine then
      state = 'comes'
      if there.id then
        there.name = name
        wake(there)
      end
    end
    changed = changed or not mine or state ~= there.state
    write({ name = name, id = id, parties = parties }, state)
    redis.call('ZADD', ends, int(now + lease), name)
    local ready = those(function(mark)
      return mark.state == 'waits' and mark.parties == parties
    end)
    if state == 'waits' and #ready >= parties then
      for _, mark in ipairs(ready) do
        write(mark, 'open')
      end
      changed = true
      answer = { 1 }
    else
      -- Those that come are here too: a newer process does not leave its name out for a moment.
      answer = with_names({ 0 }, those(function(mark)
        return mark.state ~= 'open' and mark.parties == parties
      end))
    end
  end
end
if changed then
  for _, mark in ipairs(those(function(mark) return mark.id ~= id end)) do
    wake(mark)
  end
end
local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
if last then
  for _, key in ipairs({ marks, ends }) do
    redis.call('PEXPIRE', key, int(math.max(1, tonumber(last) - now)))
  end
end
return answer
