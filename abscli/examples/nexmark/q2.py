"""NEXMark 2, selection: bids for one of 123 auctions."""

import pyarrow as pa
import pyarrow.compute as pc

from abscli import Job


def selected(bids: pa.RecordBatch) -> pa.RecordBatch:
    """Auction and price, of bids for auctions whose number is a multiple of 123."""
    auction = bids["auction"]
    rest = pc.subtract(auction, pc.multiply(pc.divide(auction, 123), 123))
    return bids.select(["auction", "price"]).filter(pc.equal(rest, 0))


job = Job("nexmark-q2", parallelism=2)
bids = job.nexmark("bid", total=500_000, id="bids")
bids.flat_map(selected).to_jsonl("out", id="shown")
