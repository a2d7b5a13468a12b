"""What `abs plan-recovery` and `abs restore` say of a snapshot of Flink."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from abscli.stores.flink.plan import plan_command
from abscli.stores.flink.restore import CLAIMED, FlinkRestored
from abscli.stores.recovery import restore_command
from abscli.text.columns import clean, number, size, wrapped
from formats.flink.metadata.handles import Backend
from formats.flink.plan import FlinkPlan
from formats.plan import Plan
from formats.storage import absolute
from formats.version import FORMAT_VERSION

ROWS = 20

CONVERTED = ("hashmap", "rocksdb")
"""State backends whose layout `abs rewrite` converts: no other backend reads state of the asynchronous API on ForSt."""


def plan_text(plan: Plan[FlinkPlan], *, width: int = 80, plan_file: str | None = None) -> str:
    """Which snapshot, why not a newer one, what a copy would set right, and the next command."""
    body = plan.body
    sections = [
        wrapped(f"Plan: {body.kind} {body.epoch} of {plan.store}, in {body.directory}", width, "  ", ""),
        [line for text in body.repairs for line in wrapped(text, width, "    ", "  - ")],
        [
            line
            for skipped in body.skipped[:ROWS]
            for line in wrapped(f"{skipped.epoch}: {skipped.reason}", width, "    ", "  ")
        ],
        wrapped(f"{number(body.files)} files, {size(body.bytes)}", width, "  ", "A copy: "),
    ]
    if sections[1]:
        sections[1].insert(0, "Flink cannot restore it where it lies; a copy sets right")
    else:
        sections[1] = ["Flink can restore it where it lies"]
        if body.claim:
            sections[1] += wrapped(CLAIMED, width, "    ", "  - ")
        sections[1] += _bound_to(body.backend, f"{plan.store}@{body.epoch}", width)
    if sections[2]:
        sections[2].insert(0, "Newer checkpoints that are not used")
    sections.append([f"Next: {clean(command)}" for command in next_commands(plan, plan_file)])
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def next_commands(plan: Plan[FlinkPlan], plan_file: str | None) -> list[str]:
    """The line that starts the job, if it can start from where the snapshot lies; what makes a copy."""
    start = [plan.body.command] if plan.body.command else []
    if plan_file is not None:
        return [*start, f"{restore_command(plan, plan_file)} --to NEWDIR"]
    named_alone = plan.store is not None and plan.body.directory == absolute(plan.store)
    command = plan_command(plan.store or "STORE", None if named_alone else plan.body.epoch, plan.read)
    return [*start, command]


def restored_text(done: FlinkRestored, width: int = 80) -> str:
    """What was written, and the line that starts a job from it."""
    copied = f"checkpoint {done.epoch}, {number(done.files)} files, {size(done.bytes)}, is in {done.directory}"
    lines = wrapped(copied, width, "  ", "Copied: ")
    for text in done.repairs:
        lines += wrapped(text, width, "    ", "  - ")
    lines += _bound_to(done.backend, done.directory, width)
    return "\n".join([*lines, f"Next: {clean(done.command)}"]) + "\n"


def _bound_to(backend: Backend | None, store: str, width: int) -> list[str]:
    """Return what to do if the job is configured with another state backend. store: as a command names it."""
    if backend is None:
        return []
    text = f"only the {backend} state backend reads its keyed state"
    if backend not in CONVERTED:
        return wrapped(text, width, "    ", "  - ")
    command = f"abs rewrite {shlex.quote(store)} --layout canonical --to NEWDIR"
    return [*wrapped(f"{text}; for another state backend:", width, "    ", "  - "), f"    {clean(command)}"]


def restored_json(plan: Plan[FlinkPlan], done: FlinkRestored) -> dict[str, Any]:
    """`abs.flink-restore`."""
    return {
        "schema": "abs.flink-restore", "version": FORMAT_VERSION, "format": "flink", "store": plan.store,
        **msgspec.to_builtins(done),
    }  # fmt: skip
