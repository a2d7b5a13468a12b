"""A Kafka source waits for the leaders of its partitions, whatever other brokers answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest

from abscli.engine.sources.kafka import lookout
from abscli.engine.sources.kafka.lookout import Lookout
from formats.brokers import Brokers, Described
from formats.errors import Unreachable
from formats.kafka import Bounds
from tests.support.waiting import wait_for

REASON = "no answer from the broker: 127.0.0.1:1/1: Connection refused"


class OneOfTwo:
    """Brokers of which one answers; the leader of partition 1 is away."""

    newest_error = None

    def describe(self, topic: str, *, seconds: float) -> Described:
        return Described("id", frozenset({0, 1}))

    def topics(self, names: Collection[str], *, seconds: float) -> dict[str, Any]:
        return {"t": {0: Bounds(0, 5), 1: Bounds(0, 5)}}

    def ends(self, topic: str, partitions: Collection[int], *, seconds: float) -> dict[int, int]:
        if 1 in partitions:
            raise Unreachable(REASON)
        return dict.fromkeys(partitions, 5)


@pytest.fixture(params=[[0], [0, 1]])
def reads(request: pytest.FixtureRequest) -> list[int]:
    """Return the partitions that a task reads."""
    return list(request.param)


@pytest.fixture
def looking(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lookout]:
    monkeypatch.setattr(lookout, "EVERY", 0.01)
    monkeypatch.setattr(lookout, "SLOW", 0.2)
    one = Lookout(cast(Brokers, OneOfTwo()), "t", lambda: reads)
    yield one
    one.close()
    one._thread.join()


def test_a_task_waits_if_the_leader_of_one_of_its_partitions_does_not_answer(
    looking: Lookout, reads: list[int]
) -> None:
    if 1 in reads:
        wait_for(lambda: looking.silence is not None)
        assert looking.silence is not None
        assert looking.silence[1] == REASON
        reads.remove(1)
    wait_for(lambda: looking.take() is not None)
    wait_for(lambda: looking.silence is None)
