"""A Kafka source whose network stalls, resets connections or is slow: it reports the wait, and each row comes once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from abscli.engine import patience
from abscli.engine.errors import EngineStopped
from abscli.engine.sources.contract import Source
from abscli.engine.sources.kafka import lookout, topics
from tests.engine.kafka.test_source import Reader, is_at_end, rows_until, values
from tests.engine.kafka.test_source import reader as reader  # a fixture
from tests.support.faulty_proxy import FaultyProxy
from tests.support.kafka import Broker

SECONDS = 1.0
"""For which brokers are waited for at the start, in place of sixty."""
SLACK = 20.0


@pytest.fixture
def proxy(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    for module, name, seconds in ((lookout, "EVERY", 0.1), (lookout, "SLOW", 0.5), (lookout, "ONCE", 0.5)):
        monkeypatch.setattr(module, name, seconds)
    yield broker.proxy
    broker.proxy.delay = 0.0
    broker.proxy.resume()
    broker.proxy.reset()


@pytest.fixture
def source(broker: Broker, topic: str, reader: Reader, proxy: FaultyProxy) -> Source:
    """Return a source at the end of a topic that had two rows."""
    broker.send(topic, {0: range(2)})
    source = reader.begin(follow=True, brokers=proxy.address)
    assert values(source, 2) == ["0", "1"]
    rows_until(source, is_at_end)
    return source


def test_a_source_whose_network_stalls_reports_it_and_reads_each_row_once(
    broker: Broker, topic: str, source: Source, proxy: FaultyProxy
) -> None:
    proxy.stall()
    rows_until(source, lambda source, _: source.held_up is not None)
    assert source.held_up is not None
    assert source.held_up[1]
    assert source.waiting == ()
    broker.send(topic, {0: range(2, 4), 1: range(4, 6)})
    proxy.resume()
    assert values(source, 4) == ["2", "3", "4", "5"]
    rows_until(source, lambda source, _: source.held_up is None)
    assert rows_until(source, is_at_end) == []


@pytest.mark.soak
def test_a_source_whose_connections_are_reset_reads_each_row_once(
    broker: Broker, topic: str, source: Source, proxy: FaultyProxy
) -> None:
    for first in range(2, 8, 2):
        proxy.reset()
        broker.send(topic, {0: range(first, first + 1), 1: range(first + 1, first + 2)})
        assert values(source, 2) == [str(first), str(first + 1)]
    rows_until(source, lambda source, _: source.held_up is None)
    assert rows_until(source, is_at_end) == []


def test_a_source_whose_brokers_answer_late_reads_each_row_once(
    broker: Broker, topic: str, source: Source, proxy: FaultyProxy
) -> None:
    proxy.delay = 0.1
    broker.send(topic, {0: range(2, 4), 1: range(4, 6)})
    assert values(source, 4) == ["2", "3", "4", "5"]
    assert rows_until(source, is_at_end) == []


def test_a_source_that_gets_no_answer_at_the_start_ends_the_job_in_time(
    reader: Reader, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SECONDS", SECONDS)
    monkeypatch.setattr(topics, "ONCE", 0.5)
    proxy.stall()
    began = time.monotonic()
    with pytest.raises(EngineStopped, match=f"operator orders: {proxy.address} does not answer"):
        topics.beginning(reader.operator(brokers=proxy.address), ".")
    assert SECONDS <= time.monotonic() - began < SECONDS + SLACK
