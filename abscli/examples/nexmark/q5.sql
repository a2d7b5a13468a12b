WITH counts AS (
  SELECT time_bucket(INTERVAL 2 SECONDS, date_time) - pane * INTERVAL 2 SECONDS AS window_start,
         auction, count(*) AS num
  FROM bid, range(5) AS panes(pane)
  GROUP BY ALL
)
SELECT window_start, window_start + INTERVAL 10 SECONDS AS window_end, auction, num
FROM counts
QUALIFY num = max(num) OVER (PARTITION BY window_start)
