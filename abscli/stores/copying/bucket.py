"""Copies into a bucket: written in their place, with the file that makes them count last.

A bucket renames nothing. So the target must be empty; a claim (`claims`) says whose the copy is while it does not
count; every file is put create-only, or compared with what is there; and the file that makes the copy count is kept
back until all else is there and was checked. A copy that was broken off is gone on with where the same work is asked
for again.

Several files are on their way at once: a request to a bucket takes as long as a thousand to a disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from abscli.stores.copying.claims import Claimed, claimed
from abscli.stores.copying.writer import NewCopy
from abscli.stores.pinned import pieces
from formats.errors import FormatError, NotFound, Unreachable
from formats.storage import Entry, ServedStorage, Storage, check_path, top_folder

AT_ONCE = 8
"""Files that are on their way at once."""
SMALL = 8 << 20
"""Bytes up to which a file is put in one request, and larger ones in parts."""


class Overlay:
    """A storage with some files on top that it does not have yet."""

    def __init__(self, below: Storage, files: dict[str, bytes]) -> None:
        self._below, self._files = below, files

    @property
    def root(self) -> str:
        return self._below.root

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self._files.get(path)
        if data is None:
            return self._below.read(path, offset, length)
        return data[offset:] if length is None else data[offset : offset + length]

    def put(self, path: str, data: bytes | memoryview, *, replace: bool = False) -> None:
        raise PermissionError(f"{self.root} is opened read-only")

    def list(self, path: str) -> list[Entry]:
        lead = f"{path}/" if path else ""
        files = {full.removeprefix(lead): data for full, data in self._files.items() if full.startswith(lead)}
        own = {top_folder(name): None if top_folder(name) != name else len(data) for name, data in files.items()}
        below = [entry for entry in self._below.list(path) if entry.name not in own]
        return sorted([*below, *(Entry(name, size) for name, size in own.items())], key=lambda entry: entry.name)

    def size(self, path: str) -> int | None:
        data = self._files.get(path)
        return self._below.size(path) if data is None else len(data)

    def delete(self, path: str) -> None:
        raise PermissionError(f"{self.root} is opened read-only")


class NewObjects(NewCopy):
    """A copy that is being written into a bucket. counts: the file that makes it count."""

    def __init__(
        self, storage: ServedStorage, own: Claimed, counts: str, progress: Callable[[int], None]
    ) -> None:
        super().__init__(progress)
        self._storage, self._own, self._counts = storage, own, counts
        self._last: dict[str, bytes] = {}
        self._written: list[str] = []
        self._there = {file.path for file in storage.inventory()} if own.continues else set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="copy")
        self._steps: list[Future[object]] = []

    @property
    def reading(self) -> Overlay:
        """What is written so far, the file that makes it count among it."""
        self.settle()
        return Overlay(self._storage, self._last)

    def _later(self, step: Callable[[], object]) -> None:
        if len(self._steps) >= 16 * AT_ONCE:  # what went wrong shows soon, and there is no end of lists
            self.settle()
        self._steps.append(self._pool.submit(step))

    def settle(self) -> None:
        """Until all that was asked for is written; raises what went wrong first."""
        steps, self._steps = self._steps, []
        try:
            for step in steps:
                step.result()
        except BaseException:
            for step in steps:
                step.cancel()
            raise

    def _write(self, name: str, data: Iterable[bytes], size: int | None) -> int:
        check_path(name)
        if name == self._counts:
            written = self._last[name] = b"".join(data)
            self._count(len(written))
            return len(written)
        with self._lock:
            self._written.append(name)
        if name in self._there:
            length = self._same(name, data)
        else:
            head, rest = _begun(data)
            length = self._put(name, head) if rest is None else self._put_parts(name, head, rest, size)
        self._count(length)
        return length

    def _count(self, length: int) -> None:
        with self._lock:
            self.files += 1
            self.bytes += length
            self._progress(length)

    def _put(self, name: str, data: bytes) -> int:
        try:
            self._storage.put(name, data)
        except FileExistsError:  # by somebody who goes on with this copy
            self._same(name, [data])
        return len(data)

    def _put_parts(self, name: str, head: bytes, rest: Iterator[bytes], size: int | None) -> int:
        # Parts cannot be put together create-only on every server. Who writes here writes the same bytes, unless the
        # copy was taken away meanwhile, and there is another one.
        self._check_ours()
        length = 0

        def counted() -> Iterator[bytes]:
            nonlocal length
            for piece in itertools.chain([head], rest):
                length += len(piece)
                yield piece

        self._storage.put_parts(name, counted(), size)
        return length

    def _same(self, name: str, data: Iterable[bytes]) -> int:
        """The bytes of a file that is there, if they are these; FormatError if not."""
        mine, there, length = hashlib.sha256(), hashlib.sha256(), 0
        for piece in data:
            mine.update(piece)
            length += len(piece)
        for piece in pieces(self._storage, name):
            there.update(piece)
        if mine.digest() != there.digest():
            raise FormatError(
                f"contains a file {name} that differs from the one to be copied", path=self._storage.root,
                hint="choose another location, or delete the contents of this location",
            )  # fmt: skip
        return length

    def _check_ours(self) -> None:
        if not self._own.holds:
            message = "another process removed or finished the copy while it was being written"
            raise FormatError(message, path=self._storage.root, hint="check the contents of the copy, or choose "
                "another location")

    def appear(self) -> None:
        """Put the file that makes the copy count; nothing is to be written after it."""
        self.settle()
        for name, data in self._last.items():
            if self._storage.size(name) is None:  # else others have finished the same copy
                self._check_ours()
            self._put(name, data)
        self._own.release()

    def take_away(self) -> None:
        """Remove what was written, unless others may rely on it, the last first."""
        for step in self._steps:
            step.cancel()
        self._pool.shutdown(cancel_futures=True)
        if not self._own.give_up():
            return
        for name in reversed(self._written):
            self._storage.delete(name)
        self._own.gone()

    def close(self) -> None:
        """Nothing is written any more."""
        self._pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def new_objects(
    storage: ServedStorage, work: str, counts: str, progress: Callable[[int], None] = lambda count: None
) -> Iterator[NewObjects]:
    """A copy that counts when the block ends, and of which nothing stays if it raises.

    work: digest of all that decides what is written: a copy of the same that was broken off is gone on with.
    counts: the file that makes it count.
    progress: told the bytes of every file.

    FormatError if something is in the way or the server lets a name be created twice, StoreInUse if somebody is writing
    there.
    """
    with claimed(storage, work, counts) as own:
        copy = NewObjects(storage, own, counts, progress)
        try:
            yield copy
            copy.appear()
        except BaseException:
            # What cannot be taken away is the beginning of a copy, as its claim says.
            with contextlib.suppress(Unreachable, NotFound, PermissionError):
                copy.take_away()
            raise
        finally:
            copy.close()


def _begun(data: Iterable[bytes]) -> tuple[bytes, Iterator[bytes] | None]:
    """The first bytes, and what follows; None where that is all."""
    rest = iter(data)
    head: list[bytes] = []
    size = 0
    for piece in rest:
        head.append(piece)
        size += len(piece)
        if size > SMALL:
            return b"".join(head), rest
    return b"".join(head), None
