"""Who checks a store of which format: one table, imported when it is asked."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from abscli.report.findings import StoreReport
from formats.open import Looking
from formats.storage import Storage

Progress = Callable[[int, int | None], None]
"""Told the bytes read so far, and of how many (None: not known). Called from any thread, one call at a time."""


class Checked(NamedTuple):
    """A report, the job's name where it is known, and the epoch that was asked for (None: the whole store).

    why: epoch -> what is unchecked -> the reason, where the format has one to give; notes: epoch -> what takes nothing
    from it and should be known.
    """

    report: StoreReport
    job: str | None
    epoch: int | None
    why: Mapping[int, Mapping[str, str]] = MappingProxyType({})
    notes: Mapping[int, Sequence[str]] = MappingProxyType({})


class Checker(Protocol):
    """Checks one epoch, the newest complete one (`latest`), or the whole store (None). Raises NotFound,
    UnsupportedVersion; what is damaged is a finding."""

    def __call__(
        self, storage: Storage, epoch: int | str | None, *, quick: bool, progress: Progress, looking: Looking = ...
    ) -> Checked: ...


CHECKERS = {
    "abs": ("abscli.stores.native.check", "check"),
    "flink": ("abscli.stores.flink.check", "check"),
    "spark": ("abscli.stores.spark.check", "check"),
}
"""By name of the format: module and function."""


def checker(format: str) -> Checker:
    """The checker of a format of `formats.open.FORMATS`."""
    module, name = CHECKERS[format]
    found: Checker = getattr(importlib.import_module(module), name)
    return found
