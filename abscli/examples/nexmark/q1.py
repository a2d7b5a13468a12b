"""NEXMark 1, currency: every bid, its price in euros."""

import decimal

import pyarrow as pa
import pyarrow.compute as pc

from abscli import Job

EUROS = pa.scalar(decimal.Decimal("0.908"))


def in_euros(bids: pa.RecordBatch) -> pa.RecordBatch:
    """The same bids. Prices are decimals of three places: floats would round the last of them."""
    euros = pc.multiply(bids["price"].cast(pa.decimal128(19, 0)), EUROS)
    return bids.set_column(bids.schema.get_field_index("price"), "price", euros)


job = Job("nexmark-q1", parallelism=2)
bids = job.nexmark("bid", total=500_000, id="bids")
bids.map(in_euros).to_jsonl("out", id="shown")
