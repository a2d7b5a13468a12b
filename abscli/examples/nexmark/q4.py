"""NEXMark 4, prices by category: the mean of the prices for which auctions have closed, of each category.

An auction's price is the highest bid between its beginning and its end. All pairs of an auction and a bid have the time
at which the auction ends, so a window of that time takes all of them, and is put out once, when event time has come
there. SQL's answer to all events at once is the last row of each category.
"""

import pyarrow as pa
import pyarrow.compute as pc

from abscli import Job, col


def begun(auctions: pa.RecordBatch) -> pa.RecordBatch:
    """By the name that bids have for them."""
    return auctions.select(["id", "category", "date_time", "expires"]).rename_columns(
        ["auction", "category", "date_time", "expires"]
    )


def in_time(bids: pa.RecordBatch) -> pa.BooleanArray:
    """Whether the auction was open."""
    return pc.less_equal(bids["date_time_right"], bids["expires"])


job = Job("nexmark-q4", parallelism=2)
auctions = job.nexmark("auction", total=500_000, event_time="date_time", id="auctions").map(begun)
bids = job.nexmark("bid", total=500_000, event_time="date_time", id="bids")
offers = auctions.join(
    bids,
    on="auction",
    time="date_time",
    within="1m",  # no auction is open for so long: at 10,000 events a second, none for a second
    columns=(
        {"auction": "int64", "category": "int64", "date_time": "timestamp[us]", "expires": "timestamp[us]"},
        {"auction": "int64", "price": "int64", "date_time": "timestamp[us]"},
    ),
)
closed = (
    offers.filter(in_time)
    .group_by("auction", "category")
    .window("expires", tumbling="1s")
    .agg(final=col("price").max(), id="closed")
)
closed.group_by("category").agg(average=col("final").mean(), id="averages").to_jsonl("out", id="shown")
