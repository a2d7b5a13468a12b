"""The report of what a command has said before: a validation, a comparison, a plan, as `-o json` wrote it.

What it was made from may be gone: the report has what is in the file, and the job graph where that is still to be had.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from abscli.pages.depth import OPERATORS
from abscli.pages.facts import About, EpochLine, Graph, Report, Table
from abscli.pages.graph import CHANGED, RESTARTS, Marks, graph_of, marked, marks_of, wrong_edges
from abscli.pages.resume import Maker, newest_of
from abscli.pages.store_report import EPOCHS, QUICK, READ_ALL
from abscli.pages.troubles import notes_of, troubles_of, unchecked_of
from abscli.report.findings import Code, EpochReport, Finding, StoreReport
from abscli.report.standing import State, standing
from abscli.text.validate import Advice
from formats.errors import FormatError
from formats.ids import AnyChannelId, ChannelId, EdgeId, HalfChannelId, TaskId, ends_of
from formats.job.model import Topology
from formats.version import check_version
from formats.view import Status

ROWS = 300
"""Rows of a table."""
GRAPH_ALONE = "the job graph is not in the file, and no store was named (--store): these are the operators of the file"
SAVED_BY = "`abs validate`, `abs diff` and `abs plan-recovery` write such files with -o json"
"""The hint for a file that is none of them."""


class SavedFinding(msgspec.Struct, frozen=True):
    """A finding of `abs.validate`."""

    code: Code
    task: str | None
    channel: str | None
    path: str | None
    message: str


class SavedEpoch(msgspec.Struct, frozen=True):
    """An epoch of `abs.validate`."""

    epoch: int
    verdict: Status
    findings: tuple[SavedFinding, ...]
    unchecked: tuple[Code, ...]
    triggered: str | None = None
    modified: str | None = None
    undated: str | None = None
    reason: str | None = None
    policy: str | None = None
    why_unchecked: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class SavedValidation(msgspec.Struct, frozen=True):
    """`abs.validate`."""

    store: str
    format: str
    job: str | None
    quick: bool
    epochs: tuple[SavedEpoch, ...]
    findings: tuple[SavedFinding, ...]
    unchecked: tuple[Code, ...]
    restorable: tuple[int, ...]
    unsatisfied: tuple[str, ...] = ()
    candidates: tuple[int, ...] = ()


class SavedEnd(msgspec.Struct, frozen=True):
    """One side of `abs.diff`."""

    store: str
    format: str
    job: str | None
    epoch: int


class SavedChange(msgspec.Struct, frozen=True):
    """An operator of `abs.diff`."""

    id: str
    change: str
    added: int | None
    removed: int | None
    changed: int | None
    unchanged: int | None


class SavedDiff(msgspec.Struct, frozen=True):
    """`abs.diff`."""

    left: SavedEnd = msgspec.field(name="from")
    right: SavedEnd = msgspec.field(name="to")
    identical: bool | None
    operators: tuple[SavedChange, ...]
    positions: tuple[dict[str, Any], ...] = ()
    logs: tuple[dict[str, Any], ...] = ()
    topology: tuple[dict[str, Any], ...] = ()
    rows: tuple[dict[str, Any], ...] | None = None


S = TypeVar("S", SavedValidation, SavedDiff)


class Around(NamedTuple):
    """What a report of a file has from elsewhere.

    maker: of the report; topology: the job graph, if the user named the store; advice: of the system, on findings.
    store: the store that the user named, as commands name it.
    """

    maker: Maker
    topology: Topology | None = None
    advice: Advice = Advice("Store")
    store: str | None = None


def read_validation(document: Mapping[str, Any], path: str) -> SavedValidation:
    """A saved `abs.validate`; FormatError, UnsupportedVersion. path: of its file, for messages."""
    return _read(document, SavedValidation, path)


def read_diff(document: Mapping[str, Any], path: str) -> SavedDiff:
    """A saved `abs.diff`; FormatError, UnsupportedVersion. path: of its file, for messages."""
    return _read(document, SavedDiff, path)


def _read(document: Mapping[str, Any], kind: type[S], path: str) -> S:
    schema = document.get("schema")
    check_version(document.get("version"), path=path, hint=f"create the file again: {SAVED_BY}")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise FormatError(f"is not a valid {schema}: {error}", path=path, hint=SAVED_BY) from None


def validation_report(saved: SavedValidation, around: Around) -> Report:
    """The report of a validation."""
    epochs = tuple(_epoch_report(epoch) for epoch in saved.epochs)
    report = StoreReport(
        epochs, tuple(map(_finding, saved.findings)), saved.unchecked, saved.restorable, candidates=saved.candidates
    )
    state, headline = standing(
        report, epochs[0].epoch if len(epochs) == 1 else None, unit=around.advice.unit, quick=saved.quick
    )
    location = around.store or saved.store
    troubles = troubles_of(report, location, around.advice, saved.format)
    newest = newest_of(report, None, around.maker.now)
    lines = tuple(_line(epoch, report) for epoch in epochs[-EPOCHS:])
    marks, wrong = marks_of(report, lines, around.advice.unit), wrong_edges(report, around.advice.unit)
    graph = _graph(around, marks, wrong)
    store = shlex.quote(location)
    again = [f"abs validate {store}", f"abs report {store} --out report.html"]
    first = [trouble.command for trouble in troubles if trouble.command and not trouble.harmless][:1]
    unsatisfied = tuple(f"not met: {demand}" for demand in saved.unsatisfied)
    return Report(
        made=around.maker.made([time for epoch in epochs for time in (epoch.triggered, epoch.modified)]),
        unit=around.advice.unit,
        about=About.VALIDATION,
        store=location,
        format=saved.format,
        job=saved.job,
        epoch=None,
        state=State.DAMAGED if unsatisfied and state is State.OK else state,
        summary=headline,
        checked=None if state is State.UNVERIFIED else f"{QUICK.partition(' (')[0]}." if saved.quick else READ_ALL,
        next=tuple(dict.fromkeys((*first, *again))),
        problems=troubles,
        unchecked=unchecked_of(
            report, {epoch.epoch: epoch.why_unchecked for epoch in saved.epochs}, quick=saved.quick
        ),
        notes=(*unsatisfied, *relative_to(location, "abs validate"),
               *notes_of({epoch.epoch: epoch.notes for epoch in saved.epochs}, around.advice.unit)),
        epochs=lines,
        epochs_count=len(epochs),
        latest_restorable=report.latest_restorable,
        newest=newest,
        graph=graph,
    )  # fmt: skip


def relative_to(store: str, command: str) -> tuple[str, ...]:
    """Return a note if a saved file names its store by a relative path. command: that wrote the file."""
    if "://" in store or os.path.isabs(store):
        return ()
    return (f"Paths are relative to the folder in which `{command}` was run: {store}",)


def diff_report(saved: SavedDiff, around: Around) -> Report:
    """The report of a comparison."""
    unit = around.advice.unit
    left, right = (f"{unit} {end.epoch} of {end.store}" for end in (saved.left, saved.right))
    differ = [one for one in saved.operators if one.change not in ("unchanged", "unknown")]
    marks = {one.id: (CHANGED, _change_text(one)) for one in differ[:OPERATORS]}
    graph = _graph(around, marks)
    state, headline = {
        True: (State.OK, f"{left} and {right} are identical"),
        False: (State.WARNING, f"{left} and {right} differ"),
        None: (State.UNKNOWN, f"{left} and {right}: nothing differs that could be compared, and not all could be"),
    }[saved.identical]
    ends = [f"{shlex.quote(end.store)}@{end.epoch}" for end in (saved.left, saved.right)]
    tables = {
        "State of operators": [msgspec.to_builtins(one) for one in saved.operators],
        "Job graph": saved.topology,
        "Source positions": saved.positions,
        "Channel logs": saved.logs,
        "Rows": saved.rows or (),
    }
    return Report(
        made=around.maker.made(()),
        unit=around.advice.unit,
        about=About.DIFF,
        store=saved.left.store,
        format=saved.left.format,
        job=saved.left.job,
        epoch=saved.left.epoch,
        state=state,
        summary=headline[0].upper() + headline[1:],
        checked=None,
        notes=relative_to(saved.left.store, "abs diff"),
        next=(f"abs diff {ends[0]} {ends[1]} --rows", f"abs report {ends[1]} --out report.html"),
        graph=graph,
        tables=tuple(table_of(title, rows) for title, rows in tables.items() if rows),
    )


def plan_report(
    document: Mapping[str, Any], around: Around, *, restarts: Mapping[str, str] | None, text: str, job: str | None,
    goes_back_to: int | None, next: Sequence[str],
) -> Report:  # fmt: skip
    """The report of a recovery plan. document: its file; restarts: ranges of subtasks by operator, None for all;
    text: the plan for people."""
    body = document["body"]
    tasks = around.topology.operators if around.topology is not None else ()
    everything = {operator.id: f"0-{operator.parallelism - 1}" for operator in tasks}
    marks = {
        id: (RESTARTS, f"restarts: subtask{'s'[: not subtasks.isdigit()]} {subtasks}")
        for id, subtasks in (everything if restarts is None else restarts).items()
    }
    graph = _graph(around, marks)
    unit = around.advice.unit
    back = f"The plan names no {unit}" if goes_back_to is None else f"Back to {unit} {goes_back_to}"
    scope = "the whole job restarts, from a copy" if restarts is None else f"{_counted(len(marks), 'operator')} restart"
    lists = {name: rows for name, rows in body.items() if _is_table(rows)}
    single = {name: value for name, value in body.items() if not _is_table(value)}
    facts = [{"name": name, "value": _text(value)} for name, value in {**_envelope(document), **single}.items()]
    return Report(
        made=around.maker.made(()),
        unit=around.advice.unit,
        about=About.PLAN,
        store=document.get("store"),
        format=str(document["system"]),
        job=job,
        epoch=goes_back_to,
        state=State.WARNING,
        summary=f"{back}: {scope}",
        checked=f"The plan is valid as long as {_counted(len(document['relies_on']), 'file')} are unchanged.",
        next=tuple(next),
        graph=graph,
        tables=(*(table_of(name, rows) for name, rows in lists.items()), table_of("The plan", facts),
                table_of("relies_on", document["relies_on"])),
        text=text,
    )  # fmt: skip


def _graph(around: Around, marks: Marks, wrong: Mapping[tuple[str, str], str] = MappingProxyType({})) -> Graph | None:
    """The job graph with what is lit up; operators alone where it is not to be had; None where there are none."""
    if around.topology is not None:
        return marked(graph_of(around.topology, (), (), marks, wrong), marks)
    return marked(Graph((), (), GRAPH_ALONE), marks) if marks else None


def table_of(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Facts as a table, the columns in the order in which they appear first, and numbers each in one of its own."""
    rows = [_flat(row) for row in rows[:ROWS]] + list(rows[ROWS:])
    columns = tuple(dict.fromkeys(name for row in rows[:ROWS] for name in row))
    cells = tuple(tuple(_word(row.get(name)) for name in columns) for row in rows[:ROWS])
    return Table(title, columns, cells, len(rows))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and value and all(isinstance(one, int | float | None) for one in value.values()):
            flat |= {f"{name} {part}": one for part, one in value.items() if one is not None}
        else:
            flat[name] = value
    return flat


def _word(value: object) -> str | int | float | bool | None:
    """A fact in one cell; what is nested as JSON, without what says nothing."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items() if item is not None) or "none"
    if isinstance(value, Iterable):
        return ", ".join(str(_text(item)) for item in value) or "none"
    return str(value)


def _text(value: object) -> str | None:
    """A fact beside others of other kinds."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None else str(_word(value))


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _envelope(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document.get(name) for name in ("created", "store", "sha256")}


def _change_text(one: SavedChange) -> str:
    counts = {"added": one.added, "removed": one.removed, "changed": one.changed}
    text = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    return f"{one.change}: {text}" if text else one.change


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s'[: number != 1]}"


def _epoch_report(saved: SavedEpoch) -> EpochReport:
    findings = tuple(map(_finding, saved.findings))
    return EpochReport(
        saved.epoch, saved.verdict, findings, saved.unchecked, saved.triggered, saved.reason, saved.policy,
        modified=saved.modified, undated=saved.undated,
    )  # fmt: skip


def _finding(saved: SavedFinding) -> Finding:
    """A finding again; a name that is none of a task or a channel becomes a part of the message."""
    try:
        task = None if saved.task is None else TaskId.parse(saved.task)
        channel = None if saved.channel is None else _channel(saved.channel)
        return Finding(saved.code, task, channel, saved.path, saved.message)
    except ValueError:
        return Finding(saved.code, None, None, saved.path, f"{saved.channel or saved.task}: {saved.message}")


def _channel(text: str) -> AnyChannelId | EdgeId:
    """A channel, one of which one end is known, or an edge, by its name; ValueError."""
    sender, receiver = ends_of(text)
    if "/" in sender and "/" in receiver:
        return ChannelId.parse(text)
    if "/" in sender or "/" in receiver:
        ends = [TaskId.parse(end) if "/" in end else None for end in (sender, receiver)]
        return HalfChannelId(ends[0], ends[1])
    return EdgeId(tuple(sender.split("+")), receiver)


def _line(epoch: EpochReport, report: StoreReport) -> EpochLine:
    """What a validation says of an epoch; the rest is not in it."""
    missing = [str(finding.task) for finding in epoch.findings if finding.code is Code.MISSING_ACK]
    return EpochLine(
        epoch=epoch.epoch, status=str(epoch.verdict), verdict=str(epoch.verdict),
        restorable=epoch.epoch in report.restorable, parent=None, attempt=None, expected=None, acked=None,
        missing=tuple(missing[:20]), missing_count=len(missing), bytes=None, state_bytes=None, state_rows=None,
        log_records=None, triggered=epoch.triggered, modified=epoch.modified, duration=None, policy=epoch.policy,
        reason=epoch.reason, times=None,
    )  # fmt: skip
