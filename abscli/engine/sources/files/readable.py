"""Rows of a chunk of records, some of which may not be readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.failures import Failures
from formats.ids import TaskId


class Place(NamedTuple):
    """Where a chunk begins. offset: in bytes of its split. records: rows of the split before it."""

    split: str
    offset: int
    records: int


class Parsing:
    """Parse the records of one task; a record that cannot be read is a failure.

    failures: takes such records; None: the first one ends the run.
    hint: what to do about it then.
    """

    def __init__(self, task: TaskId, failures: Failures | None, hint: str) -> None:
        self.failures = failures
        self._task = task
        self._hint = hint

    def parse(
        self,
        place: Place,
        data: bytes,
        ends_of: Callable[[bytes], Sequence[int]],
        parse: Callable[[bytes], pa.Table],
    ) -> list[pa.Table]:
        """Return the rows of the readable records, in order. Raises JobFailed.

        ends_of: finds where records end.
        parse: makes rows of records. Raises ArrowInvalid.
        """
        try:
            return [parse(data)]
        except pa.ArrowInvalid:
            pass
        tables: list[pa.Table] = []

        def fails(at: int, record: bytes, error: pa.ArrowInvalid) -> None:
            if self.failures is not None:
                self.failures.add_text(record, place.split, place.offset + at, error)
                return
            number = place.records + sum(table.num_rows for table in tables) + 1
            text = record.split(b"\n")[0].rstrip(b"\r").decode("utf-8", "replace")
            reason = (str(error).splitlines() or [""])[0]
            raise JobFailed(
                f"task {self._task}: {place.split}, record {number}: {text[:200]!r}: {reason}",
                hint=self._hint,
            )

        for table in readable(data, ends_of(data), parse, fails):
            tables.append(table)
        return tables


def readable(
    data: bytes,
    ends: Sequence[int],
    parse: Callable[[bytes], pa.Table],
    fails: Callable[[int, bytes, pa.ArrowInvalid], None],
) -> Iterator[pa.Table]:
    """Yield the rows of the readable records, in order.

    Failing records are found by halves: a chunk has so many records that to read each alone would take minutes.

    ends: after each record.
    fails: gets the position of a record that cannot be read, the record, and the reason.
    """
    def some(low: int, high: int) -> Iterator[pa.Table]:
        start = ends[low - 1] if low else 0
        records = data[start : ends[high - 1]]
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
