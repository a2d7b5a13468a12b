WITH prices AS (
  SELECT time_bucket(INTERVAL 10 SECONDS, date_time) + INTERVAL 10 SECONDS AS window_end, max(price) AS price
  FROM bid
  GROUP BY window_end
)
SELECT auction, price, bidder, date_time, extra
FROM bid
JOIN prices USING (price)
WHERE date_time BETWEEN window_end - INTERVAL 10 SECONDS AND window_end
