"""What `abs rewrite` says of a snapshot of Flink."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from abscli.text.columns import clean, number, size, wrapped
from formats.flink.rewriting.apply import Effect, Written
from formats.version import FORMAT_VERSION


class Size(msgspec.Struct, frozen=True):
    """How much a snapshot is. bytes: of all state."""

    operators: int
    bytes: int


class FlinkRewritten(msgspec.Struct, frozen=True):
    """What the changes make of a snapshot; `abscli.stores.base.Rewritten`.

    changes: the file of them; None: there was none.
    layout: that was asked for; None: as Flink wrote it.
    written: every keyed state that is written as canonical savepoints have it.
    to: where the copy is; None: nothing was written.
    files, bytes: of the copy, without its `_metadata`; None unless it was written.
    notes: what should be known of the copy.
    command: the line that starts a job from it; None unless it was written.
    """

    store: str
    epoch: int
    changes: str | None
    layout: str | None
    effects: tuple[Effect, ...]
    written: tuple[Written, ...]
    before: Size
    after: Size
    to: str | None
    files: int | None
    bytes: int | None
    notes: tuple[str, ...]
    command: str | None

    def text(self, width: int) -> str:
        return rewrite_text(self, width)

    def to_json(self) -> dict[str, object]:
        return rewrite_json(self)


def rewrite_json(done: FlinkRewritten) -> dict[str, Any]:
    """`abs.rewrite`."""
    facts = msgspec.to_builtins(done)
    file, effects = facts.pop("changes"), facts.pop("effects")
    return {
        "schema": "abs.rewrite", "version": FORMAT_VERSION, "format": "flink", **facts, "file": file,
        "changes": effects,
    }  # fmt: skip


def rewrite_text(done: FlinkRewritten, width: int) -> str:
    """What each line does, what comes of the whole, and the next command."""
    sections = [wrapped(_head(done), width, "  ", "")]
    if done.changes is not None:
        lines = [line for effect in done.effects for line in wrapped(_effect(effect), width, "      ", "  ")]
        sections.append(lines or ["  none: the file asks for nothing"])
    if done.layout is not None:
        lines = [line for state in done.written for line in wrapped(_written(state), width, "      ", "  ")]
        sections.append(lines or [f"  all keyed state is {done.layout} already"])
    total = (
        f"{done.before.operators} operators, {size(done.before.bytes)} of state; in the copy {done.after.operators}, "
        f"{size(done.after.bytes)}"
    )
    sections.append(wrapped(total, width, "  ", "In all: "))
    if done.notes:
        sections.append([line for note in done.notes for line in wrapped(note, width, "    ", "  - ")])
    if done.to is None:
        command = clean(f"abs rewrite {shlex.quote(done.store)}{_options(done)} --to NEWDIR")
        sections.append([f"Nothing was written. Next: {command}"])
    else:
        copied = f"{number(done.files)} files, {size(done.bytes)}, in {done.to}; all of it was read back and is intact"
        sections.append([*wrapped(copied, width, "  ", "Written: "), f"Next: {clean(done.command or '')}"])
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _head(done: FlinkRewritten) -> str:
    subject = f"checkpoint {done.epoch} of {done.store}"
    if done.changes is not None:
        subject = f"Changes of {done.changes} to {subject}"
    else:
        subject = f"C{subject[1:]}"
    return subject if done.layout is None else f"{subject}, with a {done.layout} layout"


def _options(done: FlinkRewritten) -> str:
    changes = "" if done.changes is None else f" --changes {shlex.quote(done.changes)}"
    return changes + ("" if done.layout is None else f" --layout {done.layout}")


def _written(state: Written) -> str:
    return f"{state.operator}, state {state.state}: {state.kind}, {number(state.rows)} rows, {size(state.bytes)}"


def _effect(effect: Effect) -> str:
    subject = effect.operator
    subject += f", state {effect.state}" if effect.state is not None else ""
    subject += f", split {effect.split}" if effect.split is not None else ""
    if effect.key is not None:
        subject += ", key " + ", ".join(f"{name}={text}" for name, text in effect.key.items())
    lead = f"line {effect.line}: {effect.action} "
    if effect.no_effect is not None:
        return f"{lead}{subject}: nothing to do, {effect.no_effect}"
    if effect.action == "moved":
        return f"{lead}{effect.before} -> {effect.after}"
    amount = []
    if effect.action == "removed" and effect.rows is not None and effect.split is None:
        amount = [f"{number(effect.rows)} rows", size(effect.bytes)]
    before = ", ".join([*([effect.before] if effect.before else []), *amount]) or "not there"
    return f"{lead}{subject}: {before} -> {effect.after or 'nothing'}"
