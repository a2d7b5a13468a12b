"""What `abs gc` says for scripts, of whichever system, and what to type to have it done."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from abscli.planner.retention import Retention
from abscli.stores.removal import Removal
from formats.durations import duration_short
from formats.version import FORMAT_VERSION


def to_json(
    removal: Removal, *, store: str, job: str | None, keep: Retention | None, removed: bool
) -> dict[str, Any]:
    """`abs.gc`. removed: whether it was carried out."""
    return {
        "schema": "abs.gc",
        "version": FORMAT_VERSION,
        "store": store,
        "job": job,
        "keep": None if keep is None else max(keep.last, 1),
        "rules": None if keep is None else dataclasses.asdict(keep),
        "removed": removed,
        "bytes": removal.bytes,
        "epochs": msgspec.to_builtins(removal.epochs),
        "orphans": msgspec.to_builtins(removal.orphans),
        "unknown": removal.unknown,
        "sinks_unknown": removal.sinks_unknown,
        "jobs": msgspec.to_builtins(removal.jobs),
        "kept": list(removal.kept),
        "reasons": [{"epoch": epoch, "reasons": list(why)} for epoch, why in sorted(removal.reasons.items())],
        "blocked": [{"epoch": epoch, "reason": why} for epoch, why in sorted(removal.blocked.items())],
    }


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a job, an epoch or a file a line."""
    lists = {"jobs": "job", "epochs": "epoch", "orphans": "orphan"}
    header = {key: value for key, value in result.items() if key not in lists}
    return header, ({"type": kind, **item} for key, kind in lists.items() for item in result[key])


def carry_out_command(store: str, options: list[str]) -> str:
    """What to type to have it done."""
    return " ".join(["abs", "gc", shlex.quote(store), *options, "--yes"])


def keep_options(keep: Retention | None) -> list[str]:
    """The options that ask for these rules."""
    if keep is None or keep == Retention():
        return []
    if keep == Retention(keep.last):
        return [f"--keep-last {keep.last}"]
    options = [
        *([f"--keep-last {keep.last}"] if keep.last > 1 else []),
        *([f"--keep-hourly {keep.hourly}"] if keep.hourly else []),
        *([f"--keep-daily {keep.daily}"] if keep.daily else []),
        *([f"--keep-within {duration_short(keep.within)}"] if keep.within is not None else []),
    ]
    return options + [f"--keep-tag {shlex.quote(pattern)}" for pattern in keep.tags]
