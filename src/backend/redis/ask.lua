-- Puts a request to stop beside the lock, if this owner holds it.
--   KEYS  lock, holders, details, broken, stop, the owner's listener
--   ARGV  id, request, ms for which the requests of this lock are kept at least
-- Returns 1, or 0 where the owner does not hold it.
local id, request, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local _, value, mode = look()
if not held_by_owner(id, mode, value) then
  return 0
end
if misplaced({ [stop] = 'hash' }) then
  redis.call('DEL', stop)
end
redis.call('HSET', stop, id, request)
if redis.call('PTTL', stop) < left then
  redis.call('PEXPIRE', stop, int(left))
end
leave_trace(request)
tell()
return 1
