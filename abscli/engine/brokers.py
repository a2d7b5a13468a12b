"""The brokers of a source or a sink: how they are spoken to, and how long they are waited for."""

from __future__ import annotations

import os
from collections.abc import Callable

from abscli.engine.errors import EngineStopped, UsageError
from abscli.engine.patience import Answer, until_answered
from formats.brokers import BadSetting, Brokers, settings
from formats.errors import FormatError, MissingPackage, Unreachable
from formats.job.kafka import Topic
from formats.job.model import Operator

ONCE = 5.0
"""Seconds for one answer."""


def settings_of(operator: Operator, directory: str) -> dict[str, str]:
    """Read the client's settings from the file that a source or a sink names, which is in the job's folder.

    A job file must not reach for the settings of another program: with the brokers of the job file, the password in
    them would be sent to somebody else. Raises UsageError.
    """
    topic = Topic.of(operator)
    if topic.config is None:
        return {}
    path = os.path.join(directory, topic.config)
    folder = os.path.realpath(directory)
    if os.path.commonpath([folder, os.path.realpath(path)]) != folder:
        raise UsageError(
            f"operator {operator.id}: config: {topic.config} is outside the folder of the job file, {folder}",
            hint="copy the file to the folder of the job file",
        )
    try:
        return settings(path)
    except (BadSetting, FormatError) as error:
        raise UsageError(f"operator {operator.id}: config: {error}") from None


def brokers_of(operator: Operator, directory: str) -> Brokers:
    """UsageError."""
    try:
        return Brokers(Topic.of(operator).brokers, settings_of(operator, directory))
    except MissingPackage as error:
        raise UsageError(f"operator {operator.id}: {error.message}", hint=error.hint) from None
    except BadSetting as error:
        raise UsageError(f"operator {operator.id}: its client settings are invalid: {error}") from None


def until_brokers_answer(
    operator: Operator, ask: Callable[[], Answer], *, seconds: float | None = None
) -> Answer:
    """As `until_answered`; EngineStopped where that takes too long."""

    def given_up(error: Unreachable) -> EngineStopped:
        return EngineStopped(
            f"operator {operator.id}: {error.path} does not answer: {error.message}",
            hint=error.hint,
        )

    return until_answered(ask, given_up, seconds=seconds)
