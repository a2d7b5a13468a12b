"""Which numbers of a store that have a directory are or were epochs."""

from __future__ import annotations

import pytest

from formats.native import layout
from formats.native.remains import has_remains
from formats.native.store import NativeStore
from formats.native.writer import put_fence
from formats.storage import MemoryStorage
from tests.support.stores.small import FIRST, in_memory, make_store

COMPLETE, INCOMPLETE = 4, 5
MANIFEST = layout.outcome(COMPLETE)
TASKS = layout.tasks_file(COMPLETE, FIRST)


@pytest.fixture
def storage() -> MemoryStorage:
    return in_memory(make_store(MemoryStorage()))


@pytest.mark.parametrize("lost", [MANIFEST, TASKS])
def test_a_complete_epoch_is_one_with_its_manifest_or_its_tasks_file_alone(storage: MemoryStorage, lost: str) -> None:
    storage.delete(lost)
    assert has_remains(NativeStore(storage), COMPLETE)


def test_an_incomplete_epoch_is_one_by_its_trigger(storage: MemoryStorage) -> None:
    assert has_remains(NativeStore(storage), INCOMPLETE)
    storage.delete(layout.trigger(INCOMPLETE, FIRST))
    assert not has_remains(NativeStore(storage), INCOMPLETE)


def test_a_directory_with_parts_alone_is_no_epoch(storage: MemoryStorage) -> None:
    storage.delete(MANIFEST)
    storage.delete(TASKS)
    assert not has_remains(NativeStore(storage), COMPLETE)


def test_a_fence_alone_is_no_epoch(storage: MemoryStorage) -> None:
    store = NativeStore(storage)
    put_fence(storage, INCOMPLETE + 1, store.attempts()[0])
    assert not has_remains(NativeStore(storage), INCOMPLETE + 1)
