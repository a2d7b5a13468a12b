"""NEXMark 8, new users: who has come and begun an auction within the same ten seconds."""

import pyarrow as pa

from abscli import Job, count


def sellers(auctions: pa.RecordBatch) -> pa.RecordBatch:
    """By the name that persons have for themselves."""
    return auctions.select(["seller", "date_time"]).rename_columns(["id", "date_time"])


def new_users(pairs: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are asked for."""
    return pairs.select(["id", "name", "window_start"])


job = Job("nexmark-q8", parallelism=2)
persons = job.nexmark("person", total=500_000, event_time="date_time", id="persons")
auctions = job.nexmark("auction", total=500_000, event_time="date_time", id="auctions")
# A row a person, or seller, and window, so that a pair comes once.
came = persons.group_by("id", "name").window("date_time", tumbling="10s").agg(times=count(), id="came")
sold = auctions.map(sellers).group_by("id").window("date_time", tumbling="10s").agg(auctions=count(), id="sold")
pairs = came.join(
    sold,
    on=["id", "window_start"],
    time="window_end",
    columns=(None, {"id": "int64", "window_start": "timestamp[us]", "window_end": "timestamp[us]"}),
)
pairs.map(new_users).to_jsonl("out", id="shown")
