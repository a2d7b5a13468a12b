"""A topic for each test."""

from __future__ import annotations

import uuid

import pytest

from tests.support.kafka import Broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """Of two partitions."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.make(name)
    return name
