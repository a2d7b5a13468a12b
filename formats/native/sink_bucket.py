"""The place of a sink of files in a bucket: what lies in it where.

    part-<task, 5 digits>-<epoch, 10 digits>-<attempt id>.jsonl             what readers see
    part-...-<attempt id>-<claim, 10 digits>.jsonl                          the same, shown again by that claim
    superseded/<attempt id>/part-<task>-<epoch>.jsonl                       set aside, as in a folder
    .abs-sink/lock/, .abs-sink/<claim, 10 digits>.json                      as in a folder

What waits for its epoch's manifest is an upload to the first of these names, which the part's facts name by its id, and
nobody sees. A bucket has no rename and no link, and completing an upload may overwrite: so no two attempts, and no two
claims that show a part again, ever use one name, and what is taken away under a name was put there by nobody else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from formats.errors import FormatError
from formats.native.facts import SinkFile
from formats.native.sink import ENDINGS, SUPERSEDED, Claims, PartId
from formats.storage import ObjectStorage, common_name
from formats.storage.places import bucket_of, is_object_store
from formats.storage.uploading import open_uploads

_ENDING = rf"\.(?:{'|'.join(ENDINGS)})"
SHOWN = re.compile(rf"(part-\d{{5}}-\d{{10}})-([0-9a-f]{{32}})(?:-(\d{{10}}))?({_ENDING})", re.ASCII)
ASIDE = re.compile(rf"{SUPERSEDED}/([0-9a-f]{{32}})/(part-\d{{5}}-\d{{10}}{_ENDING})", re.ASCII)


class Shown(NamedTuple):
    """An object that readers see. claim: that has shown it again, 0 for its first name."""

    part: PartId
    claim: int
    object: str
    bytes: int


def object_name(part: PartId, claim: int = 0) -> str:
    """Under which name readers see a part. claim: that shows it again, if one does."""
    again = f"-{claim:010d}" if claim else ""
    stem, dot, ending = part.name.rpartition(".")
    return f"{stem}-{part.attempt_id}{again}{dot}{ending}"


def part_of(object: str) -> tuple[PartId, int] | None:
    """Which part an object is, and which claim has shown it again; None for a name that no part has."""
    match = SHOWN.fullmatch(object)
    return (PartId(match.group(2), match.group(1) + match.group(4)), int(match.group(3) or 0)) if match else None


def is_bucket(path: str) -> bool:
    """Whether a sink's path leads into a bucket."""
    return is_object_store(path)


def place_fault(path: str) -> str | None:
    """Why no sink can write there; None for a directory and for a bucket."""
    if "://" not in path:
        return None
    if not is_bucket(path):
        return "sinks write to directories and to buckets"
    try:
        bucket_of(bucket_place(path))
    except FormatError as error:
        return error.message
    return None


def bucket_place(path: str) -> str:
    """The same place under one name, whatever it is called."""
    name = common_name(path)
    return name if name.endswith("://") else name.rstrip("/")


class SinkBucket(Claims):
    """What is in a sink's place in a bucket. Sizes in bytes."""

    storage: ObjectStorage

    def __init__(self, path: str) -> None:
        super().__init__(ObjectStorage(bucket_place(path)))
        self.uploads = open_uploads(bucket_place(path))

    def shown(self) -> list[Shown]:
        """What readers see. What has no byte is no part: on Azure it stands for an upload that is being given up."""
        parts = ((part_of(entry.name), entry.name, entry.size) for entry in self.storage.list("") if entry.size)
        return [Shown(*part, name, size) for part, name, size in parts if part is not None]

    def superseded(self) -> dict[PartId, int]:
        """The parts that were set aside."""
        matches = ((ASIDE.fullmatch(file.path), file.bytes) for file in self.storage.below(SUPERSEDED))
        return {PartId(match.group(1), match.group(2)): size for match, size in matches if match is not None}

    def place_of(self, part: PartId, file: SinkFile) -> tuple[int | None, bool]:
        """Return the size of a part under its first name, None if it is not shown, and whether its upload waits."""
        name, upload = object_name(part), file.upload
        waits = upload is not None and self.uploads.size(name, upload.id) is not None
        return self.storage.size(name), waits

    def waiting(self) -> dict[PartId, set[str]]:
        """The ids of uploads that are open, by the part that they would become."""
        waiting: dict[PartId, set[str]] = {}
        for upload in self.uploads.below():
            if (part := part_of(upload.path)) is not None:
                waiting.setdefault(part[0], set()).add(upload.id)
        return waiting
