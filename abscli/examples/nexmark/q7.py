"""NEXMark 7, highest bid: the highest bid of every ten seconds, or all of them that are as high."""

import pyarrow as pa

from abscli import Job, col


def highest(bids: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are asked for."""
    return bids.select(["auction", "price", "bidder", "date_time", "extra"])


job = Job("nexmark-q7", parallelism=2)
bids = job.nexmark("bid", total=500_000, event_time="date_time", id="bids")
# First of each auction, so that all tasks have a share of it, then of all of them.
of_auctions = (
    bids.group_by("auction").window("date_time", tumbling="10s").agg(price=col("price").max(), id="of_auctions")
)
prices = (
    of_auctions.group_by("window_start", "window_end")
    .ttl("window_end", "10s")
    .agg(price=col("price").max(), id="prices")
)
pairs = bids.join(prices, on="price", time=("date_time", "window_end"), within="10s")
pairs.map(highest).to_jsonl("out", id="shown")
