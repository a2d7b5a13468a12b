"""What `abs doctor` says: one check after the other, each with what to do where something is not right."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from formats.version import FORMAT_VERSION


class Verdict(StrEnum):
    """What a check comes to; scripts rely on these words."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    name: a stable word.
    message: what is there.
    hint: what to do; None where nothing has to be done.
    """

    name: str
    verdict: Verdict
    message: str
    hint: str | None = None


def is_healthy(checks: Sequence[Check]) -> bool:
    """Whether no check has come to a problem; what could not be checked is none."""
    return all(check.verdict is not Verdict.PROBLEM for check in checks)


def to_json(checks: Sequence[Check], store: str | None) -> dict[str, Any]:
    """`abs.doctor`."""
    return {
        "schema": "abs.doctor",
        "version": FORMAT_VERSION,
        "store": store,
        "healthy": is_healthy(checks),
        "checks": [msgspec.to_builtins(check) for check in checks],
    }
