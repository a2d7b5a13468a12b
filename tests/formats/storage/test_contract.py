"""The contract of `formats/storage/contract.py`, held by every place: what is put, listed and deleted, by whomever."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from formats.errors import NotFound, UnsafePath
from formats.storage import UNFINISHED, HdfsStorage, WritableStorage, open_input, put_pieces, walk
from formats.storage.pieces import WHOLE
from tests.support.imports import ROOT
from tests.support.objects.places import Place

pytestmark = pytest.mark.minutes

HOSTILE = [
    "a b", "%41", "%2F..", "é", "e\u0301", "日本", "a+b", "a&b=c", "a#b", "a?b", "a:b", "a*", "~", "...", "..a", "a..",
    "'\"<>|", "-rf", "x" * 200, "COM1", ".hidden",
]  # fmt: skip


@pytest.fixture
def storage(place: Place) -> WritableStorage:
    return place.open()


def test_what_is_put_is_read_whole_and_in_slices(storage: WritableStorage) -> None:
    storage.put("a/b/c", b"0123456789")
    assert storage.read("a/b/c") == b"0123456789"
    assert storage.read("a/b/c", 3, 4) == b"3456"
    assert storage.read("a/b/c", 3) == b"3456789"
    assert storage.read("a/b/c", 8, 10) == b"89"
    assert storage.read("a/b/c", 20, 10) == storage.read("a/b/c", 20) == storage.read("a/b/c", 10) == b""
    assert storage.read("a/b/c", 0, 0) == storage.read("a/b/c", 4, 0) == b""
    assert storage.size("a/b/c") == 10


def test_a_file_without_bytes_is_a_file(storage: WritableStorage) -> None:
    storage.put("a/empty", b"")
    assert storage.read("a/empty") == storage.read("a/empty", 0, 5) == storage.read("a/empty", 0, 0) == b""
    assert storage.size("a/empty") == 0
    assert storage.list("a") == [("empty", 0)]


def test_whatever_has_bytes_can_be_put(storage: WritableStorage) -> None:
    import pyarrow as pa

    storage.put("view", memoryview(b"0123456789")[2:5])
    storage.put("words", memoryview(b"01234567").cast("I"))
    storage.put("buffer", pa.py_buffer(b"01"))
    assert [storage.read(name) for name in ("view", "words", "buffer")] == [b"234", b"01234567", b"01"]


def test_large_files_are_put_whole(storage: WritableStorage) -> None:
    data = random.Random(1).randbytes(20 << 20)
    storage.put("large", data)
    assert storage.size("large") == len(data)
    assert storage.read("large") == data
    assert storage.read("large", 9 << 20, 1000) == data[9 << 20 : (9 << 20) + 1000]
    with pytest.raises(FileExistsError):
        storage.put("large", data)


def test_a_file_of_pieces_is_there_whole_or_not_at_all(storage: WritableStorage) -> None:
    data = random.Random(2).randbytes(WHOLE + (5 << 20))
    pieces = [data[at : at + 3_000_000] for at in range(0, len(data), 3_000_000)]
    seen: list[object] = []

    def watched() -> Iterator[bytes]:
        for piece in pieces:
            # A bucket's client takes the pieces in a thread of its own, where it can be asked nothing.
            seen.append(asking.submit(lambda: (storage.size("a/large"), storage.list("a"))).result())
            yield piece

    with ThreadPoolExecutor(1) as asking:
        put_pieces(storage, "a/large", watched())
    assert set(map(str, seen)) == {str((None, []))}
    assert storage.read("a/large") == data
    with pytest.raises(FileExistsError):
        put_pieces(storage, "a/large", iter(pieces))
    put_pieces(storage, "a/small", iter(pieces[:1]))
    with pytest.raises(FileExistsError):
        put_pieces(storage, "a/small", iter(pieces[:1]))
    put_pieces(storage, "a/empty", iter([]))
    assert [storage.size(f"a/{name}") for name in ("large", "small", "empty")] == [len(data), 3_000_000, 0]


def test_pieces_that_fail_leave_nothing(storage: WritableStorage) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * (WHOLE + 1)
        yield b"x"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        put_pieces(storage, "a/large", broken())
    assert storage.size("a/large") is None
    assert [file for file in storage.inventory() if file.path.startswith("a/")] == []


@pytest.mark.parametrize("second", [b"new", b"old"])
def test_put_never_overwrites_unless_asked(storage: WritableStorage, second: bytes) -> None:
    """The same bytes by another call are another file: of two that claim a number one has to learn that it has not."""
    storage.put("a", b"old")
    with pytest.raises(FileExistsError):
        storage.put("a", second)
    assert storage.read("a") == b"old"
    storage.put("a", second, replace=True)
    assert storage.read("a") == second
    with pytest.raises(FileExistsError):
        storage.put("a", b"third")


def test_a_file_that_is_deleted_can_be_put_again(storage: WritableStorage) -> None:
    storage.put("a/b", b"1")
    storage.delete("a/b")
    storage.put("a/b", b"2")
    assert storage.read("a/b") == b"2"


def test_what_is_put_or_deleted_is_seen_at_once_by_others(place: Place) -> None:
    """Reading and listing go together with the put before: what an attempt restores from must be complete."""
    writer, reader = place.open(), place.open()
    for number in range(20):
        writer.put(f"a/{number:03d}", b"1")
        assert [entry.name for entry in reader.list("a")] == [f"{n:03d}" for n in range(number + 1)]
        assert reader.read(f"a/{number:03d}") == b"1"
    for number in range(20):
        writer.delete(f"a/{number:03d}")
        assert len(reader.list("a")) == 19 - number


def test_a_file_that_is_not_there_is_not_found(storage: WritableStorage) -> None:
    for path in ("a/b", "none"):
        with pytest.raises(NotFound):
            storage.read(path)
        with pytest.raises(NotFound):
            storage.read(path, 3, 5)
        with pytest.raises(NotFound):
            storage.read(path, 0, 0)
        assert storage.size(path) is None
    assert storage.list("a") == storage.list("") == []
    assert walk(storage) == list(storage.inventory()) == []
    storage.delete("a/b")


def test_a_folder_is_no_file(storage: WritableStorage) -> None:
    storage.put("a/b/c", b"1")
    assert storage.size("a") is None
    assert storage.size("a/b") is None


def test_names_are_listed_sorted_with_sizes_and_directories_without(storage: WritableStorage) -> None:
    for name in ("b", "a/y", "a/x", "c", "ab/z"):
        storage.put(name, b"12")
    assert storage.list("") == [("a", None), ("ab", None), ("b", 2), ("c", 2)]
    assert storage.list("a") == [("x", 2), ("y", 2)]
    assert [name for name, _ in walk(storage)] == ["a/x", "a/y", "ab/z", "b", "c"]
    assert storage.list("b") == []


@pytest.mark.sample(3)
def test_a_long_list_is_listed_whole(storage: WritableStorage) -> None:
    """A server gives a thousand names at a time."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: storage.put(f"many/{number:05d}/f", b"1"), range(1050)))
    assert storage.list("many") == [(f"{number:05d}", None) for number in range(1050)]
    assert len(storage.inventory()) == 1050


def test_names_of_unfinished_writes_are_not_listed_and_are_in_the_inventory(storage: WritableStorage) -> None:
    storage.put("a/b", b"1")
    storage.put(f"a/{UNFINISHED}x", b"12")
    storage.put(f"{UNFINISHED}folder/y", b"123")
    assert storage.list("") == [("a", None)]
    assert storage.list("a") == [("b", 1)]
    assert [(file.path, file.bytes) for file in storage.inventory()] == [
        (f"{UNFINISHED}folder/y", 3), (f"a/{UNFINISHED}x", 2), ("a/b", 1),
    ]  # fmt: skip


def test_the_inventory_says_when_a_file_was_written(storage: WritableStorage) -> None:
    storage.put("a", b"1")
    (file,) = storage.inventory()
    assert abs(file.written - time.time()) < 600


def test_deleting_the_last_file_removes_its_directories(storage: WritableStorage) -> None:
    for name in ("a/b/c", "a/b/d", "d"):
        storage.put(name, b"1")
    storage.delete("a/b/c")
    assert storage.list("") == [("a", None), ("d", 1)]
    storage.delete("a/b/d")
    assert storage.list("") == [("d", 1)]


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a/./b", "a//b", "a/", "a\\b", "a\0b", ".."])
def test_a_path_that_could_lead_out_is_refused(storage: WritableStorage, path: str) -> None:
    for use in (storage.read, storage.size, storage.delete, lambda p: storage.put(p, b"")):
        with pytest.raises(UnsafePath):
            use(path)
    if path:
        with pytest.raises(UnsafePath):
            storage.list(path)


def test_whatever_a_file_is_called_it_is_found_under_its_name(storage: WritableStorage) -> None:
    names = [name for name in HOSTILE if not _is_impossible(storage, name)]
    for number, name in enumerate(names):
        storage.put(f"h/{name}/{name}", bytes([number]))
    for number, name in enumerate(names):
        assert storage.read(f"h/{name}/{name}") == bytes([number])
        assert storage.list(f"h/{name}") == [(name, 1)]
    assert [entry.name for entry in storage.list("h")] == sorted(names)
    storage.put("/".join("d" * 40), b"deep")
    assert storage.read("/".join("d" * 40)) == b"deep"


def _is_impossible(storage: WritableStorage, name: str) -> bool:
    """HDFS has no colons, and says so before anything is written."""
    if not isinstance(storage, HdfsStorage) or ":" not in name:
        return False
    with pytest.raises(UnsafePath, match="cannot be the name of a file on HDFS"):
        storage.put(name, b"")
    return True


def test_a_file_and_a_folder_get_another_name_and_take_nobodys(storage: WritableStorage) -> None:
    for name in ("a", "f/x", "f/g/y", "fg"):
        storage.put(name, name.encode())
    storage.move("a", "aside/a")
    storage.move("f", "aside/f")
    assert [name for name, _ in walk(storage)] == ["aside/a", "aside/f/g/y", "aside/f/x", "fg"]
    assert storage.read("aside/f/g/y") == b"f/g/y"
    with pytest.raises(FileExistsError):
        storage.move("fg", "aside/a")
    assert storage.read("aside/a") == b"a"
    assert storage.read("fg") == b"fg"


def test_what_forbids_a_file_to_be_shown_leaves_nothing_there(place: Place) -> None:
    class Gone(Exception):
        pass

    def gone() -> None:
        raise Gone

    with pytest.raises(Gone):
        place.open(may_show=gone).put("a/b", b"1")
    assert place.open().size("a/b") is None
    assert not place.open().inventory()


def test_readers_of_arrow_read_slices(storage: WritableStorage) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": range(10_000), "b": [str(n) for n in range(10_000)]}), sink, row_group_size=1000)
    storage.put("t.parquet", sink.getvalue())
    with open_input(storage, "t.parquet") as opened:
        file = pq.ParquetFile(opened)
        assert file.read_row_group(7, columns=["a"]).column("a").to_pylist() == list(range(7000, 8000))
    with pytest.raises(NotFound):
        open_input(storage, "none.parquet")


def test_of_twenty_that_put_one_name_at_once_one_succeeds(place: Place) -> None:
    """`python -m tests.bench.objects.bench_racing` has processes race, for two hundred rounds."""
    storages = [place.open() for _ in range(20)]
    for number in range(5):
        barrier, winners = threading.Barrier(20), list[int]()

        def publish(publisher: int, path: str) -> None:
            barrier.wait()  # noqa: B023 - the pool is through with a round before the next begins
            with contextlib.suppress(FileExistsError):
                storages[publisher].put(path, bytes([publisher]) * 1000)
                winners.append(publisher)  # noqa: B023

        with ThreadPoolExecutor(20) as pool:
            list(pool.map(publish, range(20), [f"outcome/{number}"] * 20))
        assert len(winners) == 1
        assert place.open().read(f"outcome/{number}") == bytes(winners) * 1000


PUTTING = """
import sys
from formats.storage import open_writable

storage = open_writable(sys.argv[1])
for number in range(100_000):
    storage.put(f"killed/{sys.argv[2]}/{number:06d}", bytes([number % 256]) * 300_000)
    print(number, flush=True)
"""


def test_a_process_that_is_killed_while_it_puts_leaves_whole_files(shared: Place) -> None:
    assert shared.root is not None
    storage = shared.open()
    for life in range(3):
        with _python(PUTTING, shared.root, str(life), environment=shared.environment) as process:
            assert process.stdout is not None
            last = [int(process.stdout.readline()) for _ in range(3)][-1]
            time.sleep(random.Random(life).random() * 0.02)
            process.kill()
            last = max([last, *map(int, process.stdout.read().split())])
        names = [entry.name for entry in storage.list(f"killed/{life}")]
        assert len(names) in (last + 1, last + 2)  # what it had not heard of may be there, too
        for number, name in enumerate(names):
            assert name == f"{number:06d}"
            assert storage.read(f"killed/{life}/{name}") == bytes([number % 256]) * 300_000


@contextlib.contextmanager
def _python(program: str, *arguments: str, environment: object) -> Iterator[subprocess.Popen[str]]:
    import os

    assert isinstance(environment, dict)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
