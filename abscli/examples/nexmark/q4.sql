WITH closed AS (
  SELECT auction.id, auction.category, max(bid.price) AS final
  FROM auction
  JOIN bid ON bid.auction = auction.id AND bid.date_time BETWEEN auction.date_time AND auction.expires
  GROUP BY auction.id, auction.category
)
SELECT category, avg(final) AS average
FROM closed
GROUP BY category
