"""Rows that wait until the state of their keys is in memory, themselves in memory or on local disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from abscli.engine.state.keyed_state import Rows
from abscli.engine.state.scratch_file import Place, ScratchFile

TOGETHER = 1 << 16
"""Rows that are one step at most, where they did not come together."""


class WaitingRows:
    """In the order in which they came.

    rows, bytes: of those in memory. set_aside: bytes of those on disk.
    """

    def __init__(self, key: Sequence[str]) -> None:
        self.rows = self.bytes = 0
        self._key = key
        self._recent: list[Rows] = []
        self._older: list[Place] = []
        self._file: ScratchFile | None = None

    def __bool__(self) -> bool:
        return bool(self._recent or self._older)

    @property
    def set_aside(self) -> int:
        """As above."""
        return self._file.bytes if self._file is not None else 0

    def add(self, rows: Rows) -> None:
        """One more batch. It has hashes."""
        self._recent.append(rows)
        self.rows += len(rows.numbers)
        self.bytes += _size(rows)

    def to_disk(self) -> None:
        """None is in memory any more."""
        self._file = self._file or ScratchFile()
        for rows in self._joined(iter(self._recent)):
            assert rows.hashes is not None
            columns = [*rows.batch.columns, pa.array(rows.numbers), pa.array(rows.hashes)]
            # No column is taken for one of the last two: they are looked up by place.
            self._older.append(self._file.append(pa.record_batch(columns, names=[*rows.batch.schema.names, "", ""])))
        self._recent, self.rows, self.bytes = [], 0, 0

    def take(self) -> Iterator[Rows]:
        """All of them, which wait no more."""
        file, older, recent = self._file, self._older, self._recent
        self._file, self._older, self._recent, self.rows, self.bytes = None, [], [], 0, 0

        def everything() -> Iterator[Rows]:
            for place in older:
                assert file is not None
                batch = file.read(place)
                numbers, hashes = (batch.column(batch.num_columns - i).to_numpy() for i in (2, 1))
                yield Rows(batch.select(range(batch.num_columns - 2)), numbers, hashes)
            yield from recent

        return self._joined(everything())

    def _joined(self, parts: Iterator[Rows]) -> Iterator[Rows]:
        """Rows that came one after the other as one, where that makes no difference: it does to sums of floats. Those
        of two inputs may have columns of two types."""
        some: list[Rows] = []
        count = 0
        for rows in parts:
            if some and (
                count + len(rows.numbers) > TOGETHER
                or self._has_floats(rows)
                or not rows.batch.schema.equals(some[0].batch.schema)
            ):
                yield _one(some)
                some, count = [], 0
            some.append(rows)
            count += len(rows.numbers)
        if some:
            yield _one(some)

    def _has_floats(self, rows: Rows) -> bool:
        return any(pa.types.is_floating(field.type) for field in rows.batch.schema if field.name not in self._key)


def _size(rows: Rows) -> int:
    hashes = rows.hashes.nbytes if rows.hashes is not None else 0
    return int(rows.batch.nbytes) + rows.numbers.nbytes + hashes


def _one(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    hashes = [rows.hashes for rows in parts if rows.hashes is not None]
    return Rows(
        pa.concat_batches([rows.batch for rows in parts]),
        np.concatenate([rows.numbers for rows in parts]),
        np.concatenate(hashes) if len(hashes) == len(parts) else None,
    )
