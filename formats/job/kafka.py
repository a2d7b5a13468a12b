"""What the entry of a source or a sink says of a topic of Kafka."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from formats.job.model import Operator


class Start(StrEnum):
    """Where a source begins in a partition that no epoch has a position in."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Topic(msgspec.Struct, frozen=True):
    """A topic. brokers: HOST:PORT, several with commas between; config: a file of further settings of the client,
    relative to the job file."""

    brokers: str
    name: str
    config: str | None = None

    @classmethod
    def of(cls, operator: Operator) -> Topic:
        """That of a source or a sink."""
        options: dict[str, Any] = operator.connector or {}
        return cls(options["brokers"], options["topic"], options.get("config"))


def is_kafka(operator: Operator) -> bool:
    """Whether it reads or writes a topic."""
    return (operator.connector or {}).get("type") == "kafka"


def start_of(source: Operator) -> Start:
    """Where a source begins."""
    return Start((source.connector or {}).get("start", Start.EARLIEST))


def split_name(topic: str, partition: int) -> str:
    """What a partition is called, as a split."""
    return f"{topic}-{partition}"


def partition_of(split: str) -> int:
    """Of a split; ValueError for what is called otherwise."""
    return int(split.rpartition("-")[2])
