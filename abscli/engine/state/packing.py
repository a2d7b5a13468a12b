"""A worker's parts of an epoch as one file, where each file costs a request: `formats.native.packs`.

The processing thread gathers parts as its tasks have them; the pack is put in the background, and then all of them are
acked at once. A part waits for those of the other tasks here, since the epoch does; not for long, so that what has been
acked is in the store also when the rest never comes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import PartFacts
from formats.native.packs import Loose, encode_pack
from formats.storage import ObjectStorage
from formats.storage.uploads import PIECE

PACKED = 1 << 20
"""Bytes of a file that is too large for a pack: it is sent as soon as it is there, beside the others."""
FULL = 8 << 20
"""Bytes of files for which a pack is put before all tasks have come."""
PATIENCE = 3.0
"""Seconds that a part waits for those of other tasks."""


class Loader:
    """Takes the files of one part: small ones are kept for the pack, a large one goes to the store at once."""

    def __init__(self, storage: ObjectStorage, incarnation: str) -> None:
        self.files: dict[str, bytes] = {}
        self.elsewhere: dict[str, str] = {}
        self._storage = storage
        self._incarnation = incarnation

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        self.put_pieces(path, (data,))

    def put_pieces(self, path: str, pieces: Iterable[bytes | memoryview]) -> None:
        """A file of these pieces; of one that is too large for a pack they are sent as they come."""
        rest = iter(pieces)
        head = _up_to(PACKED, rest)
        if len(head) <= PACKED:
            self.files[path] = head
            return
        place = self.elsewhere[path] = layout.large(path, self._incarnation)
        head += _up_to(PIECE - len(head), rest)
        if len(head) <= PIECE:
            self._storage.put(place, head)
        else:
            self._storage.put_parts(place, _cut(itertools.chain((head,), rest)))

    def loose(self, part: PartFacts) -> Loose:
        """The part whose files these are, to be packed."""
        return Loose(part, self.files, self.elsewhere)


def _up_to(size: int, pieces: Iterator[bytes | memoryview]) -> bytes:
    """The first pieces, until they are more than `size` bytes."""
    head, length = list[bytes | memoryview](), 0
    while length <= size and (piece := next(pieces, None)) is not None:
        head.append(piece)
        length += len(piece)
    return b"".join(head)


def _cut(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes, in pieces none of which is larger than a part of an upload."""
    for piece in pieces:
        view = memoryview(piece).cast("B")
        for start in range(0, len(view), PIECE):
            yield bytes(view[start : start + PIECE])


@dataclass(slots=True)
class _Gathered:
    """Parts of an epoch that wait. since: when the first of them came. came: all tasks that have, packed or not."""

    waiting: list[tuple[Loose, Callable[[PartFacts], None]]] = field(default_factory=list)
    since: float = 0.0
    bytes: int = 0
    came: set[TaskId] = field(default_factory=set)


class Packer:
    """Puts the packs of one process; all but `_put` is of the processing thread.

    attempt_id: of the attempt, in the names of packs. incarnation: of the process, so that no name is another's.
    tasks: those that are here now.
    later(function): runs it on the processing thread.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        attempt_id: str,
        incarnation: str,
        pool: ThreadPoolExecutor,
        *,
        tasks: Callable[[], Collection[TaskId]],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._storage = storage
        self._attempt_id = attempt_id
        self._incarnation = incarnation
        self._pool = pool
        self._tasks = tasks
        self._later = later
        self._numbers = itertools.count(1)
        self._epochs: dict[int, _Gathered] = {}

    def loader(self) -> Loader:
        """For the files of one part."""
        return Loader(self._storage, self._incarnation)

    def add(self, loose: Loose, packed: Callable[[PartFacts], None], now: float) -> None:
        """A part is there. packed: called with it when it is durable, as it names its files then. now: monotonic."""
        epoch = loose.part.epoch
        gathered = self._epochs.setdefault(epoch, _Gathered())
        if not gathered.waiting:
            gathered.since = now
        gathered.waiting.append((loose, packed))
        gathered.bytes += sum(map(len, loose.files.values()))
        gathered.came.add(loose.part.task)
        if gathered.bytes >= FULL or gathered.came.issuperset(self._tasks()):
            self._pack(epoch, gathered)

    def keep_time(self, now: float) -> None:
        """Put what has waited long enough."""
        for epoch, gathered in self._epochs.items():
            if gathered.waiting and now - gathered.since >= PATIENCE:
                self._pack(epoch, gathered)

    def forget(self, epoch: int) -> None:
        """It is decided what becomes of an epoch, and of those below."""
        self._epochs = {n: gathered for n, gathered in self._epochs.items() if n > epoch or gathered.waiting}

    def _pack(self, epoch: int, gathered: _Gathered) -> None:
        waiting, gathered.waiting, gathered.bytes = gathered.waiting, [], 0
        path = layout.pack(epoch, self._attempt_id, self._incarnation, next(self._numbers))
        put = self._pool.submit(self._put, path, [loose for loose, _ in waiting])
        acks = [packed for _, packed in waiting]
        put.add_done_callback(lambda done: self._later(lambda: _tell(done, acks)))

    def _put(self, path: str, loose: list[Loose]) -> tuple[PartFacts, ...]:
        data, parts = encode_pack(path, loose)
        self._storage.put(path, data)
        return parts


def _tell(done: Future[tuple[PartFacts, ...]], acks: list[Callable[[PartFacts], None]]) -> None:
    for part, packed in zip(done.result(), acks, strict=True):
        packed(part)
