"""What a plan says of a Spark checkpoint: the batch that a query goes back to, and what a copy is made of.

The files that the plan relies on are those of the copy: copied as they are, except where `write` names them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import field

from formats.plan import Body, Count, InsidePath, PinnedFile, StorePath, check_once
from formats.storage import check_path


class LateRows(StrEnum):
    """Why rows that come later than the watermark may have other results after a roll-back.

    WITHOUT_INPUT: the next batch had no input and removed state; it is not run again.
    OTHER_BATCHES: batches that run again may be cut differently.
    """

    WITHOUT_INPUT = "without-input"
    OTHER_BATCHES = "other-batches"


class Written(msgspec.Struct, frozen=True):
    """A file that is rewritten.

    text: what it will hold; null: its own bytes, with the places of the copy (or of moved inputs) in them. Then it is
    among the files that the plan relies on.
    """

    path: InsidePath
    reason: str
    text: str | None

    def __post_init__(self) -> None:
        check_path(self.path)


class Left(msgspec.Struct, frozen=True):
    """Files that stay behind for one reason. paths: the first of them."""

    reason: str
    files: Count
    bytes: Count
    paths: tuple[str, ...]


class Newer(msgspec.Struct, frozen=True):
    """A newer batch that the query does not go on from, and why."""

    batch: Count
    reason: str


class Again(msgspec.Struct, frozen=True):
    """A batch that the sink will see again. committed: it was done; otherwise it was in flight."""

    batch: Count
    committed: bool


class Moved(msgspec.Struct, frozen=True):
    """Inputs that lay below one place and lie below another now, as URIs."""

    old: str = field(name="from")
    new: str = field(name="to")


class InputFolder(msgspec.Struct, frozen=True):
    """A folder that a file source has read. exists: whether it is there; null where that cannot be told."""

    source: str
    folder: str
    files: Count
    exists: bool | None


class SetPosition(msgspec.Struct, frozen=True):
    """Where a source goes on in a split, in place of where it was. Further on: what lies between is skipped; further
    back: it is read again.

    unit: what is counted.
    recreated: the topic or table is another one of the same name: nothing of it has been read.
    table: the id of the new Delta table.
    """

    source: str
    split: str
    before: Count = field(name="from")
    after: Count = field(name="to")
    unit: str = "records"
    recreated: bool = False
    table: str | None = None


class SourceName(msgspec.Struct, frozen=True):
    """What a source is called in the copy. source: what it is called in the checkpoint; its number, without a name."""

    source: str
    name: str


class Undone(msgspec.Struct, frozen=True):
    """A repartition of state that a copy is without. before: partitions, as of the copy; after: that it made."""

    batch: Count
    before: Count = field(name="from")
    after: Count = field(name="to")


class PutBack(msgspec.Struct, frozen=True):
    """A file that lies where it does not belong. path: its place in the copy; source: where it lies."""

    path: InsidePath
    source: InsidePath
    reason: str

    def __post_init__(self) -> None:
        check_path(self.path)


class SinkPlan(msgspec.Struct, frozen=True):
    """The log of a file sink, as it was after the batch.

    output: where the sink writes.
    newest: the last batch that its log has.
    files, bytes: of the output up to the batch.
    later_files, later_bytes: of later batches: they lie where they are, and are no longer of the output.
    missing: some files of the output up to the batch that are not there.
    write: entries that are rewritten, by name.
    relies_on: the other entries of the copy, relative to the output.

    Raises ValueError for one that writes an entry twice.
    """

    output: StorePath
    newest: Count
    files: Count
    bytes: Count
    later_files: Count
    later_bytes: Count
    missing: tuple[str, ...]
    write: tuple[Written, ...]
    relies_on: tuple[PinnedFile, ...]

    def __post_init__(self) -> None:
        check_once("sink.write", [file.path for file in self.write])
        check_once("sink.relies_on", [file.path for file in self.relies_on])


class SparkPlan(Body, frozen=True, kw_only=True):
    """How a query gets back to a batch; members in the order of the file.

    batch: the newest that the copy holds.
    newest_started, newest_committed: of the checkpoint when the plan was made.
    next_batch_unchanged: whether the batch after it runs with the offsets that it had.
    replayed: what the sink will see again.
    positions: places that sources are set to, besides the batch's.
    restored_files: files of the copy that lie elsewhere in the checkpoint.
    renamed_sources: of sources that are called otherwise in the copy.
    reverted_repartitions: repartitions of later batches.
    late_rows: why rows later than the watermark may have other results; null if they have not.
    sink: of a file sink, if one was named.

    Raises ValueError for one that writes a file twice.
    """

    query_id: str
    batch: Count
    newest_started: Count
    newest_committed: Count
    skipped: tuple[Newer, ...]
    next_batch_unchanged: bool
    replayed: tuple[Again, ...]
    moved: tuple[Moved, ...]
    inputs: tuple[InputFolder, ...]
    state_bytes: Count
    write: tuple[Written, ...]
    excluded: tuple[Left, ...]
    positions: tuple[SetPosition, ...] = ()
    restored_files: tuple[PutBack, ...] = ()
    sink: SinkPlan | None = None
    renamed_sources: tuple[SourceName, ...] = ()
    reverted_repartitions: tuple[Undone, ...] = ()
    late_rows: LateRows | None = None

    def __post_init__(self) -> None:
        check_once("write", [file.path for file in self.write])
        check_once("put_back", [file.path for file in self.restored_files])

    @property
    def goes_back_to(self) -> int:
        return self.batch
