"""The plan file of going back in a Spark checkpoint: what a copy is made of, and everything that it relies on.

Written and sealed as the other plans are (`formats.plan`). The JSON Schema is `schemas/abs.spark-plan.json`.
"""

from __future__ import annotations

import msgspec
from msgspec import field

from formats.plan import Count, Sha256, Time, decode_as
from formats.storage import check_path

SCHEMA = "abs.spark-plan"
VERSION = "1.0"


class Kept(msgspec.Struct, frozen=True):
    """A file that is copied as it is. path: relative to the checkpoint; UnsafePath if it leads out of it."""

    path: str
    bytes: Count
    sha256: Sha256

    def __post_init__(self) -> None:
        check_path(self.path)


class Written(msgspec.Struct, frozen=True):
    """A file that is written anew. text: what it will hold; null: its own bytes, with the places of the copy (or of
    moved inputs) in them, and then sha256 is the digest of those bytes."""

    path: str
    why: str
    text: str | None
    sha256: Sha256 | None

    def __post_init__(self) -> None:
        check_path(self.path)
        if (self.text is None) == (self.sha256 is None):
            raise ValueError(f"{self.path} must have either `text` or `sha256`")


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


class SparkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a query gets back to a batch; members in the order of the file.

    batch: the newest that the copy holds; newest_begun, newest_committed: of the checkpoint when the plan was made;
    next_as_before: whether the batch after it runs with the offsets that it had; again: what the sink will see again.
    """

    schema: str = SCHEMA
    version: str = VERSION
    store: str
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
    keep: tuple[Kept, ...]
    write: tuple[Written, ...]
    left: tuple[Left, ...]
    created: Time


def decode(data: bytes, name: str) -> SparkPlan:
    """The plan in the bytes of the file called `name`; BadPlan, UnsupportedVersion, UnsafePath."""
    return decode_as(SparkPlan, SCHEMA, data, name)
