"""The engine's clock begins an epoch when the protocol's rule C9 says so, and adds only how long the waits are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from abscli.engine.coordinator import PAUSE_SECONDS, Service
from abscli.engine.journal import Journal
from abscli.protocol.coordinator import Coordinator
from abscli.protocol.events import Acked, SourceEnded, Stored, TriggerDue
from abscli.protocol.policy import Policy
from formats.ids import TaskId
from tests.support.jobs.small import word_count

S, A = TaskId("s", 0), TaskId("a", 0)
BEGAN = 100.0
NEVER = float("inf")


@contextmanager
def clock(coordinator: Coordinator, interval: float | None) -> Iterator[Service]:
    """A service whose last epoch began at BEGAN; it writes nothing here, so it needs no journal."""
    service = Service(
        coordinator, cast(Journal, None), word_count(), policy=Policy.ALIGNED, workers=1, host="127.0.0.1",
        interval=interval, epoch_timeout=10.0,
    )  # fmt: skip
    service._begun_at = BEGAN
    try:
        yield service
    finally:
        service._close()


def coordinator(**more: int) -> Coordinator:
    return Coordinator([S, A], [S], attempt=1, first_epoch=1, **more)


def complete(machine: Coordinator, epoch: int) -> None:
    for task in (S, A):
        machine.on(Acked(task, epoch, 1, finished=task == S, logged=int(task == A)))
    machine.on(Stored(epoch))


@pytest.mark.parametrize(("interval", "due"), [(2.0, BEGAN + 2.0), (None, NEVER)])
def test_an_epoch_is_due_an_interval_after_the_beginning_of_the_one_before(interval: float | None, due: float) -> None:
    machine = coordinator(max_concurrent=2)
    with clock(machine, interval) as service:
        assert service._due_at() == due
        machine.on(TriggerDue())
        assert service._due_at() == due
        machine.on(TriggerDue())
        assert service._due_at() == NEVER


@pytest.mark.parametrize(("interval", "pause"), [(2.0, PAUSE_SECONDS), (None, PAUSE_SECONDS), (0.01, 0.01)])
def test_what_circulates_is_asked_for_after_a_pause_one_epoch_at_a_time(interval: float | None, pause: float) -> None:
    machine = coordinator(max_concurrent=2)
    with clock(machine, interval) as service:
        machine.on(SourceEnded(S))
        assert service._due_at() == NEVER
        complete(machine, 1)
        assert service._due_at() == BEGAN + pause


def test_what_is_asked_for_at_the_start_is_due_as_soon_as_all_are_there() -> None:
    machine = Coordinator([S], [S], attempt=1, first_epoch=1, until="drained")
    with clock(machine, None) as service:
        assert service._due_at() == BEGAN
        service._begun_at = NEVER
        assert service._due_at() == NEVER
