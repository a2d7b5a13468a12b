"""Files that come, and lines that are appended, while a job runs: looked for again and again, without an end.

Which task has a file follows from its name alone, and from what the epoch that tasks are restored from says of it: so
they need not ask each other, also after one was lost, or when there are more of them than before. What is not in an
epoch is found again by looking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from abscli.engine.errors import JobFailed
from abscli.engine.sources.files.fingerprints import Fingerprint, is_same
from abscli.engine.sources.files.input_files import Status, path_of
from abscli.engine.sources.splits import FromSplits, Splits
from formats.ids import TaskId
from formats.job.following import split_number
from formats.view import Position

WAIT_SECONDS = 0.002
"""For which a source that has nothing to read leaves the processor to others."""

_STAYS = "a followed file must be kept and only appended to: restore it; or roll back with --from-epoch"


class Followed(NamedTuple):
    """What a source task follows.

    look: the files that match now, by name.
    tasks: of the source.
    others: splits that the epoch it is restored from has, of whichever task.
    grow: whether a file may grow, as files of lines may; else it is whole when it is there.
    every: seconds from one look to the next.
    """

    task: TaskId
    tasks: int
    directory: str
    look: Callable[[], Mapping[str, Status]]
    others: Collection[str]
    grow: bool
    every: float


class FollowedSplits(Splits):
    """Splits to which others come. One that has been read as far as it was written is waited for."""

    def __init__(
        self, followed: Followed, positions: Iterable[Position] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__((), positions)
        self.waits_for_lines = followed.grow
        self._followed = followed
        self._clock = clock
        self._stands: dict[str, Status] = {}
        self._waiting: dict[str, None] = {}
        self._next_look = clock()
        self.chosen: str | None = None

    @property
    def finished(self) -> bool:
        """It never is."""
        return False

    @property
    def waiting(self) -> Collection[str]:
        """Splits that may grow, and have no more now."""
        return self._waiting.keys() if self._followed.grow else ()

    @property
    def unread(self) -> Collection[str]:
        return [*self._todo, *self.waiting]

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`. A split among the offsets is there, also where it has not been looked for."""
        super().stop_at(offsets, lines=lines)
        for split in offsets or ():
            self._add(split)
        if offsets is not None:
            self._wake(offsets)

    def next(self) -> str | None:
        """See `Splits`; of several that can be read the one that is chosen."""
        if self.chosen is None or self.rows == 0:
            return super().next()
        return self.chosen if self.chosen in self._todo else None

    def end(self, split: str) -> None:
        """Note that there is no more of it now."""
        super().end(split)
        self._waiting[split] = None

    def look(self) -> None:
        """Look which files there are, if it is time to; JobFailed where one is not what it was."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + self._followed.every
        self._see(self._followed.look())

    def choose(self, number: int) -> str | None:
        """Read from the split of this number next, which may only now be found; None where there is none."""
        names = [name for name in self._positions if split_number(name) == number]
        if not names:
            files = self._followed.look()
            names = [name for name in files if split_number(name) == number and self._is_mine(name)]
        for name in names[:1]:
            self._add(name)
            self._wake([name])
            return name
        return None

    def _see(self, files: Mapping[str, Status]) -> None:
        for name, status in files.items():
            if name in self._positions:
                self._compare(name, status)
            elif self._is_mine(name):
                self._add(name)
            if name in self._positions:
                self._stands[name] = status
        for name in self._positions:
            if name not in files:
                raise self._changed(name, "is gone")

    def _compare(self, name: str, status: Status) -> None:
        before = self._stands.get(name)
        if before == status:
            return
        offset = self.offset(name)
        if self._followed.grow:
            if status.size < offset:
                raise self._changed(name, f"has {status.size:,} bytes, and {offset:,} were read of it: it has shrunk")
            self._wake([name])  # whoever opens it sees whether it is the same
        elif before is not None and name in self._waiting:
            fingerprint = Fingerprint.parse(self.fingerprint(name) or "")
            path = path_of(self._followed.directory, name)
            if fingerprint is not None and not is_same(path, fingerprint, offset):
                raise self._changed(name, "was replaced since it was read: its checksum has changed")

    def _wake(self, splits: Iterable[str]) -> None:
        for split in splits:
            if split in self._waiting:
                del self._waiting[split]
                self._todo.append(split)

    def _add(self, split: str) -> None:
        if split not in self._positions:
            self._positions[split] = Position(split, 0, 0)
            self._todo.append(split)

    def _is_mine(self, split: str) -> bool:
        followed = self._followed
        return split not in followed.others and split_number(split) % followed.tasks == followed.task.subtask

    def _changed(self, split: str, how: str) -> JobFailed:
        path = path_of(self._followed.directory, split)
        return JobFailed(f"task {self._followed.task}: {path} {how}", hint=_STAYS)


class FollowingSource:
    """Another source of files, which does not end. A batch is of one split, which the task's steps name."""

    def __init__(self, source: FromSplits, splits: FollowedSplits, schema: pa.Schema) -> None:
        self._source = source
        self._splits = splits
        self._nothing = pa.RecordBatch.from_pylist([], schema)
        self.split = 0

    @property
    def finished(self) -> bool:
        return False

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._splits.positions

    def cut(self) -> tuple[Position, ...]:
        """See `Source`."""
        return self._splits.positions

    @property
    def unread(self) -> Collection[str]:
        return self._splits.unread

    @property
    def waiting(self) -> Collection[str]:
        return self._splits.waiting

    @property
    def connector(self) -> dict[str, str] | None:
        return self._source.connector

    @property
    def watermark(self) -> int | None:
        return None

    @property
    def held_up(self) -> tuple[float, str] | None:
        return self._source.held_up

    def close(self) -> None:
        """See `Source`."""
        self._source.close()

    def stop_at(self, offsets: Mapping[str, int] | None = None, *, lines: int | None = None) -> None:
        """See `Source`."""
        self._splits.stop_at(offsets, lines=lines)

    def read(self) -> pa.RecordBatch | None:
        """See `Source`; no rows where none have come."""
        splits = self._splits
        if splits.ends is not None:
            return self._source.read()
        splits.look()
        while (name := splits.next()) is not None:
            rows = self._read_of(name)
            if rows is not None and rows.num_rows:
                self.split = split_number(name)
                return rows
        if splits.rows != 0:
            time.sleep(WAIT_SECONDS)
        return self._nothing

    def read_again(self, split: int, rows: int) -> pa.RecordBatch | None:
        """See `Source`."""
        splits, batches = self._splits, list[pa.RecordBatch]()
        self.split = split
        if not rows:
            return self._nothing
        name, limit = splits.choose(split), splits.rows
        while name is not None and rows:
            splits.rows = rows
            batch = self._read_of(name)
            if batch is None:
                break
            batches.append(batch)
            rows -= batch.num_rows
        splits.rows = limit
        if not batches:
            return self._nothing
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _read_of(self, name: str) -> pa.RecordBatch | None:
        self._splits.chosen = name
        try:
            return self._source.read()
        finally:
            self._splits.chosen = None
