-- The time here.
SELECT 'time', {time};
