"""The names of targets of sinks in the facts of a store."""

from __future__ import annotations

from typing import Any

import pytest

from abscli.engine.sinks.delivered.targets import title_of
from formats.job.model import Kind, Operator


@pytest.mark.parametrize(
    ("connector", "title"),
    [
        ({"type": "stdout"}, "stdout"),
        ({"type": "delta", "path": "tables/counts"}, "tables/counts"),
        ({"type": "iceberg", "table": "shop.counts"}, "iceberg:shop.counts"),
        ({"type": "kafka", "topic": "counts", "brokers": "localhost:9092"}, "kafka:counts"),
        ({"type": "postgres", "table": "shop.counts", "connection": "orders"}, "postgres:shop.counts"),
    ],
)
def test_a_sink_is_called_by_its_target(connector: dict[str, Any], title: str) -> None:
    assert title_of(Operator("counts", Kind.SINK, 1, 8, connector=connector)) == title
