"""One broker for the tests of a module; a topic for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.kafka import Broker, running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """Of two partitions."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.make(name)
    return name
