"""Rows on the driver's stdout, as JSON lines: a pipe gives nothing back, and does not say what it has.

So the store keeps a mark, which is written after the rows: an epoch of which a crash has let the rows out and not the
mark is printed again, with the same ids.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Collection, Iterator
from typing import IO

import pyarrow as pa

from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.staged.contract import Delivery, StagedInStore, StagedPart, Unmet
from formats.ids import EpochId
from formats.job.model import Operator

LINES = 4096
"""That are written at once."""


def _to_stdout(data: bytes) -> None:
    sys.stdout.write(data.decode())
    sys.stdout.flush()


_write: Callable[[bytes], None] = _to_stdout


def print_with(write: Callable[[bytes], None]) -> None:
    """From now on rows go through `write`, which raises OSError where they cannot: the command line keeps stdout for
    results."""
    global _write
    _write = write


class Printed(StagedInStore):
    """Stdout as a `Target`.

    operator: with `row_id`, the name of a column that each row gets: attempt, epoch, task and its number there, the
    same whenever it is printed.
    """

    title = "stdout"
    remembers = False

    def __init__(self, operator: Operator) -> None:
        self.operator = operator.id
        self._id: str | None = (operator.connector or {}).get("row_id")

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock nothing: each driver has a stdout of its own."""
        yield

    def unmet(self, columns: pa.Schema | None) -> list[Unmet]:
        """Return nothing: stdout takes every row."""
        return []

    def try_rows(self, rows: IO[bytes]) -> None:
        """Raise JobFailed for rows that the target refuses; see `Target.try_rows`."""

    def markers(self) -> list[EpochId]:
        """Return the epochs of the commit markers; see `Target.markers`."""
        return []

    def has(self, epoch: EpochId) -> bool:
        """Tell whether rows up to an epoch are committed; see `Target.has`."""
        return False

    def identity(self) -> str | None:
        """Return what tells the target apart from another one of its name."""
        return None

    def undone(self, identity: str | None) -> str | None:
        """Return how the target lost commits; see `Target.undone`."""
        return None

    def take(self, attempt_id: str, left: Collection[EpochId], oldest: int) -> None:
        """Make the target this attempt's; see `Target.take`."""

    def publish(self, delivery: Delivery) -> None:
        """Write a delivery; see `Target.publish`."""
        for part in delivery.parts:
            with delivery.open(part) as file:
                for lines in self._lines(part, file):
                    self._put(lines, delivery.epoch.number)

    def _put(self, lines: list[bytes], epoch: int) -> None:
        try:
            _write(b"".join(lines))
        except OSError as error:
            raise EngineStopped(
                f"sink {self.operator}: rows of epoch {epoch} cannot be written to stdout: {error.strerror or error}",
                hint="resume the job to print the rows of this epoch again; the store still contains them",
            ) from None

    def _lines(self, part: StagedPart, file: IO[bytes]) -> Iterator[list[bytes]]:
        lines: list[bytes] = []
        for number, line in enumerate(file):
            lines.append(line if self._id is None else self._with_id(part, number, line))
            if len(lines) == LINES:
                yield lines
                lines = []
        if lines:
            yield lines

    def _with_id(self, part: StagedPart, number: int, line: bytes) -> bytes:
        id = f"{part.id.attempt_id}-{part.id.epoch}-{part.id.task}-{number}"
        rest = line[1:]
        return f"{{{json.dumps(self._id)}:{json.dumps(id)}".encode() + (b"" if rest.startswith(b"}") else b",") + rest
