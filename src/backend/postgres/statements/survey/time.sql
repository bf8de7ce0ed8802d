-- The time here.
SELECT 'time', {micros} / 1000;
