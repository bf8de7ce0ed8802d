-- Extends the lock if it is ours; never creates it.
--   KEYS  lock, holders, details, stop
--   ARGV  prefix, ttl ms, mode
-- Returns {1}, {2, request} where its owner was asked to stop, or {0, type, text}.
local prefix, ttl, mine = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local id = string.match(prefix, '"id":"(%x+)"')
local kind, value, mode = look()
local own = mode == mine and text_of(id, mode, value)
if own and starts_with(own, prefix) then
  extend(id, own, ttl, mode)
  return extended(KEYS[4], id)
end
return { 0, kind, value }
