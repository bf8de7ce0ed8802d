-- Takes this server's vote, or says why not; repeating it changes nothing.
--   KEYS  lock, fence
--   ARGV  owner's prefix, number of the attempt, rest of the value, ttl ms, proposal for the counter, the attempt's token
--         if a majority has granted it already, else '', minimum hold ms
-- Returns {1, counter}, {0, type, value, pttl}, or before anything is written {2, key, type, value} for a damaged
-- counter.
local lock, fence = KEYS[1], KEYS[2]
local owner, number, rest, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local proposal, granted, hold = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local micros, now = clock()
local last, damage = last_token(fence, micros)
if damage then
  return damage
end
-- By this server's clock the token of the others would be damage.
if granted and is_damaged(granted, micros) then
  return { 2, fence, 'string', ARGV[6] }
end
local kind, there = occupant(lock)
local attempt = attempt_of(kind, there, owner)

local value = owner .. '"try":' .. ARGV[2] .. ','
if hold > 0 then
  -- By this server's clock, which differs from the others. The first renewal, before the lock is used, makes the key last
  -- as long: votes that are too few cost a lease and no more.
  value = value .. '"until":' .. string.format('%.0f', now + hold) .. ','
end
value = value .. rest

-- Ours without a gap since an earlier request, whose answer was lost or too late: its counter is still valid.
if attempt and attempt <= number then
  redis.call('SET', lock, value, 'PX', ttl)
  if granted and granted > last then
    return { 1, set_counter(fence, granted) }
  end
  return { 1, string.format('%.0f', last) }
end

if kind == 'none' then
  local next = last + 1
  if granted then
    -- The attempt has its token: this server only adds its vote and learns the token.
    next = math.max(last, granted)
  else
    -- A client whose clock is far ahead must not use up the numbers.
    next = math.max(next, math.min(proposal, micros + 60000000))
  end
  local text = set_counter(fence, next)
  redis.call('SET', lock, value, 'PX', ttl)
  return { 1, text }
end
return { 0, kind, there, time_left(lock, kind, there) }
