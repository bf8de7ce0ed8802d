-- Whether the lock is free, or held in our own way with room.
SELECT 'room' FROM {lock} s WHERE {this} AND (s.lock_until <= {now} OR s.locked_by = {group}
  AND (SELECT COUNT(*) FROM {member} m WHERE m.name = {name} AND m.until > {now}) < {room});
