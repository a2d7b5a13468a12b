"""Offsets of partitions that have no leader are no offsets."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from formats.brokers import Brokers
from formats.errors import Unreachable

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


class Client:
    """An admin client of a topic with two partitions, of which the second has no leader."""

    def poll(self, seconds: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None, 1: None})})

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        id = SimpleNamespace(get_most_significant_bits=lambda: 1, get_least_significant_bits=lambda: 2)
        return {"t": done(topic_id=id, partitions=[SimpleNamespace(id=0), SimpleNamespace(id=1)])}

    def list_offsets(self, asked: Any, **options: Any) -> dict[Any, Future[Any]]:
        return {split: done(offset=18 if split.partition == 0 else -1001) for split in asked}


def done(**facts: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(**facts))
    return future


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(Brokers, "_client", lambda self: Client())
    return Brokers("127.0.0.1:1", {})


def test_a_partition_without_a_leader_is_waited_for_and_has_not_lost_its_end(brokers: Brokers) -> None:
    with pytest.raises(Unreachable, match="partition 1 of topic t has no leader"):
        brokers.look("t")
    with pytest.raises(Unreachable, match="partition 1 of topic t has no leader"):
        brokers.topics(["t"])
    assert brokers.ends("t", [0]) == {0: 18}
