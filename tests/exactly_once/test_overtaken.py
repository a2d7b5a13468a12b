"""An owner that goes on after it has lost the store or the sink to another: it completes, shows and moves nothing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abscli.engine import attempt
from abscli.engine.errors import EngineStopped
from abscli.engine.journal import Journal
from abscli.engine.sinks.file_publisher import FilePublisher
from formats.errors import StoreInUse
from formats.native import layout
from formats.native.sink import CLAIMS
from tests.support.jobs.lines import Lines, in_a_process, topology, wait_until_stopped

pytestmark = pytest.mark.integration


@pytest.mark.cell("N", "stops", "jsonl")
@pytest.mark.parametrize("where", ["manifest", "reveal"])
def test_an_owner_that_was_stopped_and_has_lost_its_locks_completes_and_shows_nothing(lines: Lines, where: str) -> None:
    """What an expired lease of NFS does to the locks: the files that they are on are other ones."""
    stale = in_a_process(lines, where, 3, signal.SIGSTOP)
    try:
        wait_until_stopped(stale)
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / ".abs-sink" / "lock"):
            lock.rename(lock.with_name("lock-of-old"))
        before = lines.complete()
        lines.resume(epochs=2)
        fences = lines.store().fences()
        assert fences
        assert fences[0] == before[-1] + 1
    finally:
        stale.send_signal(signal.SIGCONT)
        _, errors = stale.communicate(timeout=300)
    assert stale.returncode == 1, errors
    assert ("took the store over" if where == "manifest" else "was taken over by attempt 2") in errors
    (lines.folder / "a" / "lock-of-old").unlink()
    lines.resume()
    assert lines.wrong() == {}
    assert not lines.validated().damaged


@pytest.mark.parametrize("step", ["before", "after"])
def test_an_attempt_that_is_overtaken_while_it_claims_a_sink_moves_nothing_in_it(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It was stopped right before it claims the sink, or right after, and has lost its locks when it goes on."""
    lines.run(epochs=3)
    name = "take" if step == "before" else "_put_claim"
    plain = getattr(FilePublisher, name)
    parts: list[dict[Path, int]] = []

    def late(*arguments: object) -> object:
        monkeypatch.setattr(FilePublisher, name, plain)
        result = plain(*arguments) if step == "after" else None
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / CLAIMS / "lock"):
            lock.unlink()
        lines.resume(epochs=2)
        parts.append({path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")})
        return plain(*arguments) if step == "before" else result

    monkeypatch.setattr(FilePublisher, name, late)
    with pytest.raises(EngineStopped, match="taken over"):
        lines.resume()
    assert {path: path.stat().st_ino for path in (lines.folder / "out").rglob("part-*")} == parts[0]
    lines.resume()
    assert lines.wrong() == {}


def test_an_attempt_is_refused_if_another_attempt_completes_an_epoch_after_its_lookup(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other attempt has lost its locks and still runs. The new attempt resumes from an older epoch."""
    lines.run(epochs=2)
    plain = attempt.look

    def look(*arguments: Any) -> attempt.Parent:
        monkeypatch.setattr(attempt, "look", plain)
        found = plain(*arguments)
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / CLAIMS / "lock"):
            lock.unlink()
        lines.resume(epochs=1)
        return found

    monkeypatch.setattr(attempt, "look", look)
    with pytest.raises(StoreInUse, match="another process is writing to this store"):
        lines.resume()
    assert [facts.attempt for facts in lines.store().attempts()] == [1, 2]
    lines.resume()
    assert lines.wrong() == {}


class Interrupted:
    """The calls with which an attempt changes a sink; before or after the n-th of them, something else happens."""

    def __init__(self, n: int, *, after: bool, event: Callable[[], None]) -> None:
        self._left = n
        self._after = after
        self._event = event

    def __getattr__(self, name: str) -> Any:
        plain = getattr(os, name)
        if name not in ("link", "rename", "unlink"):
            return plain

        def call(*arguments: str) -> None:
            self._left -= 1
            if self._left or self._after:
                plain(*arguments)
            if not self._left:
                self._event()
                if not self._after:
                    plain(*arguments)

        return call


@pytest.mark.sample(12)
@pytest.mark.parametrize("other", ["a", "b"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 19, 20, 21, 22])
def test_an_attempt_that_is_overtaken_between_two_steps_loses_and_shows_nothing(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, step: int, after: bool, other: str
) -> None:
    """What it still had to set aside or to show is a list of names; the next attempt, on its own store or on the other
    one, has given them to other parts meanwhile."""
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    lines.resume("b", epochs=2)
    parts: list[dict[str, int]] = []

    def visible() -> dict[str, int]:
        return {name: (lines.folder / "out" / name).stat().st_ino for name in lines.sink.visible()}

    def overtake() -> None:
        monkeypatch.setattr("abscli.engine.sinks.moves.os", os)
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / CLAIMS / "lock"):
            lock.unlink()
        lines.resume(other, epochs=4, take_ownership=True)
        parts.append(visible())

    monkeypatch.setattr("abscli.engine.sinks.moves.os", Interrupted(step, after=after, event=overtake))
    with pytest.raises(EngineStopped, match=r"taken over|took the store over"):
        lines.resume(take_ownership=True)
    assert visible() == parts[0]
    for store in (other, "b" if other == "a" else "a"):
        lines.resume(store, take_ownership=True)
        assert lines.wrong() == {}


@pytest.mark.parametrize("other", ["a", "b"])
def test_an_attempt_whose_worker_misses_a_file_that_the_next_attempt_removed_says_who_took_over(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """With the same store it has lost that, with a copy of it the sink."""
    lines.run(epochs=3)
    shutil.copytree(lines.folder / "a", lines.folder / "b")
    plain = Journal.begin

    def overtaken(*_: object) -> None:
        monkeypatch.setattr(Journal, "begin", plain)
        for lock in (lines.folder / "a" / layout.LOCK, lines.folder / "out" / CLAIMS / "lock"):
            lock.unlink()
        lines.resume(other, epochs=2, take_ownership=True)
        raise EngineStopped("worker 0: .staged/part-3: No such file or directory")

    monkeypatch.setattr(Journal, "begin", overtaken)
    with pytest.raises(EngineStopped, match="took the store over" if other == "a" else "taken over") as stopped:
        lines.resume()
    assert "No such file" in str(stopped.value.__cause__)


def test_a_stale_owner_cannot_give_an_epoch_up_either(lines: Lines, tmp_path: Path) -> None:
    lines.run(epochs=2)
    attempt = lines.store().attempts()[0]
    storage = lines.store().storage
    stale = Journal(storage, topology(), attempt, keep=None, directory_hint="job.yaml")
    number = stale._undecided = lines.complete()[-1] + 1
    lines.resume(epochs=1)
    with pytest.raises(EngineStopped, match="took the store over"):
        stale.abort(number, "timed out")


def test_a_stale_owner_whose_acks_have_been_removed_is_told_who_has_the_store(lines: Lines) -> None:
    lines.run(epochs=2)
    attempt = lines.store().attempts()[0]
    stale = Journal(lines.store().storage, topology(), attempt, keep=None, directory_hint="job.yaml")
    number = stale._undecided = lines.complete()[-1] + 1
    stale.begin(number)
    lines.resume(epochs=1)
    with pytest.raises(EngineStopped, match="took the store over"):
        stale.complete(number, idle=False)
