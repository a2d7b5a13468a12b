"""Packs: what the tasks of one worker write for an epoch, as one file, where each file costs a request.

A pack is a line of facts, sealed as all facts are, with the parts of these tasks, and behind it the files that the
parts name as ranges of the pack, one after the other to its end. Whoever has the line knows what every byte is to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from formats.errors import Damaged
from formats.native import layout
from formats.native.facts import (
    LogFacts,
    PackFacts,
    PartFacts,
    StateFileFacts,
    files_of,
    header,
    seal,
    unseal,
)
from formats.native.names import check_facts
from formats.storage import Storage
from formats.storage.ranges import Range, range_of
from formats.view import FileFacts

HEAD = 1 << 16
"""Bytes that are read of a pack for its first line, at first; twice as many where that is longer."""
MOST = 256 << 20
"""Bytes beyond which nothing is a line of facts."""


class Loose(NamedTuple):
    """A part before it is packed.

    part: it names its files by the paths that they would have alone.
    files: their bytes by these paths, of all that go into the pack.
    elsewhere: where those lie that are too large for one, by these paths.
    """

    part: PartFacts
    files: Mapping[str, bytes]
    elsewhere: Mapping[str, str]


class Pack(NamedTuple):
    """What the first line of a pack says.

    files: that lie behind it, in their order.
    bytes: of all of the pack.
    """

    parts: tuple[PartFacts, ...]
    files: tuple[FileFacts, ...]
    bytes: int


def encode_pack(path: str, loose: Sequence[Loose]) -> tuple[bytes, tuple[PartFacts, ...]]:
    """The bytes of a pack at `path`, and the parts as they name its ranges."""
    # Where files begin depends on how long the line is, but not the other way round: offsets have a fixed width.
    size = len(_line(path, loose, 0)[0])
    line, parts = _line(path, loose, size)
    assert len(line) == size
    return b"".join([line, *(data for one in loose for data in one.files.values())]), parts


def _line(path: str, loose: Sequence[Loose], start: int) -> tuple[bytes, tuple[PartFacts, ...]]:
    """start: where the first file begins."""
    parts = []
    for one in loose:
        places = dict(one.elsewhere)
        for name, data in one.files.items():
            places[name] = Range(path, start, len(data), layout.name_in_pack(name)).path
            start += len(data)
        parts.append(_moved(one.part, places))
    first = parts[0]
    facts = PackFacts(
        epoch=first.epoch,
        attempt=first.attempt,
        attempt_id=first.attempt_id,
        parts=tuple(parts),
        **header(PackFacts),
    )
    return seal(facts), facts.parts


def _moved(part: PartFacts, places: Mapping[str, str]) -> PartFacts:
    def there(file: StateFileFacts) -> StateFileFacts:
        return msgspec.structs.replace(file, path=places.get(file.path, file.path))

    def log(facts: LogFacts) -> LogFacts:
        if facts.file is None:
            return facts
        file = msgspec.structs.replace(facts.file, path=places.get(facts.file.path, facts.file.path))
        return msgspec.structs.replace(facts, file=file)

    return msgspec.structs.replace(part, state=tuple(map(there, part.state)), logs=tuple(map(log, part.logs)))


def read_pack(storage: Storage, path: str) -> Pack:
    """The first line of a pack; NotFound, Damaged if it is not what was written, or leaves bytes to no file."""
    where = f"{storage.root}/{path}"
    head, length = storage.read(path, 0, HEAD), HEAD
    while b"\n" not in head and len(head) == length < MOST:
        length *= 2
        head = storage.read(path, 0, length)
    line = head[: head.find(b"\n") + 1]
    if not line:
        raise Damaged("is not a pack: it does not begin with a line of facts", path=where)
    facts = unseal(line, PackFacts, where)
    check_facts(facts, where)
    place = layout.pack_of(path)
    if place is None or place.home != layout.home(facts.epoch, facts.attempt_id):
        raise Damaged(f"is a pack of attempt {facts.attempt_id[:12]}… for epoch {facts.epoch}", path=where)
    own = []
    for file in {file.path: file for part in facts.parts for file in files_of(part)}.values():
        named = range_of(file.path)
        if named is not None and named.file == path:
            own.append((named, file))
    own.sort(key=lambda pair: pair[0].offset)
    end = len(line)
    for named, _ in own:
        if named.offset != end:
            raise Damaged(f"says that {named.name} begins at byte {named.offset}, not at {end}", path=where)
        end += named.length
    return Pack(facts.parts, tuple(file for _, file in own), end)
