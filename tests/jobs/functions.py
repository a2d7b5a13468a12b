"""Functions for jobs that are built and not run."""

from __future__ import annotations

from typing import Any


def step(batch: Any) -> Any:
    return batch


def further(batch: Any) -> Any:
    return batch
