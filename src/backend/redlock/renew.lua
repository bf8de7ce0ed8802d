-- Extends the vote if it is this attempt's; never creates it.
--   KEYS  lock, holders, details
--   ARGV  owner's prefix, number of the attempt, ttl ms, mode
-- Returns {1} or {0, type, text}.
local owner, mine = ARGV[1], ARGV[4]
local kind, value, mode = look()
local own = mode == mine and text_of(id_of(owner), mode, value)
if own and attempt_of(own, owner) == tonumber(ARGV[2]) then
  extend(id_of(owner), own, tonumber(ARGV[3]), mode)
  return { 1 }
end
return { 0, kind, value }
