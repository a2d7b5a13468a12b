"""The page of the protocol: its rules, and the tables of transitions with pictures that are drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from abscli.protocol import committer, coordinator, policy, schedule, task
from abscli.protocol.transitions import EPOCH, LIFE, PART, SINK, Transition, Whose

_WHOSE = {Whose.OWN: "its own", Whose.EARLIER: "an earlier one", Whose.LATER: "a later one", Whose.NONE: ""}


def protocol_page() -> str:
    """The page in Markdown, with state diagrams in Mermaid."""
    parts = [
        "<!-- Made by `make docs` from the modules of this folder. -->",
        "# The protocol",
        "Tasks, the coordinator and the committers of sinks are state machines: an event goes in, a list of actions "
        "comes out. They are in `task.py`, `coordinator.py` and `committer.py`; `events.py` has the events and actions "
        "of the first two. The engine and the simulator drive the same machines. Tests and comments name the rules by "
        "their numbers.",
        "## A task",
        _quoted(task),
        "### The policies",
        _quoted(policy),
        "### A task's part of one epoch",
        "Actions in brackets are answered where the policy and the channel ask for them. What is settled is acked, or "
        "was dropped; what is given up before its copy is remembered, so that barriers of it that come later are "
        "dropped.",
        *_drawn(PART),
        "## The coordinator",
        _quoted(coordinator),
        "### An epoch",
        "What is decided is complete or given up.",
        *_drawn(EPOCH),
        "### Losses and the end",
        *_drawn(LIFE),
        "## Sinks",
        _quoted(committer),
        *_drawn(SINK),
        "## Schedules",
        "`schedule.py` has the steps, `causal.py` what workers know of them, `kept.py` the frames that are kept.",
        _quoted(schedule),
    ]
    return "\n\n".join(parts) + "\n"


def mermaid(rows: Sequence[Transition]) -> str:
    """A state diagram; what changes nothing and is not answered is left out."""
    arrows: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for row in rows:
        if row.before is not row.after or row.actions or row.may:
            labels = arrows.setdefault((row.before, row.after), [])
            label = ", ".join(event.__name__ for event in row.events)
            if row.whose in (Whose.EARLIER, Whose.LATER):
                label += f" of {_WHOSE[row.whose]}"
            if row.actions:
                label += " / " + ", ".join(action.__name__ for action in row.actions)
            if label not in labels:
                labels.append(label)
    stages = type(rows[0].before)
    lines = ["stateDiagram-v2", *(f'    state "{stage}" as {_id(stage)}' for stage in stages)]
    lines.append(f"    [*] --> {_id(rows[0].before)}")
    lines += [f"    {_id(a)} --> {_id(b)}: {'<br/>'.join(labels)}" for (a, b), labels in arrows.items()]
    return "\n".join(lines)


def _drawn(rows: Sequence[Transition]) -> list[str]:
    return [f"```mermaid\n{mermaid(rows)}\n```", _table(rows)]


def _table(rows: Sequence[Transition]) -> str:
    lines = ["| stage | event | of epoch | when | answer | next stage | rules |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        events = ", ".join(f"`{event.__name__}`" for event in row.events)
        cells = (row.before, events, _WHOSE[row.whose], row.when, _answer(row), row.after, row.rules)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _answer(row: Transition) -> str:
    names = [f"`{action.__name__}`" for action in row.actions]
    optional = [f"[`{action.__name__}`]" for action in row.may]
    return ", ".join([*names, *optional]) or "none"


def _quoted(module: object) -> str:
    return f"```text\n{(module.__doc__ or '').strip()}\n```"


def _id(stage: StrEnum) -> str:
    return stage.replace(" ", "_")
