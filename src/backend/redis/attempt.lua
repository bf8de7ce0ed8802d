-- Takes the lock, or says why not; repeating it changes nothing.
--   KEYS  lock, holders, details, fence, queue, alive, modes, who, stop, and once where the client has a period
--   ARGV  id, prefix and rest of the text, ttl ms, heartbeat_ttl ms, 1 to join the queue, wakes, minimum hold ms, mode, ids of
--         the outer runs; with a period its number by the client's clock, its length and its age in ms
-- Returns {1, token, slot or -1}, {0, type, text, ms until it is worth a look, position, now, others who hold it too},
-- {4, text of the outer run that holds it}, {5, number of slots in use, text of one who uses them or '', now},
-- {6, text of who has succeeded in the period},
-- or before anything is written {2, key, type, value} for a damaged counter and {3, key, type} for a side key of another
-- type.
local id, prefix, rest = ARGV[1], ARGV[2], ARGV[3]
local ttl, heartbeat_ttl = tonumber(ARGV[4]), tonumber(ARGV[5])
local join, wakes, least, mine = ARGV[6] == '1', ARGV[7], tonumber(ARGV[8]), ARGV[9]
local last, damage = last_token(fence, micros)
damage = damage or unusable()
if damage then
  return damage
end
local kind, value, mode, count = look()
local outer = held_by(ARGV[10], mode, value)
if outer then
  return { 4, outer }
end

-- Granted by an earlier request whose answer was lost.
local own = mode == mine and text_of(id, mode, value)
if own and starts_with(own, prefix) then
  extend(id, own, ttl, mode)
  leave(id, wakes)
  if is_group(mode) then
    settle(wakes, head_of(wakes, heartbeat_ttl), mode, count)
  end
  return { 1, string.match(own, '"token":(%d+)') or '', tonumber(string.match(own, '"slot":(%d+)') or '-1') }
end

local done_by = KEYS[10]
  and done_in(KEYS[10], period_of(tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])))
if done_by then
  leave(id, wakes)
  settle(wakes, head_of(wakes, heartbeat_ttl), mode, count)
  return { 6, done_by }
end

local slots = slots_of(mine)
if slots then
  local function other(of)
    local number = slots_of(of)
    return number ~= slots and number
  end
  local number, text = other(mode), value
  if not number then
    local waiting = redis.call('HGETALL', modes)
    for at = 1, #waiting, 2 do
      if other(waiting[at + 1]) and lives(waiting[at], heartbeat_ttl) then
        number, text = other(waiting[at + 1]), ''
        break
      end
    end
  end
  if number then
    leave(id, wakes)
    settle(wakes, head_of(wakes, heartbeat_ttl), mode, count)
    return { 5, number, text, int(now) }
  end
end

-- All before us: who holds, and the waiters up to us. What is left of our own hold for its minimum time is not entered
-- again by a request that comes late.
local head, more = head_of(wakes, heartbeat_ttl)
local may, before = not more and not own and fits(mine, mode, count), count
if may and head and head ~= id then
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if waiter == id then
      break
    end
    if lives(waiter, heartbeat_ttl) then
      before = before + 1
      if mode_of(waiter) ~= mine or before >= room(mine) then
        may = false
        break
      end
    end
  end
end

if may then
  local token = int(math.max(last + 1, micros))
  redis.call('SET', fence, token, 'EX', 2592000)
  local text = prefix .. '"token":' .. token .. ',"since":' .. int(now) .. ','
  -- The first renewal, before the lock is used, makes it last as long: what arrives too late costs a lease and no more.
  if least > 0 then
    text = text .. '"until":' .. int(now + least) .. ','
  end
  local slot = -1
  if slots then
    local texts = count > 0 and taken() or {}
    slot = 0
    while texts[slot] do
      slot = slot + 1
    end
    text = text .. '"slot":' .. slot .. ','
  end
  enter(id, text .. rest, ttl, mine, count)
  leave(id, wakes)
  if is_group(mine) then
    settle(wakes, head_of(wakes, heartbeat_ttl), mine, count + 1)
  end
  return { 1, token, slot }
end

local position = 0
if join then
  -- What woke this waiter, however many messages that were.
  redis.call('DEL', wakes .. id)
  if not redis.call('ZSCORE', queue, id) then
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
    redis.call('ZADD', queue, (tonumber(last[2] or '') or 0) + 1, id)
    redis.call('HSET', who, id, prefix .. '"since":' .. int(now) .. ',' .. rest)
  end
  redis.call('HSET', alive, id, int(now + heartbeat_ttl))
  if is_group(mine) then
    redis.call('HSET', modes, id, mine)
  end
  -- When every waiter has died, the keys expire.
  for _, key in ipairs({ queue, alive, modes, who }) do
    if redis.call('PTTL', key) < 2 * heartbeat_ttl then
      redis.call('PEXPIRE', key, 2 * heartbeat_ttl)
    end
  end
  position = redis.call('ZRANK', queue, id) + 1
  if more then
    wake(wakes, id)
  end
end
settle(wakes, head, mode, count)
local left = next_look(kind, value, mode, mine)
return { 0, kind, value, left, position, int(now), math.max(count - 1, 0) }
