-- Extends the vote if it is this attempt's; never creates it.
--   KEYS  lock, holders, details, stop
--   ARGV  owner's prefix with the number of the attempt, ttl ms, mode
-- Returns {1}, {2, request} where its owner was asked to stop, or {0, type, text}.
local prefix, mine = ARGV[1], ARGV[3]
local id = id_of(prefix)
local kind, value, mode = look()
local own = mode == mine and text_of(id, mode, value)
if own and starts_with(own, prefix) then
  extend(id, own, tonumber(ARGV[2]), mode)
  return extended(KEYS[4], id)
end
return { 0, kind, value }
