"""What can be tried where no broker can be had: the client library brings a cluster that acts as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from formats.brokers import Brokers, Described
from tests.engine.kafka.test_source import Reader, all_of, is_at_end, rows_until
from tests.support.kafka import SECONDS

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


class Mock:
    """address: HOST:PORT."""

    def __init__(self, client: Any) -> None:
        brokers = client.list_topics(timeout=SECONDS).brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._client = client

    def send(self, topic: str, values: list[str], partition: int = 0) -> None:
        for value in values:
            self._client.produce(topic, value, partition=partition)
        assert self._client.flush(SECONDS) == 0


def describe(brokers: Brokers, topic: str, *, seconds: float) -> Described | None:
    """The mock cluster has no controller, which is asked for a topic's id."""
    there = brokers.topics([topic], seconds=seconds).get(topic)
    return Described(None, frozenset(there)) if there else None


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Mock:
    monkeypatch.setattr(Brokers, "describe", describe)
    client = confluent_kafka.Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "none", "log_level": 0})
    return Mock(client)


@pytest.fixture
def reader(mock: Mock) -> Iterator[Reader]:
    mock.send("t", ["0"])
    with ExitStack() as closing:
        yield Reader(mock, "t", closing)  # type: ignore[arg-type]


def test_a_topic_of_the_mock_cluster_is_read_to_its_end_and_on_from_there(mock: Mock, reader: Reader) -> None:
    mock.send("t", [str(n) for n in range(1, 50)])
    mock.send("t", [str(n) for n in range(50, 60)], partition=3)
    source = reader.begin()
    assert sorted(int(row["value"]) for row in all_of(source)) == [*range(60)]
    again = reader.begin(source.positions, follow=True)
    mock.send("t", ["later"])
    assert [row["value"] for row in rows_until(again, lambda _, rows: rows)] == ["later"]
    rows_until(again, is_at_end)


def test_records_of_the_mock_cluster_have_keys_and_times(
    mock: Mock, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kafka.properties").write_text("fetch.wait.max.ms=5\n")
    monkeypatch.chdir(tmp_path)
    rows = all_of(reader.begin(key="k", timestamp="at", config="kafka.properties"))
    assert [(row["value"], row["k"]) for row in rows] == [("0", None)]
    assert rows[0]["at"].year > 2000
