"""Who has a store where no kernel lets go of locks: claims that beat, on a storage without a server's whims."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from formats.errors import StoreInUse, Unreachable
from formats.native import claims, lock
from formats.storage import MemoryStorage


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "SECONDS", 5.0)
    monkeypatch.setattr(claims, "_looked", {})


def dead(storage: MemoryStorage, number: int = 1, **more: object) -> None:
    """A claim whose holder, on another machine, will say nothing any more."""
    claim = claims.Claim("h", "far", "another/1", 1, "2", 0.5, **more)  # type: ignore[arg-type]
    storage.put(f"lock/{number:010d}.json", msgspec.json.encode(claim), replace=True)


@pytest.mark.integration
def test_a_holder_that_lives_is_named_and_let_go_of_when_it_ends() -> None:
    storage = MemoryStorage()
    for _ in range(3):
        with lock.exclusive(storage):
            with pytest.raises(StoreInUse, match=f"in use by process {os.getpid()} on "), lock.exclusive(storage):
                pass
            assert claims.is_claimed(storage)
        assert not claims.is_claimed(storage)
    assert [entry.name for entry in storage.list("lock")] == [f"000000000{n}.json" for n in (1, 2, 3)]


def test_a_block_that_raises_lets_go_of_it() -> None:
    storage = MemoryStorage()
    with pytest.raises(KeyboardInterrupt), lock.exclusive(storage):
        raise KeyboardInterrupt
    with lock.exclusive(storage):
        pass


def test_a_holder_that_says_nothing_any_more_is_followed_and_its_number_is_not_used_again() -> None:
    storage = MemoryStorage()
    dead(storage, 7)
    assert not claims.is_claimed(storage)
    with lock.exclusive(storage):
        assert [entry.name for entry in storage.list("lock")] == ["0000000007.json", "0000000008.json"]
        # Whoever comes back writes its own claim again, and takes nothing by it.
        dead(storage, 7, count=1)
        with pytest.raises(StoreInUse, match=str(os.getpid())), lock.exclusive(storage):
            pass


def test_of_many_that_wait_for_a_dead_one_one_gets_the_store() -> None:
    storage = MemoryStorage()
    dead(storage)
    barrier, holders, refused = threading.Barrier(8), list[int](), list[str]()
    done = threading.Event()

    def contend(number: int) -> None:
        barrier.wait()
        try:
            with lock.exclusive(storage):
                holders.append(number)
                done.wait(30)
        except StoreInUse as error:
            refused.append(error.message)
            if len(refused) == 7:
                done.set()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(contend, range(8)))
    assert len(holders) == 1
    assert len(refused) == 7


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"holder": 1}', b"[" * 5000])
def test_a_claim_that_says_nothing_is_nobodys(content: bytes) -> None:
    storage = MemoryStorage()
    storage.put("lock/0000000004.json", content)
    storage.put("lock/strange", b"")
    assert not claims.is_claimed(storage)
    with lock.exclusive(storage):
        assert "0000000005.json" in [entry.name for entry in storage.list("lock")]


def test_a_process_of_this_machine_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that has got its number since."""
    monkeypatch.setattr(claims.time, "sleep", lambda seconds: pytest.fail("waited"))
    for started, process in (("12", 2**22 + 1), ("1", os.getpid())):
        storage = MemoryStorage()
        claim = claims.Claim("h", "here", claims._machine(), process, started, 600.0)
        storage.put("lock/0000000001.json", msgspec.json.encode(claim))
        assert not claims.is_claimed(storage)
        with lock.exclusive(storage):
            pass


def test_a_process_that_is_stopped_is_waited_for() -> None:
    storage = MemoryStorage()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        process.send_signal(signal.SIGSTOP)
        claim = claims.Claim("h", "here", claims._machine(), process.pid, claims._started(process.pid), 0.5)
        storage.put("lock/0000000001.json", msgspec.json.encode(claim))
        assert claims._lives(storage, 1, claim, 0.2) is None
        with lock.exclusive(storage):
            assert storage.size("lock/0000000002.json")
    finally:
        process.kill()
        process.wait()


def test_a_server_that_is_away_for_a_while_costs_the_holder_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, plain = MemoryStorage(), MemoryStorage.put
    beats = 0

    def put(self: MemoryStorage, path: str, data: bytes, *, replace: bool = False) -> None:
        nonlocal beats
        beats += replace
        if replace and beats in (1, 2):
            raise Unreachable("away")
        plain(self, path, data, replace=replace)

    monkeypatch.setattr(MemoryStorage, "put", put)
    with lock.exclusive(storage), pytest.raises(StoreInUse), lock.exclusive(storage):
        pass
    assert beats > 2
    assert not claims.is_claimed(storage)


def test_a_second_look_at_a_dead_one_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    dead(storage)
    assert not claims.is_claimed(storage)
    monkeypatch.setattr(claims.time, "sleep", lambda seconds: pytest.fail("waited"))
    assert not claims.is_claimed(storage)
