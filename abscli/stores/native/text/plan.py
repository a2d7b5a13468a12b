"""A recovery plan as text for people: what happens to whom and why, what it costs, and the next command."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from abscli.stores.recovery import restore_command
from abscli.text.columns import size
from formats.ids import tasks_name
from formats.native.plan import NativePlan, PlanKind
from formats.plan import Plan
from formats.values import plain
from formats.version import FORMAT_VERSION

if TYPE_CHECKING:
    from abscli.stores.native.repairing.repair import Repaired
    from abscli.stores.native.restore import NativeRestored

ROWS = 20
"""Rows of a section that are shown; the plan file has them all."""

_TITLES = {
    PlanKind.RECOVER: "all tasks roll back",
    PlanKind.PARTIAL: "a part of the running job restarts",
    PlanKind.REPAIR: "a part of the job runs again to mend an epoch",
}


def plan_text(
    plan: Plan[NativePlan], *, width: int = 80, plan_file: str | None = None, job: str = "JOB", rows: int = ROWS
) -> str:
    """The plan at most `width` columns wide where its names allow, without colour, ending in the next command.

    plan_file: where the plan was written, if it was; job: the job file, as a shell takes it; rows: most of a section.
    """
    sections = [
        _heading(plan, width),
        _restart(plan.body, width, rows),
        _dedup(plan.body, width, rows),
        _replay(plan.body, width, rows),
        _repeats(plan.body, width, rows),
        _rewind(plan.body, width, rows),
        _skipped(plan.body, width, rows),
        _summary(plan, width),
        [f"Next: {next_command(plan, plan_file, job)}"],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def next_command(plan: Plan[NativePlan], plan_file: str | None = None, job: str = "JOB") -> str:
    """What to type next: carry the plan out, or make one that can be carried out."""
    if plan.body.kind is PlanKind.PARTIAL:
        if plan.store is not None:
            return f"abs inspect {_word(plan.store)} --watch"
        failed = plan.body.failed
        tasks = failed if len(failed) <= 4 else (*failed[:3], "TASK...")
        options = [f"--failed {_word(task)}" for task in tasks] + ["--recovery local"] * plan.body.local
        return f"abs plan-recovery STORE {' '.join(options)}"
    if plan_file is not None:
        return f"{_clean(restore_command(plan, plan_file))} --job {job}"
    return f"abs plan-recovery {_word(plan.store or 'STORE')}{_asked_for(plan.body)} --out plan.json"


def _asked_for(body: NativePlan) -> str:
    """The options that made the plan what it is, so that the next command makes the same."""
    options = [f"--parallelism {_word(f'{id}={tasks}')}" for id, tasks in body.parallelism.items()]
    if body.kind is PlanKind.REPAIR:
        # What is missing need not be distrusted; what was distrusted is not told apart from it.
        options += ["--strategy repair", f"--epoch {body.epoch}", *(f"--distrust {_word(id)}" for id in body.failed)]
    return "".join(f" {option}" for option in options)


def restored_text(restored: NativeRestored, *, until: str) -> str:
    """What a restore did, in a line. until: how far it was to go."""
    text = (
        f"restored epoch {restored.parent} as epoch {restored.epoch} in {restored.elapsed:.1f} s: "
        f"{restored.tasks} tasks, {restored.state_rows:,} rows of state, {restored.replayed:,} log records replayed"
    )
    if restored.repeats:
        when = "came" if until == "end" else "come"
        count = sum(repeat.records for repeat in restored.repeats)
        text += f"; {count:,} records {when} again, since epoch {restored.parent} was taken at-least-once"
    return text


def repaired_text(repaired: Repaired) -> str:
    """What a repair did, in a line."""
    ran = f"{_many(repaired.rerun, 'task')} ran again from epoch {repaired.base}" if repaired.rerun else "nothing ran"
    text = (
        f"epoch {repaired.epoch} is intact, in {repaired.elapsed:.1f} s: {ran}, {_many(repaired.adopted, 'part')} "
        "stayed; "
        f"{_many(repaired.records, 'source record')} replayed, {repaired.dropped:,} dropped where they had been seen"
    )
    return text + (f"; {_many(repaired.quarantined, 'file')} moved to quarantine/" if repaired.quarantined else "")


def repaired_json(plan: Plan[NativePlan], repaired: Repaired) -> dict[str, Any]:
    """`abs.restore`, of a repair."""
    return {
        "schema": "abs.restore",
        "version": FORMAT_VERSION,
        "store": repaired.store,
        "epoch": repaired.epoch,
        "parent": repaired.parent,
        "tasks": repaired.tasks,
        "state_rows": repaired.state_rows,
        "replayed": sum(log.records or 0 for log in plan.body.replay_logs) if repaired.rerun else 0,
        "elapsed": round(repaired.elapsed, 3),
        "finished": repaired.finished,
        "policy": repaired.policy,
        "repeats": [],
        "repair": {
            "base_epoch": repaired.base,
            "rerun": repaired.rerun,
            "adopted": repaired.adopted,
            "dropped": repaired.dropped,
            "source_records": repaired.records,
            "quarantined": repaired.quarantined,
        },
    }


def restored_json(restored: NativeRestored) -> dict[str, Any]:
    """`abs.restore`."""
    return {
        "schema": "abs.restore",
        "version": FORMAT_VERSION,
        "store": restored.store,
        "epoch": restored.epoch,
        "parent": restored.parent,
        "tasks": restored.tasks,
        "state_rows": restored.state_rows,
        "replayed": restored.replayed,
        "elapsed": round(restored.elapsed, 3),
        "finished": restored.finished,
        "policy": restored.policy,
        "repeats": plain(restored.repeats),
    }


def taken_over(stores: Mapping[str, str]) -> tuple[str, ...]:
    """Which sinks showed another store's output until now, by operator, a line each."""
    return tuple(
        f"sink {operator}: taken over from {store}; what only that store made is in superseded/"
        for operator, store in stores.items()
    )


def _heading(plan: Plan[NativePlan], width: int) -> list[str]:
    body = plan.body
    if plan.store is None:
        where = "from its graph alone"
    elif body.epoch == body.base_epoch:
        where = f"from epoch {body.epoch} of {_clean(plan.store)}"
    else:
        where = f"epoch {body.epoch} of {_clean(plan.store)}, from epoch {body.base_epoch}"
    title = f"Plan ({body.kind}) for {_clean(body.job)}, {where}: {_TITLES[body.kind]}"
    word = "Missing" if body.kind is PlanKind.REPAIR else "Failed"
    failed = _wrapped(f"{word}: ", ", ".join(_cut(list(map(_clean, body.failed)), ROWS)), width) if body.failed else []
    return _wrapped("", title, width) + failed


def _restart(plan: NativePlan, width: int, rows: int) -> list[str]:
    tasks = sum(_count(row.subtasks) for row in plan.restart)
    verb = "Run again" if plan.kind is PlanKind.REPAIR else "Restart"
    heading = f"{verb}: {tasks:,} of {tasks + plan.untouched:,} tasks"
    if not plan.restart:
        return ["Nothing has to run: every part is there"]
    reasons = {row.reason for row in plan.restart}
    if len(reasons) == 1:
        return [
            *_wrapped(heading + ", ", _clean(reasons.pop()), width, indent=2),
            *_table([(_tasks(row.operator, row.subtasks),) for row in plan.restart], width, rows),
        ]
    table = [(_tasks(row.operator, row.subtasks), row.reason) for row in plan.restart]
    return [*_wrapped("", heading, width, indent=2), *_table(table, width, rows)]


def _dedup(plan: NativePlan, width: int, rows: int) -> list[str]:
    if not plan.dedup:
        return []
    dropped = plan.kind is PlanKind.REPAIR
    text = "what goes to these receivers is dropped: their parts stay" if dropped else (
        "these receivers go on and drop what they have already seen"
    )
    return [
        *_wrapped("Drop: " if dropped else "De-duplicate: ", text, width, indent=2),
        *_table(
            [(f"{_tasks(row.target, row.receivers)}", f"from {_tasks(row.source, row.senders)}") for row in plan.dedup],
            width, rows,
        ),
    ]


def _replay(plan: NativePlan, width: int, rows: int) -> list[str]:
    if not plan.replay_logs:
        return []
    heading = f"Replay first: {_many(len(plan.replay_logs), 'log')}, {_amount(plan.cost.log_records, 'record')}"
    table = [(log.channel, _amount(log.records, "record")) for log in plan.replay_logs]
    return [*_wrapped("", heading, width, indent=2), *_table(table, width, rows)]


def _repeats(plan: NativePlan, width: int, rows: int) -> list[str]:
    if not plan.repeats:
        return []
    count = sum(repeat.records for repeat in plan.repeats)
    heading = (
        f"Records repeat: epoch {plan.base_epoch} was taken at-least-once; its state holds {_many(count, 'record')} "
        "that come again"
    )
    table = [(repeat.channel, _many(repeat.records, "record")) for repeat in plan.repeats]
    return [*_wrapped("", heading, width, indent=2), *_table(table, width, rows)]


def _rewind(plan: NativePlan, width: int, rows: int) -> list[str]:
    if not plan.rewind:
        return []
    heading = f"Rewind sources: {_many(len(plan.rewind), 'split')}"
    return [
        heading,
        *_table(
            [(row.task, row.split, f"{_offset(row.from_)} -> {_offset(row.to, 'start')}") for row in plan.rewind],
            width, rows,
        ),
    ]


def _skipped(plan: NativePlan, width: int, rows: int) -> list[str]:
    if not plan.skipped:
        return []
    return ["Newer epochs that are not used", *_table([(str(s.epoch), s.reason) for s in plan.skipped], width, rows)]


def _summary(plan: Plan[NativePlan], width: int) -> list[str]:
    cost = plan.body.cost
    parts = [
        "unknown bytes of state" if cost.state_bytes is None else f"{size(cost.state_bytes)} of state",
        _amount(cost.log_records, "log record"),
        _amount(cost.source_records, "source record"),
    ]
    lines = [f"Untouched: {_many(plan.body.untouched, 'task')}"]
    if plan.body.parallelism:
        changes = ", ".join(f"{_clean(id)} to {n}" for id, n in plan.body.parallelism.items())
        lines += _wrapped("New parallelism: ", changes, width)
    costs = "not known without a store" if plan.store is None else ", ".join(parts)
    lines += _wrapped("Cost: ", costs, width)
    if plan.relies_on:
        lines += _wrapped("Relies on: ", f"{_many(len(plan.relies_on), 'file')} of the store, by digest", width)
    return lines


def _table(table: Sequence[tuple[str, ...]], width: int, limit: int) -> Iterator[str]:
    """Rows of cells, indented; all columns but the last are aligned, and the last one is wrapped under itself."""
    shown = [tuple(map(_clean, row)) for row in table[:limit]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]) - 1)]
    for row in shown:
        # A cell that is very long pushes the rest of its own row only.
        lead = "  " + "".join(f"{cell:<{min(w, 40)}}  " for cell, w in zip(row, widths, strict=False))
        yield from _wrapped(lead, row[-1], width, indent=min(len(lead), 4 + width // 2))
    if len(table) > limit:
        yield f"  ... and {len(table) - limit:,} more (all of them with -o json)"


def _wrapped(lead: str, text: str, width: int, *, indent: int | None = None) -> list[str]:
    return textwrap.wrap(
        lead + text,
        max(width, 20),
        subsequent_indent=" " * (len(lead) if indent is None else indent),
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cut(items: list[str], limit: int) -> list[str]:
    return items if len(items) <= limit else [*items[:limit], f"and {len(items) - limit:,} more"]


def _tasks(operator: str, subtasks: str) -> str:
    spans = subtasks.split(",")
    return tasks_name(operator, ",".join(spans[:8])) + (f",... ({_count(subtasks):,} tasks)" if len(spans) > 8 else "")


def _count(subtasks: str) -> int:
    """How many subtasks `0-3,7` are; the text is one that the plan's own checks let pass."""
    total = 0
    for span in subtasks.split(","):
        first, _, last = span.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _offset(value: int | None, unknown: str = "?") -> str:
    return unknown if value is None else f"{value:,}"


def _amount(number: int | None, noun: str) -> str:
    return f"unknown {noun}s" if number is None else _many(number, noun)


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _word(text: str) -> str:
    return shlex.quote(_clean(text))


def _clean(text: str) -> str:
    """Text that cannot move the cursor or end the line: file names may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
