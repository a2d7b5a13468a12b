SELECT DISTINCT person.id, person.name, time_bucket(INTERVAL 10 SECONDS, person.date_time) AS window_start
FROM person
JOIN auction ON auction.seller = person.id
WHERE time_bucket(INTERVAL 10 SECONDS, person.date_time) = time_bucket(INTERVAL 10 SECONDS, auction.date_time)
