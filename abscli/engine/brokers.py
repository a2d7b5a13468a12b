"""The brokers of a source or a sink: how they are spoken to, and how long they are waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from abscli.engine.errors import EngineStopped, UsageError
from formats.brokers import BadSetting, Brokers, NoClient, settings
from formats.errors import FormatError, Unreachable
from formats.job.kafka import Topic
from formats.job.model import Operator

SECONDS = 60.0
"""For which they are asked again and again."""
ONCE = 5.0
"""Seconds for one answer."""

Answer = TypeVar("Answer")


def settings_of(operator: Operator, directory: str) -> dict[str, str]:
    """Of the client, from the file that a source or a sink names; UsageError."""
    topic = Topic.of(operator)
    if topic.config is None:
        return {}
    try:
        return settings(os.path.join(directory, topic.config))
    except (BadSetting, FormatError) as error:
        raise UsageError(f"operator {operator.id}: config: {error}") from None


def brokers_of(operator: Operator, directory: str) -> Brokers:
    """UsageError."""
    try:
        return Brokers(Topic.of(operator).brokers, settings_of(operator, directory))
    except NoClient as error:
        message = f"operator {operator.id} speaks to Kafka, and confluent-kafka is not installed"
        raise UsageError(message, hint=str(error)) from None
    except BadSetting as error:
        raise UsageError(f"operator {operator.id}: the settings of its client do not hold: {error}") from None


def until_they_answer(
    operator: Operator, ask: Callable[[], Answer], waits: Callable[[str], None] = lambda reason: None, *,
    seconds: float | None = None,
) -> Answer:
    """What brokers answer, who may be away for a while. waits: told of it, once. EngineStopped where that is too
    long."""
    deadline, told_once = time.monotonic() + (SECONDS if seconds is None else seconds), False
    while True:
        try:
            return ask()
        except Unreachable as error:
            if not told_once:
                told_once = True
                waits(error.message)
            if time.monotonic() > deadline:
                raise EngineStopped(
                    f"operator {operator.id}: {error.path} does not answer: {error.message}",
                    hint="is it HOST:PORT of a broker, and does `config` say how it wants to be spoken to?",
                ) from None
            time.sleep(0.2)
