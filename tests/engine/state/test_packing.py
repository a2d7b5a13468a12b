"""A worker's packs: when they are put, what goes beside them, and how parts are acked with them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from abscli.engine.state.packing import FULL, PACKED, PATIENCE, Loader, Packer
from formats.errors import Unreachable
from formats.ids import TaskId
from formats.native import layout
from formats.native.facts import PartFacts
from formats.native.packs import Loose, read_pack
from formats.storage import MemoryStorage, ObjectStorage, ranges
from formats.storage.ranges import range_of, whole_file
from formats.storage.uploads import PIECE
from tests.support.objects.places import bucket_place
from tests.support.objects.servers import ObjectServer
from tests.support.stores.packed import PackedBuild
from tests.support.stores.small import loop_job

BUILD = PackedBuild(MemoryStorage(), loop_job(2))
TASKS = [TaskId("seen", 0), TaskId("seen", 1)]
OWN = "c" * 16


@pytest.fixture
def bucket(s3: ObjectServer) -> ObjectStorage:
    storage = bucket_place(s3).open()
    assert isinstance(storage, ObjectStorage)
    return storage


class Thread:
    """What the processing thread of a worker is for a packer: it does what it is told later when it comes to that."""

    def __init__(self) -> None:
        self._todo: list[Callable[[], None]] = []
        self._come = threading.Semaphore(0)
        self.acked: list[PartFacts] = []

    def later(self, function: Callable[[], None]) -> None:
        self._todo.append(function)
        self._come.release()

    def turn(self) -> None:
        """The next that comes."""
        assert self._come.acquire(timeout=60)
        self._todo.pop(0)()

    @property
    def idle(self) -> bool:
        return not self._todo


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def packer(bucket: ObjectStorage, thread: Thread, pool: ThreadPoolExecutor) -> Packer:
    return Packer(bucket, BUILD.id, OWN, pool, tasks=lambda: TASKS, later=thread.later)


def packs(bucket: ObjectStorage, epoch: int = 1) -> list[str]:
    return [file.path for file in bucket.below(layout.pack_dir(epoch, BUILD.id)) if file.path.endswith(".pack")]


def test_the_tasks_of_a_worker_are_acked_with_one_pack(bucket: ObjectStorage, thread: Thread, packer: Packer) -> None:
    loose = [BUILD.loose(1, str(task)) for task in TASKS]
    packer.add(loose[0], thread.acked.append, now=0.0)
    assert packs(bucket) == []
    packer.add(loose[1], thread.acked.append, now=0.5)
    thread.turn()
    assert [part.task for part in thread.acked] == TASKS
    (path,) = packs(bucket)
    assert read_pack(bucket, path).parts == tuple(thread.acked)
    for one, part in zip(loose, thread.acked, strict=True):
        before = [one.part.state[-1], *(log.file for log in one.part.logs)]
        after = [part.state[-1], *(log.file for log in part.logs)]
        for old, new in zip(before, after, strict=True):
            assert old is not None
            assert new is not None
            assert ranges.read(bucket, new.path) == one.files[old.path]


def test_nobody_waits_long_for_a_task_that_does_not_come(
    bucket: ObjectStorage, thread: Thread, packer: Packer
) -> None:
    """So who has acked is in the store, whatever becomes of the rest."""
    packer.add(BUILD.loose(1, "seen/0"), thread.acked.append, now=10.0)
    packer.keep_time(10.0 + PATIENCE / 2)
    assert thread.idle
    packer.keep_time(10.0 + PATIENCE)
    thread.turn()
    assert [str(part.task) for part in thread.acked] == ["seen/0"]
    packer.add(BUILD.loose(1, "seen/1"), thread.acked.append, now=20.0)
    thread.turn()
    assert [str(part.task) for part in thread.acked] == ["seen/0", "seen/1"]
    assert len(packs(bucket)) == 2


def test_epochs_do_not_share_a_pack(bucket: ObjectStorage, thread: Thread, packer: Packer) -> None:
    for epoch in (1, 2):
        packer.add(BUILD.loose(epoch, "seen/0"), thread.acked.append, now=0.0)
    packer.forget(1)  # it was given up, and what is there of it is put all the same
    packer.keep_time(PATIENCE)
    thread.turn()
    thread.turn()
    assert sorted(part.epoch for part in thread.acked) == [1, 2]
    assert len(packs(bucket, 1)) == len(packs(bucket, 2)) == 1


def test_what_is_much_is_put_before_all_have_come(bucket: ObjectStorage, thread: Thread, packer: Packer) -> None:
    loose = BUILD.loose(1, "seen/0")
    much = {f"{layout.part_dir(1, 'seen/0', BUILD.id)}/{i}": bytes(PACKED) for i in range(FULL // PACKED)}
    packer.add(Loose(loose.part, {**loose.files, **much}, {}), thread.acked.append, now=0.0)
    thread.turn()
    assert len(packs(bucket)) == 1


def test_a_server_that_is_gone_ends_the_worker_and_acks_nothing(
    bucket: ObjectStorage, thread: Thread, packer: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: str, data: bytes) -> None:
        raise Unreachable("gone", path=path)

    monkeypatch.setattr(bucket, "put", gone)
    for task in TASKS:
        packer.add(BUILD.loose(1, str(task)), thread.acked.append, now=0.0)
    with pytest.raises(Unreachable):
        thread.turn()
    assert thread.acked == []


@pytest.mark.parametrize(
    "sizes",
    [
        (0,), (PACKED,), (1,) * 40,
        (PACKED + 1,), (PACKED, 1), (PIECE,),
        (PIECE + 1,), (PACKED, PIECE, 3), (2 * PIECE + 5,),
    ],
)  # fmt: skip
def test_a_file_has_the_same_bytes_wherever_it_lies(bucket: ObjectStorage, sizes: tuple[int, ...]) -> None:
    """As a whole or in pieces: in a pack, beside it in one request, or beside it in parts."""
    pieces = [secrets.token_bytes(size) for size in sizes]
    loader = Loader(bucket, OWN)
    path = layout.state(1, "seen/0", BUILD.id)
    loader.put_pieces(path, pieces)
    whole = b"".join(pieces)
    if len(whole) <= PACKED:
        assert loader.files == {path: whole}
        assert not bucket.below("")
        return
    place = layout.large(path, OWN)
    assert loader.files == {}
    assert loader.elsewhere == {path: place}
    assert bucket.read(place) == whole
    assert layout.pack_of(place) is not None


def test_a_file_that_is_too_large_lies_beside_the_pack(bucket: ObjectStorage, thread: Thread, packer: Packer) -> None:
    for task in TASKS:
        loose = BUILD.loose(1, str(task))
        loader = packer.loader()
        for path, data in loose.files.items():
            loader.put(path, data + bytes(PACKED) if path.endswith("state.parquet") else data)
        packer.add(loader.loose(loose.part), thread.acked.append, now=0.0)
    thread.turn()
    for part in thread.acked:
        assert range_of(part.state[-1].path) is None
        assert part.state[-1].path.startswith(layout.pack_dir(1, BUILD.id))
        assert bucket.size(part.state[-1].path) is not None
        assert {whole_file(log.file.path) for log in part.logs if log.file} == set(packs(bucket))
