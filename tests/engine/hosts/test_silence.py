"""What is made of silences: which are said, who of two has to go, and until when a worker may act."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from abscli.engine.channels import lease
from abscli.engine.channels.lease import Lease, LeaseExpired
from abscli.engine.channels.messages import Patience
from abscli.engine.losses.silence import Apart, Complaints, Stalls, unresponsive
from abscli.engine.sinks.folder_sinks import FolderSink
from formats.storage import LocalStorage
from tests.engine.sinks.test_staging import ID, OUT, rows

PATIENCE = Patience.of(15.0)
NOBODY: dict[int, float] = {}


def complaints(*pairs: tuple[int, int, float]) -> Complaints:
    heard = Complaints(PATIENCE)
    for worker, peer, seconds in pairs:
        heard.heard(worker, peer, seconds, 100.0)
    return heard


def test_a_lease_ends_one_heartbeat_before_the_timeout() -> None:
    assert Patience.of(12.0) == Patience(beat=0.6, pause=2.0, stall=4.0, lease=11.4, lost=12.0)
    assert Patience.of(60.0) == Patience(beat=1.0, pause=2.0, stall=20.0, lease=59.0, lost=60.0)
    assert msgspec.structs.astuple(Patience.of(3.0)) == pytest.approx((0.15, 0.6, 1.0, 2.85, 3.0))


@pytest.mark.parametrize("lost", [0.1, 1.0, 5.0, 12.0, 3600.0])
def test_every_step_of_a_heartbeat_timeout_comes_after_the_previous_step(lost: float) -> None:
    patience = Patience.of(lost)
    assert patience.beat < patience.pause <= patience.stall < patience.lease < patience.lost


def test_of_two_the_higher_number_goes() -> None:
    assert complaints((0, 1, 17.0)).due(100.0, NOBODY) == Apart(1, 0, 17.0)


def test_whom_more_do_not_reach_goes_whatever_its_number() -> None:
    assert complaints((0, 1, 17.0), (0, 2, 17.0)).due(100.0, NOBODY) == Apart(0, 1, 17.0)


def test_who_complains_of_a_worker_that_is_silent_to_the_coordinator_too_has_nothing_to_fear() -> None:
    heard = complaints((0, 1, 17.0))
    assert heard.due(100.0, {0: 0.5, 1: 14.0}) is None
    assert heard.due(100.0, {0: 0.5, 1: 0.5}) == Apart(1, 0, 17.0)


def test_nobody_goes_before_it_is_time() -> None:
    assert complaints((0, 1, 15.5)).due(100.0, NOBODY) is None


def test_what_is_not_said_again_counts_no_more() -> None:
    heard = complaints((0, 1, 17.0))
    assert heard.standing(101.5, NOBODY) == {(0, 1): 17.0}
    assert heard.due(104.0, NOBODY) is None


def test_of_one_that_is_lost_nothing_is_left() -> None:
    heard = complaints((0, 1, 17.0), (0, 2, 6.0))
    heard.forget(1)
    assert heard.standing(100.0, NOBODY) == {(0, 2): 6.0}


def test_a_silence_is_said_once_and_once_that_it_is_over() -> None:
    stalls = Stalls()
    assert stalls.begun({0: 1.0, 1: 6.0}, 5.0) == [1]
    assert stalls.begun({0: 1.0, 1: 9.0}, 5.0) == []
    assert stalls.ended({0: 1.0, 1: 9.0}, 5.0) == {}
    assert stalls.ended({0: 1.0, 1: 0.5}, 5.0) == {1: 9.0}
    assert stalls.ended({0: 1.0, 1: 0.5}, 5.0) == {}


def test_both_workers_of_a_broken_connection_are_unresponsive() -> None:
    assert unresponsive({0: 0.3, 1: 3.0, (2, 4): 5.5, (0, 3): 1.0}, 2.5) == {1, 2, 4}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [100.0]
    monkeypatch.setattr(lease, "now", lambda: times[0])
    return times


def test_a_lease_counts_from_when_the_beat_was_sent_not_from_when_the_answer_was_read(clock: list[float]) -> None:
    held = Lease(10.0)
    clock[0] = 160.0  # after a pause; in the queue is an answer to a beat from before it
    held.renew(101.0)
    assert held.expired
    held.renew(159.0)
    assert not held.expired


def test_a_lease_reports_the_age_of_the_newest_answered_heartbeat(clock: list[float]) -> None:
    held = Lease(10.0)
    clock[0] = 103.0
    held.renew(101.0)
    assert held.unanswered == 2.0
    assert Lease(None).unanswered == 0.0


def test_after_a_pause_no_file_gets_its_name(clock: list[float], tmp_path: Path) -> None:
    held = Lease(10.0)
    storage = LocalStorage(tmp_path / "store", may_show=held.check)
    storage.put("a/first", b"1")
    sink = FolderSink(OUT, 0, str(tmp_path), ID, held.check)
    sink.write(rows(1))
    stage = sink.cut(1)
    clock[0] = 160.0
    with pytest.raises(LeaseExpired):
        storage.put("a/second", b"2")
    with pytest.raises(LeaseExpired):
        stage()
    assert [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()] == ["first"]
    assert not any(name.startswith("part-") for _, _, files in os.walk(tmp_path) for name in files)


def test_without_a_coordinator_elsewhere_there_is_no_lease(clock: list[float]) -> None:
    held = Lease(None)
    clock[0] = 10_000.0
    held.check()


def test_a_patience_survives_its_way_to_a_worker() -> None:
    assert msgspec.json.decode(msgspec.json.encode(PATIENCE), type=Patience) == PATIENCE
