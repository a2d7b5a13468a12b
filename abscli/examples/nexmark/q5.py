"""NEXMark 5, hot items: every two seconds, which auctions have had the most bids in the last ten seconds."""

import pyarrow as pa

from abscli import Job, col, count


def hottest(counts: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are asked for."""
    return counts.select(["window_start", "window_end", "auction", "num"])


job = Job("nexmark-q5", parallelism=2)
bids = job.nexmark("bid", total=500_000, event_time="date_time", id="bids")
counts = bids.group_by("auction").window("date_time", sliding="10s", every="2s").agg(num=count(), id="counts")
most = (
    counts.group_by("window_start", "window_end")
    .ttl("window_end", "10s")  # a window comes once, and can be forgotten then
    .agg(num=col("num").max(), id="most")
)
# Several auctions may have as many bids: those whose number is the greatest of their window.
counts.join(most, on=["window_start", "num"], time="window_end", id="joined").map(hottest).to_jsonl("out", id="shown")
