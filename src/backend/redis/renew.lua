-- Extends the lock if it is ours; never creates it.
--   KEYS  lock, holders, details
--   ARGV  id, prefix, ttl ms, mode
-- Returns {1} or {0, type, text}.
local id, prefix, ttl, mine = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local kind, value, mode = look()
local own = mode == mine and text_of(id, mode, value)
if own and starts_with(own, prefix) then
  extend(id, own, ttl, mode)
  return { 1 }
end
return { 0, kind, value }
