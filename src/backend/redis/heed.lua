-- Shared by the scripts of whoever intervenes: whose a text is, waking a holder that listens, and the record of a break.
--   broken  the last request to stop, or what took the lock away; the last key but two
--   stop    hash: owner's id to the request to stop that was made to it; the last key but one
--   listener     list on which the owner listens from its first renewal on; the last key
local broken, stop, listener = KEYS[#KEYS - 2], KEYS[#KEYS - 1], KEYS[#KEYS]

-- The id of the dlock that wrote this text; nil where none did. Before the id there are only numbers and words of dlock's.
local function owner_in(text)
  return starts_with(text, '{"v":') and string.match(text, '^[%w{}":,]-"id":"(%x+)"') or nil
end

-- The text with which this owner holds the lock, used or not; nil where it does not.
local function held_by_owner(id, mode, value)
  local text = mode and text_of(id, mode, value)
  return text and owner_in(text) == id and text or nil
end

-- Records the break for a week, for those who look at the lock later. Nothing depends on it.
local function leave_trace(text)
  redis.pcall('SET', broken, text, 'EX', 604800)
end

-- Tells the holder to look at its lock now. Without the right to that, its next renewal finds out.
local function tell()
  redis.pcall('LPUSH', listener, '1')
  redis.pcall('PEXPIRE', listener, 2000)
end
