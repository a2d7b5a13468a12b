"""Files as they are: read once, in chunks, and unreadable where they do not hold."""

from __future__ import annotations

import functools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.native import layout
from formats.native.probe import CHUNK, FileProbe, Prober
from formats.native.state.tables import KEY_GROUP, encode_state
from formats.storage import MemoryStorage
from formats.view import FileFacts
from tests.support.stores.small import FIRST, make_store
from tests.tiers import examples

SEEN = "seen/0"


def facts_of(path: str, data: bytes, rows: int | None = None) -> FileFacts:
    from formats.native.facts import digest

    return FileFacts(path, len(data), rows, digest(data))


def test_a_file_is_read_once_however_many_epochs_refer_to_it() -> None:
    storage, read = MemoryStorage(), []
    storage.put("a", b"1234")
    prober = Prober(storage, progress=read.append)
    for _ in range(3):
        assert prober.probe([facts_of("a", b"1234")])["a"].size == 4
    assert sum(read) == 4


def test_a_large_file_is_read_in_chunks_and_decoded_from_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    from formats.native import probe

    monkeypatch.setattr(probe, "CHUNK", 512)
    table = pa.table({KEY_GROUP: pa.array(range(400), pa.int32()), "k": [str(i) * 9 for i in range(400)]})
    data = encode_state(table, ["k"])
    assert 512 < len(data) < CHUNK
    storage, read = MemoryStorage(), []
    storage.put("a.parquet", data)
    found = Prober(storage, progress=read.append).probe([facts_of("a.parquet", data)])["a.parquet"]
    assert (found.rows, found.key_groups, found.error) == (400, (0, 399), None)
    assert max(read) == 512


@settings(max_examples=examples(60))
@given(st.binary(max_size=300), st.sampled_from(["a.parquet", "a.arrow"]))
def test_garbage_whose_digest_holds_is_unreadable(data: bytes, path: str) -> None:
    storage = MemoryStorage()
    storage.put(path, data)
    assert Prober(storage).probe([facts_of(path, data)])[path].error


@functools.cache
def tables() -> dict[str, bytes]:
    """A state file and a log, by path."""
    storage = MemoryStorage()
    make_store(storage, parallelism=1, more=False)
    return {path: storage.files[path] for path in (layout.state(1, SEEN, FIRST), layout.log(1, SEEN, SEEN, FIRST))}


@settings(max_examples=examples(40))
@given(st.data())
def test_a_damaged_table_whose_digest_was_mended_is_read_or_unreadable(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([*tables()]))
    bytes_ = bytearray(tables()[path])
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    storage = MemoryStorage()
    storage.put(path, bytes_)
    found = Prober(storage).probe([facts_of(path, bytes(bytes_))])[path]
    assert (found.rows is None) == (found.error is not None)


def test_a_state_file_without_key_groups_is_unreadable() -> None:
    storage = MemoryStorage()
    data = encode_state(pa.table({KEY_GROUP: pa.array([None, 1], pa.int32())}), [])
    storage.put("a.parquet", data)
    assert "no __key_group" in (Prober(storage).probe([facts_of("a.parquet", data)])["a.parquet"].error or "")


def test_probes_of_different_digests_of_one_path_are_kept_apart() -> None:
    storage = MemoryStorage()
    storage.put("a", b"12")
    prober = Prober(storage)
    one, two = facts_of("a", b"12"), facts_of("a", b"34")
    assert [prober.probe([f])["a"] for f in (one, two)] == [FileProbe("a", 2, one.sha256)] * 2


def test_what_lies_elsewhere_is_expected_before_it_is_read() -> None:
    here, there, steps = MemoryStorage(), MemoryStorage(), list[int]()
    here.put("a", b"1234")
    there.put("b", b"123456")
    prober = Prober(here, progress=steps.append, expected=lambda count: steps.append(-count))
    prober.probe([facts_of("a", b"1234")])
    assert prober.beside(there, [facts_of("b", b"123456")])["b"].size == 6
    assert steps == [4, -6, 6]
