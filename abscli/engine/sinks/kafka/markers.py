"""Marks of epochs in a topic beside the one that a sink writes: written in one transaction with the rows, and read to
their end by whoever goes on.

The topic is the sink's own, has one partition and is compacted. Of a partition in which others wrote as well, what is
behind a transaction that one of them has left open could not be seen.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from formats.decoding import decode
from formats.ids import EpochId

CONFIG = {"cleanup.policy": "compact"}


class SinkName(NamedTuple):
    """What is called the same in all stores of a job."""

    job: str
    operator: str
    topic: str

    @property
    def marks(self) -> str:
        """The topic of its marks: such as `abs-epochs-orders-out-` and the beginning of a digest."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", f"{self.job}-{self.operator}")[:100]
        return f"abs-epochs-{plain}-{hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:8]}"


class _Key(msgspec.Struct, frozen=True, array_like=True):
    """Of a mark; attempt: empty for that of who writes."""

    job: str
    operator: str
    topic: str
    attempt: str = ""
    epoch: int = 0


@dataclass(slots=True)
class Marks:
    """Of one sink. epochs: whose rows the topic has. left: whose it has, too, and which were left behind. writer: who
    has claimed it last."""

    name: SinkName
    epochs: dict[EpochId, None] = field(default_factory=dict)
    left: dict[EpochId, None] = field(default_factory=dict)
    writer: str | None = None

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """The next message of the topic; one that is of another sink, or no mark, is passed over."""
        try:
            mark = decode(key or b"", _Key)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if (mark.job, mark.operator, mark.topic) != self.name:
            return
        epoch = EpochId(mark.attempt, mark.epoch)
        if not mark.attempt:
            self.writer = value.decode() if value is not None else None
        else:
            self.epochs.pop(epoch, None)
            self.left.pop(epoch, None)
            if value is not None:
                (self.left if value == LEFT else self.epochs)[epoch] = None


LEFT = b'{"left":true}'
"""The mark of an epoch whose rows stay in the topic and are of no line: it is not shown, and never written again."""
Message = tuple[bytes | None, bytes | None]
"""Key and value."""


def written(name: SinkName, epoch: EpochId, facts: Mapping[str, int]) -> Message:
    """That the rows of an epoch are there. facts: for people."""
    return _key(name, epoch), msgspec.json.encode(facts)


def claimed(name: SinkName, writer: str) -> Message:
    """Who writes from here on."""
    return msgspec.json.encode(_Key(*name)), writer.encode()


def left_behind(name: SinkName, epochs: Iterable[EpochId]) -> list[Message]:
    """That epochs are of no line any more."""
    return [(_key(name, epoch), LEFT) for epoch in epochs]


def forgotten(name: SinkName, epochs: Iterable[EpochId]) -> list[Message]:
    """That epochs are not asked of again."""
    return [(_key(name, epoch), None) for epoch in epochs]


def _key(name: SinkName, epoch: EpochId) -> bytes:
    return msgspec.json.encode(_Key(*name, epoch.attempt_id, epoch.number))
