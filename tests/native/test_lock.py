"""The store's lock: who holds it is alone, and what has not become a store is left as it was."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from formats.errors import StoreInUse
from formats.native import layout, lock
from formats.storage import LocalStorage


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_that_is_refused_leaves_neither_a_lock_nor_a_folder(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"

    def refused() -> None:
        with lock.exclusive(LocalStorage(str(place)), new=True):
            assert there(place) == ["lock"]
            raise FileNotFoundError("its input")

    with pytest.raises(FileNotFoundError):
        refused()
    assert there(tmp_path) == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("mine")
    with lock.exclusive(LocalStorage(str(tmp_path / "mine")), new=True):
        pass
    assert there(tmp_path / "mine") == ["precious.txt"]
    (tmp_path / "empty").mkdir()
    with lock.exclusive(LocalStorage(str(tmp_path / "empty")), new=True):
        pass
    assert there(tmp_path / "empty") == []


def test_what_has_become_a_store_keeps_its_lock(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "store"))
    with lock.exclusive(storage, new=True):
        storage.put(layout.STORE, b"{}")
    assert there(tmp_path / "store") == sorted(["lock", layout.STORE])
    with lock.exclusive(storage, new=True):
        assert lock.held(storage)
    assert not lock.held(storage)


def test_who_has_opened_a_lock_that_is_removed_takes_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One holds it, another has opened it: the first removes it and lets go, a third makes a new one."""
    storage = LocalStorage(str(tmp_path / "store"))
    opened, go_on = threading.Event(), threading.Event()
    locked = lock._locked
    outcome: list[str] = []

    def slowly(fd: int) -> bool:
        if threading.current_thread() is second:
            opened.set()
            assert go_on.wait(60)
        return locked(fd)

    def take() -> None:
        try:
            with lock.exclusive(storage, new=True):
                outcome.append("taken")
        except StoreInUse:
            outcome.append("in use")

    second = threading.Thread(target=take)
    monkeypatch.setattr(lock, "_locked", slowly)
    with lock.exclusive(storage, new=True):
        second.start()
        assert opened.wait(60)
    assert not os.path.exists(tmp_path / "store" / "lock")
    with lock.exclusive(storage, new=True):
        go_on.set()
        second.join(60)
        assert outcome == ["in use"]
