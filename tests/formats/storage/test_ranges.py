"""Ranges of packs, in every kind of place."""

from __future__ import annotations

import pytest

from formats.errors import NotFound
from formats.storage import MemoryStorage, WritableStorage, open_input, ranges
from formats.storage.ranges import Range, range_of, whole_file

PACK = "epochs/x.pack"
DATA = bytes(range(100))


@pytest.fixture(params=["memory", "directory"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WritableStorage:
    from formats.storage import LocalStorage

    place = MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path_factory.mktemp("s"))
    place.put(PACK, DATA)
    return place


def test_a_range_is_read_as_a_file_of_its_own(storage: WritableStorage) -> None:
    path = Range(PACK, 10, 20, "a/0/state.parquet").path
    assert path == "epochs/x.pack@000000000010+000000000020/a/0/state.parquet"
    assert ranges.size(storage, path) == 20
    assert ranges.read(storage, path) == DATA[10:30]
    assert ranges.read(storage, path, 5) == DATA[15:30]
    assert ranges.read(storage, path, 5, 3) == DATA[15:18]
    assert ranges.read(storage, path, 15, 100) == DATA[25:30]
    assert ranges.read(storage, path, 20, 5) == ranges.read(storage, path, 99) == b""
    with open_input(storage, path) as file:
        file.seek(18)
        assert file.read(10) == DATA[28:30]
        assert file.size() == 20


def test_what_its_file_does_not_have_is_not_there(storage: WritableStorage) -> None:
    assert ranges.size(storage, Range(PACK, 90, 20, "x").path) == 10
    assert ranges.read(storage, Range(PACK, 90, 20, "x").path) == DATA[90:]
    assert ranges.size(storage, Range(PACK, 200, 20, "x").path) == 0
    gone = Range("epochs/y.pack", 0, 5, "x").path
    assert ranges.size(storage, gone) is None
    for ask in (ranges.read, open_input):
        with pytest.raises(NotFound):
            ask(storage, gone)


@pytest.mark.parametrize("path", [
    PACK, "a@b", "x.pack@1+2/a", "x.pack@000000000010+000000000020", "x@000000000010+000000000020/a",
    "x.pack@000000000010-000000000020/a", "x.pack@00000000001x+000000000020/a",
])  # fmt: skip
def test_other_paths_are_of_files(path: str) -> None:
    assert range_of(path) is None
    assert whole_file(path) == path


def test_the_path_says_the_range() -> None:
    one = Range("a/b.pack", 999_999_999_999, 0, "counts/1/log/words/0.arrow")
    assert range_of(one.path) == one
    assert whole_file(one.path) == "a/b.pack"
