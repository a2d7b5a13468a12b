"""What `abs inspect` shows of a directory of jobs, and of the epoch to start from; for people and for scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from abscli.stores.base import Orphans
from abscli.stores.directory import Job
from abscli.text.columns import UNKNOWN, columns, moment, not_shown, number, seconds, size, wrapped
from formats.storage import top_folder
from formats.timestamps import unix_time
from formats.version import FORMAT_VERSION
from formats.view import total


class Start(Protocol):
    """An epoch to start from; see `abscli.stores.directory.Restorable`."""

    @property
    def epoch(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def written(self) -> str | None: ...
    @property
    def bytes(self) -> int | None: ...


SPARE = ("FILES", "WRITTEN (UTC)", "EPOCHS", "ON DISK")
"""Columns that a narrow terminal does without."""
NAMED = 100
"""Jobs that are shown; json has them all."""


def age(written: str | None, now: float | None = None) -> float | None:
    """Seconds since a time, RFC 3339; None if it is not known. A time to come is none."""
    then = unix_time(written)
    if then is None:
        return None
    return max(0.0, round((time.time() if now is None else now) - then, 3))


def text(path: str, jobs: Sequence[Job], *, width: int = 80, now: float | None = None) -> str:
    """A line a job, then what nothing needs."""
    lines = wrapped(f"{len(jobs)} job{'s'[: len(jobs) != 1]} in {path}", width)
    rows = [
        (
            job.name,
            job.system.name,
            str(job.epochs),
            UNKNOWN if job.newest is None and not job.why else str(job.newest.epoch) if job.newest else "none",
            seconds(age(job.newest.written, now)) if job.newest else "-",
            moment(job.newest.written) if job.newest else "-",
            size(job.newest.bytes) if job.newest else "-",
            number(job.files),
            size(job.bytes),
            size(job.orphans.bytes if job.orphans else None),
        )
        for job in jobs[:NAMED]
    ]
    header = ("JOB", "FORMAT", "EPOCHS", "NEWEST", "AGE", "WRITTEN (UTC)", "STATE", "FILES", "ON DISK", "ORPHANS")
    head, *body = columns(header, rows, "llrrrlrrrr", width, spare=SPARE)
    lines += ["", head]
    for job, line in zip(jobs, body, strict=False):
        lines.append(line)
        if job.why:
            lines += wrapped(job.why, width, " " * 4, "    because: ")
    if len(jobs) > NAMED:
        lines.append(f"... and {len(jobs) - NAMED} more; -o json has them all")
    lines += not_shown(header, rows, width, SPARE)
    return "\n".join([*lines, "", *_orphans(jobs, width)]) + "\n"


def _orphans(jobs: Sequence[Job], width: int) -> list[str]:
    """What nothing here needs, by job and directory."""
    lines: list[str] = []
    for job in jobs[:NAMED]:
        if job.orphans and job.orphans.files:
            parts = [
                f"{folder}/ {number(count)} file{'s'[: count != 1]}, {size(amount)}"
                for folder, (count, amount) in by_folder(job.orphans).items()
            ]
            lines += wrapped("; ".join(parts), width, "    ", f"  {job.name}: ")
    unknown = [job.name for job in jobs if job.orphans is None]
    if lines:
        lead = "Orphans, which no checkpoint here refers to; one that is under way may:"
        lines = [*wrapped(lead, width), *lines]
    elif not unknown:
        lines = ["Orphans: none"]
    return lines


def by_folder(orphans: Orphans) -> dict[str, tuple[int, int | None]]:
    """By the directory of the job that they lie in: number and bytes."""
    folders: dict[str, list[int | None]] = {}
    for path, amount in orphans.files.items():
        folders.setdefault(top_folder(path), []).append(amount)
    return {folder: (len(sizes), total(sizes)) for folder, sizes in sorted(folders.items())}


def to_json(path: str, jobs: Sequence[Job], *, now: float | None = None) -> dict[str, Any]:
    """`abs.jobs`."""
    rows = [_job(job, now) for job in jobs]
    return {"schema": "abs.jobs", "version": FORMAT_VERSION, "directory": path, "jobs": rows}


def items(result: dict[str, Any]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The ndjson form: what stands once, then a job a line."""
    header = {key: value for key, value in result.items() if key != "jobs"}
    return header, ({"type": "job", **job} for job in result["jobs"])


def _job(job: Job, now: float | None) -> dict[str, Any]:
    orphans = job.orphans
    return {
        "name": job.name,
        "path": job.path,
        "format": job.system.name,
        "job": job.job,
        "epochs": job.epochs,
        "latest_restorable": None if job.newest is None else start_json(job.newest, now),
        "reason": job.why or None,
        "files": job.files,
        "bytes": job.bytes,
        "orphans": None
        if orphans is None
        else {
            "files": len(orphans.files),
            "bytes": orphans.bytes,
            "folders": [
                {"folder": folder, "files": count, "bytes": amount}
                for folder, (count, amount) in by_folder(orphans).items()
            ],
        },
    }


def start_json(start: Start, now: float | None = None) -> dict[str, Any]:
    """An epoch to start from."""
    return {
        "epoch": start.epoch,
        "path": start.path,
        "written": start.written,
        "age": age(start.written, now),
        "bytes": start.bytes,
    }


def latest_json(store: str, start: Start, *, verified: bool) -> dict[str, Any]:
    """Return `abs.restorable`, the answer to `--latest-restorable`. verified: every file was read."""
    facts = {"store": store, **start_json(start), "verified": verified}
    return {"schema": "abs.restorable", "version": FORMAT_VERSION, **facts}


def remark(start: Start) -> str:
    """Return the remark next to the path: number, age and size of the epoch."""
    old = age(start.written)
    written = "" if old is None else f", written {seconds(old)} ago"
    amount = "" if start.bytes is None else f", {size(start.bytes)} of state"
    return f"epoch {start.epoch}{written}{amount}"
