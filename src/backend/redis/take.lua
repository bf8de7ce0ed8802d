-- Takes the lock away from the one holder who is named, whether it agrees or not.
--   KEYS  lock, holders, details, …, broken, stop, the owner's listener
--   ARGV  id, or '' for another program; that program's text; wakes; the record of the break
-- Returns 1, or 0 where that one does not hold it.
local id, text = ARGV[1], ARGV[2]
local kind, value, mode, count = look()
if id == '' then
  if kind ~= 'string' or mode ~= 'exclusive' or owner_in(value) or value ~= text then
    return 0
  end
  redis.call('DEL', lock)
  mode, count = nil, 0
else
  local own = held_by_owner(id, mode, value)
  if not own then
    return 0
  end
  local _
  _, mode, count = give_back(id, own, false, mode, count)
  redis.pcall('HDEL', stop, id)
  tell()
end
leave_trace(ARGV[4])
