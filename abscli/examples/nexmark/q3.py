"""NEXMark 3, local items: who sells items of category 10 in Oregon, Idaho or California, and which.

In SQL the join has no end: every person and every auction is kept for ever, since one that matches may come at any
time. Here both leave an hour behind event time. Sellers begin auctions within seconds of their coming, so that the
pairs are the same; an auction that came two hours later would find its seller in SQL, and not here.
"""

import pyarrow as pa
import pyarrow.compute as pc

from abscli import Job

STATES = pa.array(["OR", "ID", "CA"])


def local(persons: pa.RecordBatch) -> pa.RecordBatch:
    """Those of three states, by the name that auctions have for them."""
    rows = persons.filter(pc.is_in(persons["state"], STATES)).select(["id", "name", "city", "state", "date_time"])
    return rows.rename_columns(["seller", *rows.schema.names[1:]])


def in_category(auctions: pa.RecordBatch) -> pa.RecordBatch:
    """Those of category 10."""
    return auctions.filter(pc.equal(auctions["category"], 10)).select(["seller", "id", "date_time"])


def suggested(pairs: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are asked for."""
    return pairs.select(["name", "city", "state", "id"])


job = Job("nexmark-q3", parallelism=2)
persons = job.nexmark("person", total=500_000, event_time="date_time", id="persons").flat_map(local)
auctions = job.nexmark("auction", total=500_000, event_time="date_time", id="auctions").flat_map(in_category)
pairs = persons.join(
    auctions,
    on="seller",
    time="date_time",
    before="1h",
    within="1h",
    columns=(
        {"seller": "int64", "name": "string", "city": "string", "state": "string", "date_time": "timestamp[us]"},
        {"seller": "int64", "id": "int64", "date_time": "timestamp[us]"},
    ),
)
pairs.map(suggested).to_jsonl("out", id="shown")
