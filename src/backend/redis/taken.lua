-- On a single server the next waiter is told, if it may enter now.
if not unusable() then
  settle(ARGV[3], head_of(ARGV[3]), mode, count)
end
