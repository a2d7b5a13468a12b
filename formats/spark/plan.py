"""What a plan says of a Spark checkpoint: the batch that a query goes back to, and what a copy is made of.

The files that the plan relies on are those of the copy: copied as they are, except where `write` names them.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from formats.plan import Body, Count, InsidePath, check_once
from formats.storage import check_path


class Written(msgspec.Struct, frozen=True):
    """A file that is written anew.

    text: what it will hold; null: its own bytes, with the places of the copy (or of moved inputs) in them. Then it is
    among the files that the plan relies on.
    """

    path: InsidePath
    why: str
    text: str | None

    def __post_init__(self) -> None:
        check_path(self.path)


class Left(msgspec.Struct, frozen=True):
    """Files that stay behind for one reason. paths: the first of them."""

    why: str
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
    """A folder that a file source has read. here: whether it is there; null where that cannot be told."""

    source: str
    folder: str
    files: Count
    here: bool | None


class SparkPlan(Body, frozen=True, kw_only=True):
    """How a query gets back to a batch; members in the order of the file.

    batch: the newest that the copy holds.
    newest_begun, newest_committed: of the checkpoint when the plan was made.
    next_as_before: whether the batch after it runs with the offsets that it had.
    again: what the sink will see again.

    Raises ValueError for one that writes a file twice.
    """

    query_id: str
    batch: Count
    newest_begun: Count
    newest_committed: Count
    skipped: tuple[Newer, ...]
    next_as_before: bool
    again: tuple[Again, ...]
    moved: tuple[Moved, ...]
    inputs: tuple[InputFolder, ...]
    state_bytes: Count
    write: tuple[Written, ...]
    left: tuple[Left, ...]

    def __post_init__(self) -> None:
        check_once("write", [file.path for file in self.write])

    @property
    def goes_back_to(self) -> int:
        return self.batch
