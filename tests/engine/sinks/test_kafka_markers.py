"""Commit markers of a Kafka sink are read to the committed end of their topic, also after a change of its leader."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped
from abscli.engine.sinks.kafka import transactions
from abscli.engine.sinks.kafka.transactions import read_to_end
from formats.brokers import Brokers
from formats.errors import Unreachable
from formats.job.model import Kind, Operator
from formats.kafka import Bounds, Topics

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

SINK = Operator("out", Kind.SINK, 1, 8, connector={"type": "kafka", "brokers": "127.0.0.1:1", "topic": "rows"})
END = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF)


class Message:
    """A record, or what the client reports of the end of its partition."""

    def __init__(self, offset: int, value: bytes | None = None) -> None:
        self.offset = lambda: offset
        self.key = self.value = lambda: value
        self.error = lambda: END if value is None else None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Message]], list[bytes | None]]:
    """Return what reads a topic with two committed records by a client that returns these messages."""

    def read(messages: list[Message]) -> list[bytes | None]:
        class Consumer:
            def __init__(self, settings: Any) -> None:
                assert settings["isolation.level"] == "read_committed"

            def assign(self, partitions: Any) -> None:
                assert [split.offset for split in partitions] == [0]

            def poll(self, seconds: float) -> Message | None:
                return messages.pop(0) if messages else None

            def close(self) -> None:
                assert not messages

        monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
        taken: list[bytes | None] = []
        read_to_end(SINK, ".", "marks", lambda key, value: taken.append(value))
        return taken

    return read


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have brokers answer with these ends of the topic, one per question; that they cannot tell if it is negative."""
    answers: list[int] = []

    def topics(
        brokers: Brokers, names: Collection[str], *, committed: bool = False, seconds: float | None = None
    ) -> Topics:
        assert committed
        if (end := answers.pop(0)) < 0:
            raise Unreachable("partition 0 of topic marks has no leader", path="127.0.0.1:1")
        return {"marks": {0: Bounds(0, end)}}

    monkeypatch.setattr(Brokers, "topics", topics)
    return answers


def test_an_end_that_a_new_leader_reports_too_early_is_not_the_end(
    read: Callable[[list[Message]], list[bytes | None]], ends: list[int]
) -> None:
    ends[:] = [2]
    messages = [Message(0, b"first"), Message(1), Message(1, b"second"), Message(2)]
    assert read(messages) == [b"first", b"second"]


def test_an_end_that_brokers_cannot_tell_yet_is_waited_for(
    read: Callable[[list[Message]], list[bytes | None]], ends: list[int]
) -> None:
    ends[:] = [-1, -1, 1]
    assert read([Message(0, b"first"), Message(1)]) == [b"first"]


def test_markers_that_do_not_come_end_the_job(
    read: Callable[[list[Message]], list[bytes | None]], ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends[:] = [2]
    monkeypatch.setattr(transactions, "SECONDS", 0.1)
    monkeypatch.setattr(patience, "SECONDS", 0.1)
    with pytest.raises(EngineStopped, match="does not return records of topic 'marks'"):
        read([Message(0, b"first"), Message(1)])
