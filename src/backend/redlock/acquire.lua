-- Takes this server's vote, or says why not; repeating it changes nothing.
--   KEYS  lock, holders, details, fence, intent, stop, and once where the client has a period
--   ARGV  owner's prefix, number of the attempt, rest of the text, ttl ms, proposal for the counter, the attempt's
--         token if a majority has granted it already, else '', minimum hold ms, mode, slot or -1, ms for which nobody
--         joins a group that is in the way, ids of the outer runs; with a period that must not be done its
--         number by the client's clock, its length and its age in ms
-- Returns {1, counter}, {0, type, text, ms until it is worth a look, others who hold it too, id of the writer that goes
-- first or '', numbers of the slots that are taken}, {4, text of the outer run that holds it}, {5, number of
-- slots in use, text of one who uses them, now}, {6, text of who has succeeded in the period}, or before anything is
-- written {2, key, type, value} for a damaged counter and {3, key, type} for a side key of another type.
local owner, number, rest, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local proposal, granted, least = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local mine, slot, keeps_out = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local last, damage = last_token(fence, micros)
local announced = redis.call('TYPE', intent)['ok']
if announced ~= 'none' and announced ~= 'string' then
  damage = damage or { 3, intent, announced }
end
if not damage and is_group(mine) then
  damage = misplaced({ [holders] = 'zset', [details] = 'hash' })
end
if damage then
  return damage
end
-- By this server's clock the token of the others would be damage.
if granted and is_damaged(granted, micros) then
  return { 2, fence, 'string', ARGV[6] }
end
local kind, value, mode, count = look()
local outer = held_by(ARGV[11], mode, value)
if outer then
  return { 4, outer }
end

local text = owner .. '"try":' .. ARGV[2] .. ','
if least > 0 then
  -- By this server's clock, which differs from the others. The first renewal, before the lock is used, makes it last
  -- as long: votes that are too few cost a lease and no more.
  text = text .. '"until":' .. int(now + least) .. ','
end
if slot >= 0 then
  text = text .. '"slot":' .. ARGV[9] .. ','
end
text = text .. rest

local id = id_of(owner)
local own = mode == mine and text_of(id, mode, value)
local attempt = own and attempt_of(own, owner)
if attempt and attempt <= number then
  if slot < 0 or field(own, 'slot') == slot then
    -- Ours without a gap since an earlier request, whose answer was lost or too late: its counter is still valid.
    enter(id, text, ttl, mode, count)
    return { 1, granted and granted > last and set_counter(granted) or int(last) }
  end
  -- An earlier attempt was for another slot, which is being given back.
  mode, count = select(2, give_back(id, own, false, mode, count))
  own = nil
end

local done_by = ARGV[12]
  and done_in(KEYS[7], period_of(tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])))
if done_by then
  return { 6, done_by }
end

local slots, others = slots_of(mine), slots_of(mode)
if slots and others and slots ~= others then
  return { 5, others, value, int(now) }
end
local writer = announced == 'string' and redis.call('GET', intent) or ''
local texts = slots and mode == mine and taken() or {}
local may = count == 0
if is_group(mine) then
  -- A late request must not replace a newer one of the same owner.
  may = (may or mode == mine and not own and not texts[slot]) and writer == ''
end
if may then
  local next = last + 1
  if granted then
    -- The attempt has its token: this server only adds its vote and learns the token.
    next = math.max(last, granted)
  else
    -- A client whose clock is far ahead must not use up the numbers.
    next = math.max(next, math.min(proposal, micros + 60000000))
  end
  local counter = set_counter(next)
  enter(id, text, ttl, mine, count)
  if writer == id then
    redis.call('DEL', intent)
  end
  return { 1, counter }
end

-- A writer that meets a group lets nobody join it. One that meets another writer waits like everybody else, so that
-- groups get their turn.
if keeps_out > 0 and is_group(mode) and (writer == '' or writer == id) then
  redis.call('SET', intent, id, 'PX', int(keeps_out))
  writer = id
end
local left = next_look(kind, value, mode, mine)
if texts[slot] then
  value = named(texts[slot], mode)
end
local numbers = {}
for taken in pairs(texts) do
  numbers[#numbers + 1] = taken
end
return { 0, kind, value, left, math.max(count - 1, 0), writer, numbers }
