"""What a source's entry says of files that come, or grow, while the job runs."""

from __future__ import annotations

import zlib

from formats.durations import seconds_of
from formats.job.kafka import is_kafka, partition_of
from formats.job.model import Operator

EVERY = 1.0
"""Seconds from one look at a place to the next, where nothing else is said."""


def split_number(split: str) -> int:
    """By which a task's steps name a split, and from which alone follows which task has it: from 0 on, less than
    2^32."""
    return zlib.crc32(split.encode())


def follows(source: Operator) -> bool:
    """Whether a source goes on with what comes while the job runs."""
    return (source.connector or {}).get("follow") is True


def followed_every(source: Operator) -> float | None:
    """Seconds from one look to the next; None of a source that reads what is there at the start."""
    return seconds_of((source.connector or {}).get("every", EVERY)) if follows(source) else None


def is_by_arrival(source: Operator) -> bool:
    """Whether the order of a source's rows follows from when they came: its steps name splits then."""
    return follows(source) or is_kafka(source)


def step_number(source: Operator, split: str) -> int:
    """By which the steps of such a source name a split."""
    return partition_of(split) if is_kafka(source) else split_number(split)
