-- Records the break, if it was made: a row among those of the periods, for a length that no period has.
INSERT INTO {once} (name, length_ms, period, at_ms, done) SELECT {name}, 0, 0, {time}, {ask} FROM DUAL WHERE @dlock
ON DUPLICATE KEY UPDATE at_ms = VALUES(at_ms), done = VALUES(done);
