"""Records of a chunk without those that cannot be read, which are looked for by halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa


def readable(
    data: bytes,
    ends: Sequence[int],
    parse: Callable[[bytes], pa.Table],
    fails: Callable[[int, bytes, pa.ArrowInvalid], None],
) -> Iterator[pa.Table]:
    """What `parse` makes of the others, in their order. A chunk has so many records that to read each alone would take
    minutes.

    ends: behind each record. fails: gets where a record begins that cannot be read, the record, and why.
    """
    def some(low: int, high: int) -> Iterator[pa.Table]:
        start = ends[low - 1] if low else 0
        records = data[start : ends[high - 1]]
        if not records.strip(b" \t\r\n"):
            return
        try:
            table = parse(records)
        except pa.ArrowInvalid as error:
            if high - low == 1:
                fails(start, records, error)
                return
            table = None
        if table is None:
            middle = (low + high) // 2
            yield from some(low, middle)
            yield from some(middle, high)
        else:
            yield table

    if ends:
        yield from some(0, len(ends))
